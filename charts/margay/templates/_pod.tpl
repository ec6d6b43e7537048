{{/* The pod of a component: (dict "root" $ "component" …). */}}

{{- define "margay.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $own := get $values .component.section -}}
{{- $scheduling := mergeOverwrite (deepCopy $values.pods.scheduling) $own.scheduling -}}
metadata:
  labels:
    {{- include "margay.labels" (dict "root" .root "name" .component.name) | nindent 4 }}
    {{- with .component.pool }}
    margay.dev/pool: {{ .name }}
    {{- end }}
    {{- with $values.pods.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $annotations := deepCopy $values.pods.annotations }}
  {{- if has "tool-executor" .component.services }}
  {{- /* Both are read at the start. */}}
  {{- range $name, $content := dict "classes" $values.sandbox.classes "templates" $values.workspaces.templates }}
  {{- if $content }}
  {{- $annotations = set $annotations (printf "margay.dev/%s" $name) (toJson $content | sha256sum | trunc 16) }}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "margay.fullname" .root }}-{{ .component.name }}
  automountServiceAccountToken: {{ ternary "true" "false" (has "tool-executor" .component.services) }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $own.graceSeconds }}
  {{- include "margay.pullSecrets" .root | nindent 2 }}
  {{- include "margay.podSecurity" .root | nindent 2 }}
  {{- include "margay.spread" . | nindent 2 }}
  {{- with $scheduling }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if and (has "session" .component.services) $values.mongodb.enabled }}
  initContainers:
    {{- include "margay.prepareStore" . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .component.name }}
      image: {{ include "margay.image" .root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [--services, {{ join "," .component.services | quote }}]
      env:
        {{- include "margay.environment" . | nindent 8 }}
      ports:
        {{- include "margay.containerPorts" . | nindent 8 }}
      {{- include "margay.probes" . | nindent 6 }}
      {{- if or (has "gateway" .component.services) (has "egress" .component.services) }}
      # Load balancers hear of the end before the port closes.
      lifecycle: { preStop: { sleep: { seconds: 5 } } }
      {{- end }}
      resources:
        {{- toYaml $own.resources | nindent 8 }}
      {{- include "margay.containerSecurity" . | nindent 6 }}
      volumeMounts:
        {{- include "margay.mounts" . | nindent 8 }}
  volumes:
    {{- include "margay.volumes" . | nindent 4 }}
{{- end -}}

{{- define "margay.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* As Pod Security "restricted" demands. */}}
{{- define "margay.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.pods.runAsUser }}
  runAsGroup: {{ .Values.pods.runAsUser }}
  fsGroup: {{ .Values.pods.runAsUser }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "margay.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}

{{/* Over zones and hosts, of one rollout at a time. */}}
{{- define "margay.spread" -}}
topologySpreadConstraints:
  {{- $context := . }}
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "margay.workloadSelector" $context | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* What selects the pods of one workload: a component, or one pool of runners. */}}
{{- define "margay.workloadSelector" -}}
{{ include "margay.selector" (dict "root" .root "name" .component.name) }}
{{- with .component.pool }}
margay.dev/pool: {{ .name }}
{{- end }}
{{- end -}}

{{- define "margay.containerPorts" -}}
- { name: management, containerPort: 9464 }
{{- $ports := include "margay.ports" . | fromYaml -}}
{{- range .component.services }}
{{- with get $ports . }}
- { name: {{ .name }}, containerPort: {{ .port }} }
{{- with .services }}
- { name: services, containerPort: {{ . }} }
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Liveness asks no dependency; a process whose loop stands still answers nothing (docs/operating.md). */}}
{{- define "margay.probes" -}}
startupProbe:
  httpGet: { path: /startupz, port: management }
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /livez, port: management }
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 3
readinessProbe:
  httpGet: { path: /readyz, port: management }
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

{{/* Whether a component reads and writes the bucket. */}}
{{- define "margay.readsBlobs" -}}
{{- if and (eq .root.Values.blobs.driver "s3") (or (has "session" .component.services) (has "tool-executor" .component.services)) -}}
true
{{- end -}}
{{- end -}}

{{- define "margay.blobsVolume" -}}
- name: blobs
  secret:
    secretName: {{ .Values.blobs.s3.existingSecret }}
    items:
      - { key: access-key-id, path: access-key-id }
      - { key: secret-access-key, path: secret-access-key }
{{- end -}}

{{- define "margay.mounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: keys, mountPath: /margay/keys, readOnly: true }
{{- if ne (include "margay.tlsMode" .root) "off" }}
- { name: tls, mountPath: /margay/tls, readOnly: true }
{{- end }}
{{- if include "margay.readsBlobs" . }}
- { name: blobs, mountPath: /margay/blobs, readOnly: true }
{{- end }}
{{- if has "session" .component.services }}
- { name: kek, mountPath: /margay/kek, readOnly: true }
{{- end }}
{{- if and (has "session" .component.services) (include "margay.firstKeySecret" .root) }}
- { name: first-key, mountPath: /margay/first-key, readOnly: true }
{{- end }}
{{- if has "tool-executor" .component.services }}
{{- if .root.Values.sandbox.classes }}
- { name: classes, mountPath: /margay/classes, readOnly: true }
{{- end }}
{{- if .root.Values.workspaces.templates }}
- { name: templates, mountPath: /margay/templates, readOnly: true }
{{- end }}
{{- if .root.Values.toolExecutor.httpToolsSecret }}
- { name: http-tools, mountPath: /margay/http-tools, readOnly: true }
{{- end }}
{{- end }}
{{- if has "egress" .component.services }}
# The whole folder: a change of the ConfigMap shows in it while the pod runs.
- { name: egress, mountPath: /margay/egress, readOnly: true }
{{- end }}
{{- if and (include "margay.egressAuthoritySecret" .root) (or (has "egress" .component.services) (has "tool-executor" .component.services)) }}
- { name: egress-ca, mountPath: /margay/egress-ca, readOnly: true }
{{- end }}
{{- if .root.Values.caSecret }}
- { name: ca, mountPath: /margay/ca, readOnly: true }
{{- end }}
{{- end -}}

{{- define "margay.volumes" -}}
- { name: tmp, emptyDir: { sizeLimit: 64Mi } }
- name: keys
  projected:
    sources:
      - secret:
          name: {{ include "margay.keysSecret" .root }}
          # Of each service only its own key.
          items:
            - { key: trust.json, path: trust.json }
            {{- range .component.services }}
            - { key: {{ . }}.key.pem, path: {{ . }}.key.pem }
            {{- end }}
      # There while keys are being replaced.
      - secret:
          name: {{ include "margay.keysSecret" .root }}
          optional: true
          items:
            {{- range .component.services }}
            - { key: {{ . }}.old.pem, path: {{ . }}.old.pem }
            - { key: {{ . }}.next.pem, path: {{ . }}.next.pem }
            {{- end }}
{{- if ne (include "margay.tlsMode" .root) "off" }}
- name: tls
  secret: { secretName: {{ include "margay.tlsSecret" . }} }
{{- end }}
{{- if include "margay.readsBlobs" . }}
{{ include "margay.blobsVolume" .root }}
{{- end }}
{{- if has "session" .component.services }}
- name: kek
  secret: { secretName: {{ include "margay.kekSecret" .root }}, items: [{ key: kek.json, path: kek.json }] }
{{- end }}
{{- if and (has "session" .component.services) (include "margay.firstKeySecret" .root) }}
- name: first-key
  secret: { secretName: {{ include "margay.firstKeySecret" .root }} }
{{- end }}
{{- if has "tool-executor" .component.services }}
{{- if .root.Values.sandbox.classes }}
- { name: classes, configMap: { name: {{ include "margay.fullname" .root }}-sandbox-classes } }
{{- end }}
{{- if .root.Values.workspaces.templates }}
- { name: templates, configMap: { name: {{ include "margay.fullname" .root }}-workspace-templates } }
{{- end }}
{{- if .root.Values.toolExecutor.httpToolsSecret }}
- { name: http-tools, secret: { secretName: {{ .root.Values.toolExecutor.httpToolsSecret }} } }
{{- end }}
{{- end }}
{{- if has "egress" .component.services }}
- { name: egress, configMap: { name: {{ include "margay.fullname" .root }}-egress } }
{{- end }}
{{- if and (include "margay.egressAuthoritySecret" .root) (or (has "egress" .component.services) (has "tool-executor" .component.services)) }}
- name: egress-ca
  secret:
    secretName: {{ include "margay.egressAuthoritySecret" .root }}
    # The key is for the proxy alone; sandboxes are given the certificate.
    items:
      - { key: ca.pem, path: ca.pem }
      {{- if has "egress" .component.services }}
      - { key: ca.key.pem, path: ca.key.pem }
      {{- end }}
{{- end }}
{{- if .root.Values.caSecret }}
- { name: ca, secret: { secretName: {{ .root.Values.caSecret }} } }
{{- end }}
{{- end -}}

{{/* Waits for the bundled store and makes a replica set of its one member, where it is none yet. */}}
{{- define "margay.prepareStore" -}}
- name: prepare-store
  image: {{ include "margay.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [prepare-store{{ with .root.Values.mongodb.replicaSet }}, --initiate, {{ . }}{{ end }}]
  env:
    - { name: HOME, value: /tmp }
    {{- include "margay.mongodbEnvironment" .root | nindent 4 }}
  resources:
    requests: { cpu: 10m, memory: 64Mi }
    limits: { memory: 256Mi }
  {{- include "margay.containerSecurity" . | nindent 2 }}
  volumeMounts:
    - { name: tmp, mountPath: /tmp }
{{- end -}}
