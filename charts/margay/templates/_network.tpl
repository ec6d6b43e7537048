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
{{- range $service := .component.services }}
{{- $callers := without (include "margay.callers" (merge (dict "service" $service) $context) | fromYamlArray | uniq) $context.component.name }}
{{- if $callers }}
- from:
    {{- range $callers }}
    - {{ include "margay.podPeer" (dict "root" $context.root "name" .) }}
    {{- end }}
  ports: [{ protocol: TCP, port: {{ (get $ports $service).port }} }]
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
      ports: [{ protocol: TCP, port: {{ (get $ports $service).port }} }]
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
{{- with .Values.networkPolicy.modelCidrs -}}
- to:
    {{- range . }}
    - {{ include "margay.block" (dict "cidr" . "except" $.Values.networkPolicy.modelExcept) }}
    {{- end }}
  ports: {{ include "margay.policyPorts" $.Values.networkPolicy.modelPorts }}
{{- end -}}
{{- end -}}

{{/* A range without what is taken out of it; only ranges of its own kind can be. */}}
{{- define "margay.block" -}}
{{- $isSix := contains ":" .cidr -}}
{{- $except := list -}}
{{- range .except -}}{{- if eq (contains ":" .) $isSix -}}{{- $except = append $except . -}}{{- end -}}{{- end -}}
{ ipBlock: { cidr: {{ .cidr | quote }}{{ if $except }}, except: {{ toJson $except }}{{ end }} } }
{{- end -}}

{{- define "margay.needs.apiServer" -}}
{{- with .Values.networkPolicy.apiServerCidrs -}}
- to:
    {{- range . }}
    - { ipBlock: { cidr: {{ . | quote }} } }
    {{- end }}
  ports: {{ include "margay.policyPorts" $.Values.networkPolicy.apiServerPorts }}
{{- end -}}
{{- end -}}

{{- define "margay.needs.sandboxes" -}}
- to:
    - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: {{ .Values.workspaces.namespace }} } }
      podSelector: { matchLabels: { app.kubernetes.io/managed-by: margay, margay.dev/install: {{ include "margay.install" . }}, margay.dev/component: sandbox } }
  ports: [{ protocol: TCP, port: 7777 }]
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
        {{- if and (eq .server "mongodb") .root.Values.backup.enabled }}
        - {{ include "margay.podPeer" (dict "root" .root "name" "backup") }}
        {{- end }}
      ports: [{ protocol: TCP, port: {{ ternary 27017 4222 (eq .server "mongodb") }} }]
{{- end -}}
