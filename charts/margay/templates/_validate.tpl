{{/* Faults that a schema can't see: `<key>: <fault>; <what to set>`. All of them are named at once. */}}

{{- define "margay.faults" -}}
{{- $values := .Values -}}
{{- range $server := list "mongodb" "nats" -}}
{{- $own := get $values $server -}}
{{- if and $own.enabled $own.external.existingSecret }}
- '{{ $server }}: both the bundled server and an external one are named; set {{ $server }}.enabled to false or empty {{ $server }}.external.existingSecret'
{{- else if not (or $own.enabled $own.external.existingSecret) }}
- '{{ $server }}.external.existingSecret: there is no {{ ternary "MongoDB" "NATS" (eq $server "mongodb") }}; set it to a secret with `url`, or {{ $server }}.enabled to true for an evaluation'
{{- else if and $own.external.existingSecret $values.networkPolicy.enabled (not (get $values.networkPolicy (printf "%sTo" $server))) }}
- 'networkPolicy.{{ $server }}To: empty, so nothing reaches the external server; set peers such as [{ipBlock: {cidr: …}}]'
{{- end }}
{{- end }}
{{- with $values.blobs }}
{{- if eq .driver "s3" }}
{{- if not .s3.bucket }}
- 'blobs.s3.bucket: missing with blobs.driver s3; set it to the name of a bucket that exists'
{{- end }}
{{- if not .s3.existingSecret }}
- 'blobs.s3.existingSecret: missing with blobs.driver s3; set it to a secret with `access-key-id` and `secret-access-key`'
{{- end }}
{{- if and $values.networkPolicy.enabled (not $values.networkPolicy.blobsTo) }}
- 'networkPolicy.blobsTo: empty, so nothing reaches the bucket; set peers such as [{ipBlock: {cidr: …}}]'
{{- end }}
{{- else if or .s3.bucket .s3.endpoint .s3.existingSecret }}
- 'blobs.s3: not used with blobs.driver gridfs; set blobs.driver to s3, or empty bucket, endpoint and existingSecret'
{{- end }}
{{- end }}
{{- if and $values.mongodb.enabled (not $values.networkPolicy.enabled) }}
- 'mongodb.enabled: the bundled server has no password and is kept by the network policy alone; set networkPolicy.enabled to true, or use a server of your own'
{{- end }}
{{- if and (eq $values.secrets.mode "existing") (not $values.secrets.existingSecret) }}
- 'secrets.existingSecret: missing with secrets.mode existing; set it to the secret with the keys of the services (docs/installing.md says how to make them)'
{{- end }}
{{- if and (eq $values.secrets.mode "existing") (not $values.secrets.kek.existingSecret) }}
- 'secrets.kek.existingSecret: missing with secrets.mode existing; set it to the secret with `kek.json` (docs/secrets.md says how to make it)'
{{- end }}
{{- if and (eq $values.secrets.mode "generated") $values.secrets.existingSecret }}
- 'secrets.existingSecret: not used with secrets.mode generated; set secrets.mode to existing, or empty it'
{{- end }}
{{- with $values.tls }}
{{- if and (eq (toString .mode) "certManager") (not ($.Capabilities.APIVersions.Has "cert-manager.io/v1")) }}
- 'tls.mode: certManager, but the cluster has no cert-manager.io/v1; install cert-manager, or set tls.mode to generated'
{{- end }}
{{- if and (eq (toString .mode) "existing") (not .existingSecret) }}
- 'tls.existingSecret: missing with tls.mode existing; set it to the first part of the names of your secrets (docs/installing.md says how to make them)'
{{- else if and .existingSecret (ne (toString .mode) "existing") }}
- 'tls.existingSecret: not used with tls.mode {{ .mode }}; set tls.mode to existing, or empty it'
{{- end }}
{{- if and .issuer.name (ne (include "margay.tlsMode" $) "certManager") }}
- 'tls.issuer.name: not used without cert-manager; set tls.mode to certManager, or empty it'
{{- end }}
{{- end }}
{{- range $component := include "margay.components" . | fromYamlArray }}
{{- $own := get $values $component.section }}
{{- if and $component.isFirst (lt (int $own.graceSeconds) (int (add $own.drainSeconds 15))) }}
- '{{ $component.section }}.graceSeconds: {{ $own.graceSeconds }} is less than drainSeconds + 15, so pods are killed while they hand over; set at least {{ add $own.drainSeconds 15 }}'
{{- end }}
{{- if and $component.isFirst (lt (include "margay.heap" (dict "root" $ "component" $component) | int) 96) }}
- '{{ $component.section }}.resources.limits.memory: too little is left for the heap{{ if $component.pool }} beside runner.isolated (runs × heapMb){{ end }}; set a higher limit'
{{- end }}
{{- end }}
{{- $gateway := get $values (include "margay.hostOf" (dict "root" . "service" "gateway")) }}
{{- if ge (int $values.gateway.streamDrainSeconds) (int $gateway.drainSeconds) }}
- 'gateway.streamDrainSeconds: {{ $values.gateway.streamDrainSeconds }} is not less than the drainSeconds of the pod ({{ $gateway.drainSeconds }}), so streams are cut; set a smaller one'
{{- end }}
{{- if and $values.gateway.autoscaling.enabled (ne $values.mode "split") }}
- 'gateway.autoscaling.enabled: there is no deployment of the gateway in mode combined; set mode to split, or this to false'
{{- end }}
{{- range $key := list "gateway" "runner" }}
{{- $scaling := (get $values $key).autoscaling }}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) }}
- '{{ $key }}.autoscaling.minReplicas: {{ $scaling.minReplicas }} is more than maxReplicas ({{ $scaling.maxReplicas }}); set a smaller one'
{{- end }}
{{- end }}
{{- if ne (len (include "margay.poolNames" . | fromYamlArray)) (len (include "margay.poolNames" . | fromYamlArray | uniq)) }}
- 'runner.pools: two pools have one name; set different ones'
{{- end }}
{{- if (first $values.runner.pools).tenants }}
- 'runner.pools[0].tenants: the first pool is for all who have no other; leave its tenants out'
{{- end }}
{{- $tenants := list }}
{{- range $values.runner.pools }}
{{- $tenants = concat $tenants (.tenants | default list) }}
{{- end }}
{{- if ne (len $tenants) (len (uniq $tenants)) }}
- 'runner.pools: a tenant is in two pools; leave it in one'
{{- end }}
{{- with $values.gateway }}
{{- if and (or .ingress.enabled .route.enabled) (not .host) }}
- 'gateway.host: missing although the ingress or route is enabled; set the name that clients call'
{{- end }}
{{- if and .ingress.enabled (not .ingress.tlsSecret) (ne .host "localhost") }}
- 'gateway.ingress.tlsSecret: missing, so keys would travel in the clear; set the secret with the certificate of {{ .host }}'
{{- end }}
{{- if and .route.enabled (not .route.parentRefs) }}
- 'gateway.route.parentRefs: empty, so no Gateway takes the route; set at least one'
{{- end }}
{{- if and (or .ingress.enabled .route.enabled) $values.networkPolicy.enabled (not $values.networkPolicy.ingressFrom) }}
- 'networkPolicy.ingressFrom: empty, so the ingress controller does not reach the gateway; set its namespaceSelector or podSelector'
{{- end }}
{{- end }}
{{- if and (or $values.backup.enabled $values.restore.enabled) (not $values.backup.existingClaim) }}
- 'backup.existingClaim: missing, so there is no place for backups; set a claim such as k8s/examples/backup-claim.yaml'
{{- end }}
{{- with $values.tenancy }}
{{- if and .multiTenant (not .acceptCombined) (eq $values.mode "combined") }}
- 'tenancy.multiTenant: in mode combined rights in the cluster stand beside the public port; set mode to split, or tenancy.acceptCombined to true'
{{- end }}
{{- if and .multiTenant (not $values.networkPolicy.enabled) }}
- 'tenancy.multiTenant: without network policies sandboxes of one tenant reach those of another; set networkPolicy.enabled to true'
{{- end }}
{{- range $section := list "toolExecutor" "control" }}
{{- range (get $values $section).extraEnv }}
{{- if and $values.tenancy.multiTenant (eq .name "MARGAY_SANDBOX_DRIVER") (ne (toString .value) "kubernetes") }}
- 'tenancy.multiTenant: with the driver {{ .value }} sandboxes of all tenants share one pod; take MARGAY_SANDBOX_DRIVER out of {{ $section }}.extraEnv'
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $workspaces := include "margay.workspaceNamespaces" . | fromYamlArray }}
{{- $names := list .Release.Namespace }}
{{- range $workspaces }}
{{- if has .name $names }}
- 'workspaces: the namespace {{ .name }} is used twice, and sandboxes must not lie beside services; set another one'
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $placed := list }}
{{- range $values.workspaces.extraNamespaces }}
{{- $placed = concat $placed (.tenants | default list) }}
{{- end }}
{{- if ne (len $placed) (len (uniq $placed)) }}
- 'workspaces.extraNamespaces: a tenant is in two namespaces; leave it in one'
{{- end }}
{{- with $values.networkPolicy }}
{{- if and .enabled (not .apiServerCidrs) }}
- 'networkPolicy.apiServerCidrs: empty, so tool-executor can make no sandboxes; set the addresses that `kubectl get endpoints kubernetes` lists, each with /32'
{{- end }}
{{- if and .enabled $values.models.default (not .modelCidrs) (not .modelTo) }}
- 'networkPolicy.modelCidrs: empty, so no model is reached; set the ranges of your provider, or modelTo to the pods of your own'
{{- end }}
{{- end }}
{{- if and $values.networkPolicy.httpToolsTo (not $values.toolExecutor.httpToolsDirect) }}
- 'networkPolicy.httpToolsTo: tools go out by the egress proxy, so it opens nothing; set toolExecutor.httpToolsDirect to true, or name addresses that are not public in egress.private'
{{- end }}
{{- range $values.egress.private }}
{{- if hasSuffix "/0" .cidr }}
- 'egress.private: {{ .cidr }} stands for everything, so {{ .host }} could lead into the cluster; set the range of that host'
{{- end }}
{{- end }}
{{- range $values.egress.clusterCidrs }}
{{- if hasSuffix "/0" . }}
- 'egress.clusterCidrs: {{ . }} stands for everything, so nothing could be reached; set the ranges of your cluster'
{{- end }}
{{- end }}
{{- if and $values.sandbox.classes (not (hasKey $values.sandbox.classes "default")) }}
- 'sandbox.classes: there is none called "default", which sessions use; set one'
{{- end }}
{{- if and $values.observability.otlp.endpoint $values.networkPolicy.enabled (not $values.networkPolicy.otlpTo) }}
- 'networkPolicy.otlpTo: empty, so no trace leaves; set peers of the collector, or empty observability.otlp.endpoint'
{{- end }}
{{- if and (eq $values.runner.autoscaling.driver "keda") $values.networkPolicy.enabled (not $values.networkPolicy.monitoringFrom) }}
- 'networkPolicy.monitoringFrom: empty, so KEDA can not ask for the demand; set peers of its operator'
{{- end }}
{{- if and (eq $values.observability.serviceMonitor "always") $values.networkPolicy.enabled (not $values.networkPolicy.monitoringFrom) }}
- 'networkPolicy.monitoringFrom: empty, so Prometheus does not reach the management ports; set its peers'
{{- end }}
{{- end -}}

{{- define "margay.poolNames" -}}
{{- range .Values.runner.pools }}
- {{ .name }}
{{- end }}
{{- end -}}
