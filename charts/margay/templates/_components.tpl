{{/*
What the chart installs. A component is a kind of pod; it runs one service, or several in mode combined. The tables below
say what each service listens on and whom it calls; everything else follows from them.
*/}}

{{/* The workloads: a list of {name, workload, section, services, pool?, isFirst}. Pools of runners share a name. */}}
{{- define "margay.components" -}}
{{- if eq .Values.mode "split" }}
- { name: gateway, workload: gateway, section: gateway, services: [gateway], isFirst: true }
- { name: session, workload: session, section: session, services: [session], isFirst: true }
- { name: tool-executor, workload: tool-executor, section: toolExecutor, services: [tool-executor], isFirst: true }
- { name: mcp-pool, workload: mcp-pool, section: mcpPool, services: [mcp-pool], isFirst: true }
- { name: ide-manager, workload: ide-manager, section: ideManager, services: [ide-manager], isFirst: true }
- { name: channel, workload: channel, section: channel, services: [channel], isFirst: true }
{{- else }}
- name: control
  workload: control
  section: control
  services: [gateway, session, tool-executor, mcp-pool, ide-manager, channel]
  isFirst: true
{{- end }}
- { name: egress, workload: egress, section: egress, services: [egress], isFirst: true }
{{- range $index, $pool := .Values.runner.pools }}
- name: agent-runner
  workload: agent-runner{{ if ne $pool.name "default" }}-{{ $pool.name }}{{ end }}
  section: runner
  services: [agent-runner]
  pool: {{ toJson $pool }}
  isFirst: {{ eq $index 0 }}
{{- end }}
{{- end -}}

{{/* Ports that services listen on, besides the management port 9464 of every pod; `services`: theirs has a door of its own. */}}
{{- define "margay.ports" -}}
gateway: { name: http, port: 8080 }
session: { name: grpc-session, port: 9090 }
tool-executor: { name: grpc-tools, port: 9091 }
mcp-pool: { name: grpc-mcp, port: 9092 }
ide-manager: { name: grpc-ide, port: 9093 }
channel: { name: grpc-channel, port: 9094 }
egress: { name: proxy, port: 3128, services: 3129 }
{{- end -}}

{{/* Which service calls which others, and what else it needs. The network policies are made from it. */}}
{{- define "margay.edges" -}}
gateway: { calls: [session, tool-executor, mcp-pool, ide-manager, channel], needs: [nats] }
session: { calls: [tool-executor], needs: [nats, mongodb, blobs] }
agent-runner: { calls: [session, tool-executor, mcp-pool], needs: [models] }
tool-executor: { calls: [session, egress], needs: [nats, mongodb, blobs, apiServer, sandboxes, httpTools] }
mcp-pool: { calls: [session, tool-executor], needs: [] }
ide-manager: { calls: [session, tool-executor], needs: [] }
channel: { calls: [session], needs: [] }
egress: { calls: [session, tool-executor], needs: [nats, public] }
{{- end -}}

{{/* The component that runs a service: (dict "root" $ "service" …). */}}
{{- define "margay.hostOf" -}}
{{- if or (eq .root.Values.mode "split") (has .service (list "agent-runner" "egress")) -}}
{{- .service -}}
{{- else -}}
control
{{- end -}}
{{- end -}}

{{/* What a component dials to reach a service: itself where it runs it, all replicas of the other one otherwise. */}}
{{- define "margay.addressOf" -}}
{{- $port := (get (include "margay.ports" . | fromYaml) .service).port -}}
{{- if has .service .component.services -}}
127.0.0.1:{{ $port }}
{{- else -}}
{{ include "margay.fullname" .root }}-{{ include "margay.hostOf" . }}:{{ $port }}
{{- end -}}
{{- end -}}

{{/* Replicas of a component, before anything scales it. */}}
{{- define "margay.replicas" -}}
{{- if .component.pool -}}{{ .component.pool.replicas }}{{- else -}}{{ (get .root.Values .component.section).replicas }}{{- end -}}
{{- end -}}

{{/* Who scales a component: `none`, `hpa` or `keda`. */}}
{{- define "margay.scaler" -}}
{{- if .component.pool -}}
{{- .root.Values.runner.autoscaling.driver -}}
{{- else if and (eq .component.name "gateway") .root.Values.gateway.autoscaling.enabled -}}
hpa
{{- else -}}
none
{{- end -}}
{{- end -}}
