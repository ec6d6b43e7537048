{{/* Rules of network policies, made from the table "margay.edges". */}}

{{- define "margay.podPeer" -}}
{ podSelector: { matchLabels: {{ include "margay.selector" . | fromYaml | toJson }} } }
{{- end -}}

{{/* Names are asked of the cluster's own resolvers only, or DNS would carry anything anywhere. */}}
{{- define "margay.dnsRule" -}}
{{- with .Values.networkPolicy.dns -}}
- to:
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ .namespace }} } }
      podSelector: { matchLabels: {{ toJson .podLabels }} }
    {{- range .cidrs }}
    - { ipBlock: { cidr: {{ . | quote }} } }
    {{- end }}
  ports: [{ protocol: UDP, port: 53 }, { protocol: TCP, port: 53 }]
{{- end -}}
{{- end -}}

{{/* Which components may call a service here: those whose services do, but for the component itself. */}}
{{- define "margay.callers" -}}
{{- $context := . -}}
{{- range $caller, $edges := include "margay.edges" . | fromYaml -}}
{{- if has $context.service $edges.calls }}
- {{ include "margay.hostOf" (dict "root" $context.root "service" $caller) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Which components need something: (dict "root" $ "need" "nats"). */}}
{{- define "margay.needing" -}}
{{- $context := . -}}
{{- range $service, $edges := include "margay.edges" . | fromYaml -}}
{{- if has $context.need $edges.needs }}
- {{ include "margay.hostOf" (dict "root" $context.root "service" $service) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Who may call a component, and where. */}}
{{- define "margay.ingressRules" -}}
{{- $context := . -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- $ports := include "margay.ports" . | fromYaml -}}
{{- with $policy.monitoringFrom }}
- from:
    {{- toYaml . | nindent 4 }}
  ports: [{ protocol: TCP, port: 9464 }]
{{- end }}
{{- if has "gateway" .component.services }}
- from:
    - {{ include "margay.podPeer" (dict "root" .root "name" "check") }}
    {{- with $policy.ingressFrom }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports: [{ protocol: TCP, port: 8080 }]
{{- end }}
{{- if has "egress" .component.services }}
- from:
    {{- range include "margay.workspaceNamespaces" .root | fromYamlArray }}
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ .name }} } }
      podSelector: { matchLabels: {{ include "margay.sandboxLabels" $context.root | fromYaml | merge (dict "margay.dev/egress" "proxy") | toJson }} }
    {{- end }}
  ports: [{ protocol: TCP, port: {{ $ports.egress.port }} }]
{{- end }}
{{- range $service := .component.services }}
{{- $callers := without (include "margay.callers" (merge (dict "service" $service) $context) | fromYamlArray | uniq) $context.component.name }}
{{- if $callers }}
- from:
    {{- range $callers }}
    - {{ include "margay.podPeer" (dict "root" $context.root "name" .) }}
    {{- end }}
  ports: [{ protocol: TCP, port: {{ (get $ports $service).services | default (get $ports $service).port }} }]
{{- end }}
{{- end }}
{{- end -}}

{{- define "margay.componentPolicy" -}}
{{- $context := . -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- $ports := include "margay.ports" . | fromYaml -}}
{{- $edges := include "margay.edges" . | fromYaml -}}
{{- $called := list -}}
{{- $needs := list -}}
{{- range .component.services -}}
{{- $called = concat $called (get $edges .).calls -}}
{{- $needs = concat $needs (get $edges .).needs -}}
{{- end -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "margay.fullname" .root }}-{{ .component.name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "margay.labels" (dict "root" .root "name" .component.name) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "margay.selector" (dict "root" .root "name" .component.name) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- with include "margay.ingressRules" . | trim }}
  ingress:
    {{- . | nindent 4 }}
  {{- end }}
  egress:
    {{- include "margay.dnsRule" .root | nindent 4 }}
    {{- range $service := $called | uniq | sortAlpha }}
    {{- $host := include "margay.hostOf" (dict "root" $context.root "service" $service) }}
    {{- if ne $host $context.component.name }}
    - to:
        - {{ include "margay.podPeer" (dict "root" $context.root "name" $host) }}
      ports: [{ protocol: TCP, port: {{ (get $ports $service).services | default (get $ports $service).port }} }]
    {{- end }}
    {{- end }}
    {{- range $need := $needs | uniq | sortAlpha }}
    {{- include (printf "margay.needs.%s" $need) $context.root | nindent 4 }}
    {{- end }}
    {{- if and .root.Values.observability.otlp.endpoint $policy.otlpTo }}
    - to:
        {{- toYaml $policy.otlpTo | nindent 8 }}
      ports: {{ include "margay.policyPorts" $policy.otlpPorts }}
    {{- end }}
{{- end -}}

{{- define "margay.policyPorts" -}}
{{- $ports := list -}}
{{- range . -}}{{- $ports = append $ports (dict "protocol" "TCP" "port" (int .)) -}}{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{- define "margay.needs.mongodb" -}}
- to:
    {{- if .Values.mongodb.enabled }}
    - {{ include "margay.podPeer" (dict "root" . "name" "mongodb") }}
  ports: [{ protocol: TCP, port: 27017 }]
    {{- else }}
    {{- toYaml .Values.networkPolicy.mongodbTo | nindent 4 }}
  ports: {{ include "margay.policyPorts" .Values.networkPolicy.mongodbPorts }}
    {{- end }}
{{- end -}}

{{- define "margay.needs.blobs" -}}
{{- if eq .Values.blobs.driver "s3" -}}
- to:
    {{- toYaml .Values.networkPolicy.blobsTo | nindent 4 }}
  ports: {{ include "margay.policyPorts" .Values.networkPolicy.blobsPorts }}
{{- end -}}
{{- end -}}

{{- define "margay.needs.nats" -}}
- to:
    {{- if .Values.nats.enabled }}
    - {{ include "margay.podPeer" (dict "root" . "name" "nats") }}
  ports: [{ protocol: TCP, port: 4222 }]
    {{- else }}
    {{- toYaml .Values.networkPolicy.natsTo | nindent 4 }}
  ports: {{ include "margay.policyPorts" .Values.networkPolicy.natsPorts }}
    {{- end }}
{{- end -}}

{{- define "margay.needs.models" -}}
{{- with .Values.networkPolicy -}}
{{- if or .modelCidrs .modelTo -}}
- to:
    {{- range .modelCidrs }}
    - {{ include "margay.block" (dict "cidr" . "except" (concat $.Values.networkPolicy.modelExcept $.Values.egress.clusterCidrs)) }}
    {{- end }}
    {{- with .modelTo }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports: {{ include "margay.policyPorts" .modelPorts }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Internet: nothing of the machine, the link, private networks or the cluster; and the exceptions of the operator. */}}
{{- define "margay.needs.public" -}}
- to:
    - {{ include "margay.block" (dict "cidr" "0.0.0.0/0" "except" (concat (include "margay.specialRanges" . | fromYamlArray) .Values.egress.clusterCidrs)) }}
    - {{ include "margay.block" (dict "cidr" "2000::/3" "except" (concat (include "margay.specialRanges" . | fromYamlArray) .Values.egress.clusterCidrs)) }}
  ports: [{ protocol: TCP, port: 1, endPort: 65535 }]
{{- range .Values.egress.private }}
- to: [{ ipBlock: { cidr: {{ .cidr | quote }} } }]
  ports: {{ include "margay.policyPorts" .ports }}
{{- end }}
{{- with .Values.networkPolicy.egressTo }}
- to:
    {{- toYaml . | nindent 4 }}
  ports: {{ include "margay.policyPorts" $.Values.networkPolicy.egressPorts }}
{{- end }}
{{- end -}}

{{/* Addresses that are not public, as services/egress has them. */}}
{{- define "margay.specialRanges" -}}
['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24',
 '192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/3',
 '2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']
{{- end -}}

{{/*
A range without what is taken out of it. Only from the widest ones: Kubernetes refuses an exception that lies outside, and
templates can't tell; whoever names a narrower range means it.
*/}}
{{- define "margay.block" -}}
{{- $pattern := get (dict "0.0.0.0/0" "^[0-9.]+/" "::/0" ":" "2000::/3" "^[23][0-9a-fA-F]{3}:") .cidr -}}
{{- $except := list -}}
{{- if $pattern -}}
{{- range .except -}}{{- if regexMatch $pattern . -}}{{- $except = append $except . -}}{{- end -}}{{- end -}}
{{- end -}}
{ ipBlock: { cidr: {{ .cidr | quote }}{{ if $except }}, except: {{ $except | uniq | toJson }}{{ end }} } }
{{- end -}}

{{- define "margay.needs.apiServer" -}}
{{- with .Values.networkPolicy.apiServerCidrs -}}
- to:
    {{- range . }}
    - {{ include "margay.block" (dict "cidr" . "except" (list "169.254.0.0/16")) }}
    {{- end }}
  ports: {{ include "margay.policyPorts" $.Values.networkPolicy.apiServerPorts }}
{{- end -}}
{{- end -}}

{{/* What the operator's tools call themselves; others go out by egress. */}}
{{- define "margay.needs.httpTools" -}}
{{- with .Values.networkPolicy -}}
{{- if and $.Values.toolExecutor.httpToolsSecret $.Values.toolExecutor.httpToolsDirect .httpToolsTo -}}
- to:
    {{- toYaml .httpToolsTo | nindent 4 }}
  ports: {{ include "margay.policyPorts" .httpToolsPorts }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "margay.needs.sandboxes" -}}
- to:
    {{- range include "margay.workspaceNamespaces" . | fromYamlArray }}
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ .name }} } }
      podSelector: { matchLabels: {{ include "margay.sandboxLabels" $ | fromYaml | toJson }} }
    {{- end }}
  ports: [{ protocol: TCP, port: 7777 }]
{{- end -}}

{{/* What tool-executor writes on the sandboxes of this installation. */}}
{{- define "margay.sandboxLabels" -}}
app.kubernetes.io/managed-by: margay
margay.dev/install: {{ include "margay.install" . }}
margay.dev/component: sandbox
{{- end -}}

{{/* A bundled server: called by whoever needs it, calls nobody. */}}
{{- define "margay.serverPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "margay.fullname" .root }}-{{ .server }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "margay.labels" (dict "root" .root "name" .server) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "margay.selector" (dict "root" .root "name" .server) | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        {{- range include "margay.needing" (dict "root" .root "need" .server) | fromYamlArray | uniq }}
        - {{ include "margay.podPeer" (dict "root" $.root "name" .) }}
        {{- end }}
        {{- if and (eq .server "mongodb") (or .root.Values.backup.enabled .root.Values.restore.enabled) }}
        - {{ include "margay.podPeer" (dict "root" .root "name" "backup") }}
        {{- end }}
      ports: [{ protocol: TCP, port: {{ ternary 27017 4222 (eq .server "mongodb") }} }]
{{- end -}}
