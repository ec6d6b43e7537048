{{/* Certificates by which services know each other (docs/installing.md). */}}

{{/* Who makes them: certManager, generated, existing or off. */}}
{{- define "margay.tlsMode" -}}
{{- $mode := toString .Values.tls.mode -}}
{{- if eq $mode "auto" -}}
{{- ternary "certManager" "generated" (.Capabilities.APIVersions.Has "cert-manager.io/v1") -}}
{{- else -}}
{{- ternary "off" $mode (eq $mode "false") -}}
{{- end -}}
{{- end -}}

{{/* The secret of one kind of pod: (dict "root" $ "component" …). */}}
{{- define "margay.tlsSecret" -}}
{{- .root.Values.tls.existingSecret | default (printf "%s-tls" (include "margay.fullname" .root)) }}-{{ .component.name }}
{{- end -}}

{{/* The kinds of pods, each with the services that it speaks for. */}}
{{- define "margay.peers" -}}
{{- range include "margay.components" . | fromYamlArray }}
{{- if .isFirst }}
- { name: {{ .name }}, services: {{ toJson .services }} }
{{- end }}
{{- end }}
{{- end -}}

{{/* Secrets of certificates that the hook makes, as keys; the first is that of the authority, which no pod mounts. */}}
{{- define "margay.generatedCertificates" -}}
{{- if eq (include "margay.tlsMode" .) "generated" }}
{{ include "margay.fullname" . }}-tls-ca: {}
{{- range $peer := include "margay.peers" . | fromYamlArray }}
{{ include "margay.tlsSecret" (dict "root" $ "component" $peer) }}: {}
{{- end }}
{{- end }}
{{- end -}}
