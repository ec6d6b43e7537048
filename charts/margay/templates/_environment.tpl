{{/* The environment of a component: (dict "root" $ "component" …). Each variable is one that its services read. */}}

{{- define "margay.environment" -}}
{{- $values := .root.Values -}}
{{- $own := get $values .component.section -}}
{{- $services := .component.services -}}
- { name: HOME, value: /tmp }
- { name: NODE_OPTIONS, value: {{ printf "--max-semi-space-size=16 --max-old-space-size=%s" (include "margay.heap" .) | quote }} }
- { name: MARGAY_MANAGEMENT_LISTEN, value: '0.0.0.0:9464' }
- { name: MARGAY_LOG_LEVEL, value: {{ $values.observability.logLevel }} }
- { name: MARGAY_SHUTDOWN_LIMIT_SECONDS, value: {{ include "margay.shutdownSeconds" . | quote }} }
- { name: MARGAY_KEYS_DIR, value: /margay/keys }
{{- if ne (include "margay.tlsMode" .root) "off" }}
- { name: MARGAY_TLS_DIR, value: /margay/tls }
{{- end }}
{{ include "margay.addresses" . }}
{{- if has "gateway" $services }}
{{ include "margay.gatewayEnvironment" .root }}
{{- end }}
{{- if has "session" $services }}
{{ include "margay.sessionEnvironment" .root }}
{{- end }}
{{- if has "tool-executor" $services }}
{{ include "margay.toolExecutorEnvironment" .root }}
{{- end }}
{{- if has "egress" $services }}
- { name: MARGAY_EGRESS_POLICY_FILE, value: /margay/egress/policy.json }
{{- if include "margay.egressAuthoritySecret" .root }}
- { name: MARGAY_EGRESS_CA_DIR, value: /margay/egress-ca }
{{- end }}
- { name: MARGAY_EGRESS_SERVICES_LISTEN, value: '0.0.0.0:{{ (get (include "margay.ports" . | fromYaml) "egress").services }}' }
- { name: MARGAY_EGRESS_DRAIN_SECONDS, value: {{ $own.drainSeconds | quote }} }
{{- end }}
{{- if .component.pool }}
{{ include "margay.runnerEnvironment" . }}
{{- end }}
{{- if or (has "session" $services) (has "agent-runner" $services) }}
{{- include "margay.modelEnvironment" .root }}
{{- end }}
{{- if or (has "session" $services) (has "tool-executor" $services) }}
{{ include "margay.mongodbEnvironment" .root }}
{{- include "margay.blobsEnvironment" .root }}
{{- end }}
{{- $needs := list }}
{{- range $services }}
{{- $needs = concat $needs (get (include "margay.edges" $ | fromYaml) .).needs }}
{{- end }}
{{- if has "nats" $needs }}
{{ include "margay.natsEnvironment" .root }}
{{- end }}
{{- if $values.caSecret }}
- { name: NODE_EXTRA_CA_CERTS, value: /margay/ca/ca.crt }
{{- end }}
{{- with $values.observability.otlp }}
{{- if .endpoint }}
- { name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }} }
- { name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio }
- { name: OTEL_TRACES_SAMPLER_ARG, value: {{ .sampling | quote }} }
{{- end }}
{{- end }}
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Where its services listen, and where the services are that they call; each tells session of its version. */}}
{{- define "margay.addresses" -}}
{{- $context := . -}}
{{- $dialled := list "session" -}}
{{- range $service := .component.services }}
{{- if has $service (list "gateway" "session" "agent-runner" "egress") -}}
{{- $dialled = append $dialled "tool-executor" -}}
{{- end -}}
{{- with get (include "margay.ports" $context | fromYaml) $service }}
- { name: {{ include "margay.variable" $service }}_LISTEN, value: '0.0.0.0:{{ .port }}' }
{{- end }}
{{- end }}
{{- range $service := $dialled | uniq }}
- { name: {{ include "margay.variable" $service }}_URL, value: {{ include "margay.addressOf" (merge (dict "service" $service) $context) | quote }} }
{{- end }}
{{- end -}}

{{- define "margay.variable" -}}
MARGAY_{{ . | upper | replace "-" "_" }}
{{- end -}}

{{/* egress first lets open tunnels end by themselves for all of its drain time. */}}
{{- define "margay.shutdownSeconds" -}}
{{- $drain := (get .root.Values .component.section).drainSeconds -}}
{{- ternary (add $drain 5) $drain (has "egress" .component.services) -}}
{{- end -}}

{{/* 75 % of the memory that is left beside processes of single runs. */}}
{{- define "margay.heap" -}}
{{- $limit := include "margay.mebibytes" (get .root.Values .component.section).resources.limits.memory | int -}}
{{- if .component.pool -}}
{{- $isolated := .root.Values.runner.isolated -}}
{{- $limit = sub $limit (mul $isolated.runs $isolated.heapMb) -}}
{{- end -}}
{{- div (mul $limit 3) 4 -}}
{{- end -}}

{{- define "margay.gatewayEnvironment" -}}
{{- with .Values.gateway -}}
- { name: MARGAY_CORS_ORIGIN, value: {{ join "," .corsOrigins | quote }} }
- { name: MARGAY_MAX_CONCURRENT_STREAMS, value: {{ .maxStreams | int64 | quote }} }
- { name: MARGAY_RATE_LIMIT_PER_SECOND, value: {{ .rateLimit.perSecond | int64 | quote }} }
- { name: MARGAY_RATE_LIMIT_BURST, value: {{ .rateLimit.burst | int64 | quote }} }
- { name: MARGAY_STREAM_DRAIN_SECONDS, value: {{ .streamDrainSeconds | quote }} }
{{- end -}}
{{- end -}}

{{- define "margay.sessionEnvironment" -}}
{{- with .Values.session -}}
- { name: MARGAY_CELL, value: {{ .cell | quote }} }
- { name: MARGAY_POOL, value: {{ (first $.Values.runner.pools).name }} }
{{- $others := dict }}
{{- range rest $.Values.runner.pools }}
{{- $_ := set $others .name (.tenants | default list) }}
{{- end }}
- { name: MARGAY_RUNNER_POOLS, value: {{ $others | toJson | quote }} }
- { name: MARGAY_STEP_BUDGET, value: {{ .stepBudget | int64 | quote }} }
- { name: MARGAY_TENANT_CONCURRENT_RUNS, value: {{ .tenantConcurrentRuns | int64 | quote }} }
- { name: MARGAY_TENANT_WEIGHT, value: {{ .tenantWeight | int64 | quote }} }
- { name: MARGAY_RUNNER_LOST_SECONDS, value: {{ .runnerLostSeconds | quote }} }
{{- end }}
- { name: MARGAY_METRICS_TENANT_LABEL, value: {{ .Values.observability.tenantLabel | quote }} }
- { name: MARGAY_EGRESS_MAX_MODE, value: {{ .Values.egress.maxMode }} }
{{- if .Values.models.default }}
- { name: MARGAY_MODEL, value: {{ .Values.models.default | quote }} }
{{- end }}
- { name: MARGAY_KEK_FILE, value: /margay/kek/kek.json }
{{- if include "margay.firstKeySecret" . }}
- { name: MARGAY_BOOTSTRAP_KEY_FILE, value: /margay/first-key/key }
- { name: MARGAY_BOOTSTRAP_KEY_SECONDS, value: {{ .Values.firstKey.ttlSeconds | int64 | quote }} }
{{- end }}
{{- end -}}

{{- define "margay.toolExecutorEnvironment" -}}
{{- with .Values.sandbox -}}
- { name: MARGAY_SANDBOX_DRIVER, value: kubernetes }
- { name: MARGAY_WORKSPACES_NAMESPACE, value: {{ $.Values.workspaces.namespace }} }
{{- $tenantsOf := dict }}
{{- range $.Values.workspaces.extraNamespaces }}
{{- $_ := set $tenantsOf .name (.tenants | default list) }}
{{- end }}
{{- if $tenantsOf }}
- { name: MARGAY_WORKSPACES_EXTRA_NAMESPACES, value: {{ $tenantsOf | toJson | quote }} }
{{- end }}
{{- if $.Values.tenancy.multiTenant }}
- { name: MARGAY_MULTI_TENANT, value: 'true' }
{{- end }}
- { name: MARGAY_INSTALL_ID, value: {{ include "margay.install" $ }} }
- { name: MARGAY_SANDBOX_IMAGE, value: {{ include "margay.imageOf" (dict "root" $ "image" .image) }} }
- { name: MARGAY_SANDBOX_PULL_POLICY, value: {{ $.Values.image.pullPolicy }} }
{{- with .image.pullSecrets | default $.Values.image.pullSecrets }}
- { name: MARGAY_SANDBOX_PULL_SECRETS, value: {{ join "," . | quote }} }
{{- end }}
- { name: MARGAY_EGRESS_ADDRESS, value: '{{ include "margay.fullname" $ }}-egress:{{ (get (include "margay.ports" $ | fromYaml) "egress").port }}' }
{{- if include "margay.egressAuthoritySecret" $ }}
- { name: MARGAY_EGRESS_CA_FILE, value: /margay/egress-ca/ca.pem }
{{- end }}
- { name: MARGAY_SANDBOX_IDLE_STOP_SECONDS, value: {{ .idleSeconds | int64 | quote }} }
{{- if .watchNodes }}
- { name: MARGAY_WATCH_NODES, value: 'true' }
{{- end }}
- { name: MARGAY_SANDBOX_TENANT_MAX, value: {{ .tenantMax | int64 | quote }} }
{{- if .classes }}
- { name: MARGAY_SANDBOX_CLASSES_FILE, value: /margay/classes/classes.yaml }
{{- end }}
{{- end }}
{{- with .Values.workspaces }}
- { name: MARGAY_WORKSPACE_MAX_BYTES, value: {{ .contentMaxBytes | int64 | quote }} }
- { name: MARGAY_WORKSPACES_DORMANT_DAYS, value: {{ .dormantAfterDays | quote }} }
- { name: MARGAY_WORKSPACE_SESSION_DAYS, value: {{ .retention.sessionDays | quote }} }
- { name: MARGAY_WORKSPACE_SESSION_DAYS_BY_TENANT, value: {{ .retention.sessionDaysByTenant | toJson | quote }} }
- { name: MARGAY_WORKSPACE_PROJECT_DAYS, value: {{ .retention.projectDays | quote }} }
{{- if .templates }}
- { name: MARGAY_WORKSPACE_TEMPLATES_FILE, value: /margay/templates/templates.yaml }
{{- end }}
{{- end }}
{{- if .Values.toolExecutor.httpToolsSecret }}
- { name: MARGAY_HTTP_TOOLS_FILE, value: /margay/http-tools/tools.json }
{{- if not .Values.toolExecutor.httpToolsDirect }}
- { name: MARGAY_EGRESS_SERVICES_ADDRESS, value: '{{ include "margay.fullname" $ }}-egress:{{ (get (include "margay.ports" $ | fromYaml) "egress").services }}' }
{{- end }}
{{- end }}
{{- end -}}

{{- define "margay.runnerEnvironment" -}}
- { name: MARGAY_POOL, value: {{ .component.pool.name }} }
- { name: MARGAY_RUNNER_SLOTS, value: {{ .component.pool.slots | int64 | quote }} }
- { name: MARGAY_ISOLATED_RUNS, value: {{ .root.Values.runner.isolated.runs | int64 | quote }} }
- { name: MARGAY_ISOLATED_HEAP_MB, value: {{ .root.Values.runner.isolated.heapMb | int64 | quote }} }
{{- end -}}

{{- define "margay.modelEnvironment" -}}
{{- with .Values.models }}
{{- if .baseUrl }}
- { name: OPENAI_BASE_URL, value: {{ .baseUrl | quote }} }
{{- end }}
{{- if .existingSecret }}
- { name: OPENAI_API_KEY, valueFrom: { secretKeyRef: { name: {{ .existingSecret }}, key: api-key } } }
{{- end }}
{{- end }}
{{- end -}}

{{- define "margay.mongodbEnvironment" -}}
- { name: MARGAY_MONGODB_DATABASE, value: {{ .Values.mongodb.database | quote }} }
{{- if .Values.mongodb.enabled }}
- { name: MARGAY_MONGODB_URL, value: 'mongodb://{{ include "margay.fullname" . }}-mongodb:27017/?directConnection=true' }
{{- else }}
- { name: MARGAY_MONGODB_URL, valueFrom: { secretKeyRef: { name: {{ .Values.mongodb.external.existingSecret }}, key: url } } }
{{- end }}
{{- end -}}

{{/* The key comes from files, so that no environment shows it. */}}
{{- define "margay.blobsEnvironment" -}}
{{- if eq .Values.blobs.driver "s3" }}
{{- with .Values.blobs.s3 }}
- { name: MARGAY_BLOB_DRIVER, value: s3 }
{{- if .endpoint }}
- { name: MARGAY_S3_ENDPOINT, value: {{ .endpoint | quote }} }
{{- end }}
- { name: MARGAY_S3_BUCKET, value: {{ .bucket | quote }} }
- { name: MARGAY_S3_REGION, value: {{ .region | quote }} }
{{- if ne .pathStyle "auto" }}
- { name: MARGAY_S3_PATH_STYLE, value: {{ eq .pathStyle "always" | toString | quote }} }
{{- end }}
- { name: MARGAY_S3_ACCESS_KEY_ID_FILE, value: /margay/blobs/access-key-id }
- { name: MARGAY_S3_SECRET_ACCESS_KEY_FILE, value: /margay/blobs/secret-access-key }
{{- end }}
{{- end }}
{{- end -}}

{{- define "margay.natsEnvironment" -}}
{{- if .Values.nats.enabled }}
- { name: NATS_PASSWORD, valueFrom: { secretKeyRef: { name: {{ include "margay.fullname" . }}-nats, key: password } } }
- { name: MARGAY_NATS_URL, value: 'nats://margay:$(NATS_PASSWORD)@{{ include "margay.fullname" . }}-nats:4222' }
{{- else }}
- { name: MARGAY_NATS_URL, valueFrom: { secretKeyRef: { name: {{ .Values.nats.external.existingSecret }}, key: url } } }
{{- end }}
{{- end -}}
