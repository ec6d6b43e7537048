{{/* Names and labels. */}}

{{- define "margay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 28 | trimSuffix "-" -}}
{{- else if contains "margay" .Release.Name -}}
{{- .Release.Name | trunc 28 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-margay" (.Release.Name | trunc 21 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of one component; never changes. Takes (dict "root" $ "name" …). */}}
{{- define "margay.selector" -}}
app.kubernetes.io/name: margay
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{/* Labels of an object of one component. */}}
{{- define "margay.labels" -}}
{{ include "margay.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: margay
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "margay.image" -}}
{{- include "margay.imageOf" (dict "root" . "image" .Values.image) -}}
{{- end -}}

{{- define "margay.imageOf" -}}
{{- if .image.digest -}}
{{ printf "%s@%s" .image.repository .image.digest }}
{{- else -}}
{{ printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- define "margay.keysSecret" -}}
{{- if eq .Values.secrets.mode "existing" -}}
{{- .Values.secrets.existingSecret -}}
{{- else -}}
{{- include "margay.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{/* The secret with the key-encryption keys. */}}
{{- define "margay.kekSecret" -}}
{{- .Values.secrets.kek.existingSecret | default (printf "%s-kek" (include "margay.fullname" .)) -}}
{{- end -}}

{{/* Empty: there is no first API key. */}}
{{- define "margay.egressAuthoritySecret" -}}
{{- if or .Values.secrets.existingEgressAuthority (eq .Values.secrets.mode "generated") -}}
{{- .Values.secrets.existingEgressAuthority | default (printf "%s-egress-ca" (include "margay.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{- define "margay.firstKeySecret" -}}
{{- if .Values.secrets.existingFirstKey -}}
{{- .Values.secrets.existingFirstKey -}}
{{- else if eq .Values.secrets.mode "generated" -}}
{{- include "margay.fullname" . }}-first-key
{{- end -}}
{{- end -}}

{{/* Whether an optional API is used: (dict "root" $ "wanted" "auto" "api" "group/version"). */}}
{{- define "margay.uses" -}}
{{- if or (eq .wanted "always") (and (eq .wanted "auto") (.root.Capabilities.APIVersions.Has .api)) -}}
true
{{- end -}}
{{- end -}}

{{/* A quantity of memory in whole MiB; 0 where there is none. */}}
{{- define "margay.mebibytes" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[0-9.]+" $text | default "0" | float64 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $factors := dict "Ki" 0.0009765625 "Mi" 1.0 "Gi" 1024.0 "Ti" 1048576.0 "k" 0.00095367431640625 "M" 0.95367431640625 "G" 953.67431640625 -}}
{{- $factor := get $factors $unit | default 0.00000095367431640625 -}}
{{- floor (mulf $number $factor) | int -}}
{{- end -}}

{{/* Tells the sandboxes of this installation from those of others. */}}
{{- define "margay.install" -}}
{{- printf "%s.%s" .Release.Namespace (include "margay.fullname" .) | trunc 63 | trimSuffix "-" | trimSuffix "." -}}
{{- end -}}
