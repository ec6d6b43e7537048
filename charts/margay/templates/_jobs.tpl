{{/*
The pod of a command that works on the store: (dict "root" $ "name" "backup" "args" (list …) "resources" {…}). With `claim`,
that volume is mounted at /margay/backup.
*/}}
{{- define "margay.storeJobPod" -}}
{{- $values := .root.Values -}}
restartPolicy: Never
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "margay.pullSecrets" .root }}
{{ include "margay.podSecurity" .root }}
{{- with $values.pods.scheduling }}
{{ toYaml . }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "margay.image" .root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{ toJson .args }}
    env:
      - { name: HOME, value: /tmp }
      {{- include "margay.mongodbEnvironment" .root | nindent 6 }}
      {{- if $values.caSecret }}
      - { name: NODE_EXTRA_CA_CERTS, value: /margay/ca/ca.crt }
      {{- end }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    {{- include "margay.containerSecurity" .root | nindent 4 }}
    volumeMounts:
      - { name: tmp, mountPath: /tmp }
      {{- if .claim }}
      - { name: backup, mountPath: /margay/backup }
      {{- end }}
      {{- if $values.caSecret }}
      - { name: ca, mountPath: /margay/ca, readOnly: true }
      {{- end }}
volumes:
  - { name: tmp, emptyDir: { sizeLimit: 256Mi } }
  {{- if .claim }}
  - { name: backup, persistentVolumeClaim: { claimName: {{ .claim }} } }
  {{- end }}
  {{- if $values.caSecret }}
  - { name: ca, secret: { secretName: {{ $values.caSecret }} } }
  {{- end }}
{{- end -}}
