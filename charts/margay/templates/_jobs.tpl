{{/*
The pod of a command that works on the store: (dict "root" $ "name" "backup" "args" (list …) "resources" {…}). With `claim`,
that volume is mounted at /margay/backup; with `blobs`, the bucket is read where there is one.
*/}}
{{- define "margay.storeJobPod" -}}
{{- $values := .root.Values -}}
{{- $blobs := and .blobs (eq $values.blobs.driver "s3") -}}
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
      {{- if $blobs }}
      {{- include "margay.blobsEnvironment" .root | trim | nindent 6 }}
      {{- end }}
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
      {{- if $blobs }}
      - { name: blobs, mountPath: /margay/blobs, readOnly: true }
      {{- end }}
      {{- if $values.caSecret }}
      - { name: ca, mountPath: /margay/ca, readOnly: true }
      {{- end }}
volumes:
  - { name: tmp, emptyDir: { sizeLimit: 256Mi } }
  {{- if .claim }}
  - { name: backup, persistentVolumeClaim: { claimName: {{ .claim }} } }
  {{- end }}
  {{- if $blobs }}
  {{- include "margay.blobsVolume" .root | nindent 2 }}
  {{- end }}
  {{- if $values.caSecret }}
  - { name: ca, secret: { secretName: {{ $values.caSecret }} } }
  {{- end }}
{{- end -}}
