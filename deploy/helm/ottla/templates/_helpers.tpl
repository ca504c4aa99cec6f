{{- define "ottla.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "ottla.selector" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ottla.labels" -}}
{{ include "ottla.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* A UUID in Kafka's spelling, the same for each rendering: the base64 of 16 hexadecimal digits has 22 characters. */}}
{{- define "ottla.uuid" -}}
{{- . | sha256sum | trunc 16 | b64enc | trimSuffix "==" -}}
{{- end -}}

{{- define "ottla.domain" -}}
{{ include "ottla.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "ottla.bootstrap" -}}
{{- $name := include "ottla.name" . -}}
{{- $domain := include "ottla.domain" . -}}
{{- range $node := until (int .Values.controllers) -}}
{{- if $node }},{{ end }}{{ $name }}-{{ $node }}.{{ $domain }}:9093
{{- end -}}
{{- end -}}

{{- define "ottla.voters" -}}
{{- $name := include "ottla.name" . -}}
{{- $domain := include "ottla.domain" . -}}
{{- $release := printf "%s/%s" .Release.Namespace .Release.Name -}}
{{- range $node := until (int .Values.controllers) -}}
{{- if $node }},{{ end }}{{ $node }}@{{ $name }}-{{ $node }}.{{ $domain }}:9093:{{ include "ottla.uuid" (printf "%s/%d" $release $node) }}
{{- end -}}
{{- end -}}

{{/* Settings of the chart, replaced by those of `config`. The script adds what differs between nodes. */}}
{{- define "ottla.config" -}}
{{- $copies := min 3 (int .Values.replicas) -}}
{{- $defaults := dict
    "log.dirs" "/var/lib/ottla"
    "inter.broker.listener.name" "CLIENT"
    "controller.listener.names" "CONTROLLER"
    "listener.security.protocol.map" "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    "controller.quorum.bootstrap.servers" (include "ottla.bootstrap" .)
    "controller.quorum.auto.join.enable" "true"
    "default.replication.factor" (toString $copies)
    "min.insync.replicas" (toString (max 1 (sub $copies 1))) -}}
{{- range $name, $value := merge (deepCopy .Values.config) $defaults }}
{{ $name }}={{ $value }}
{{- end }}
{{- end -}}
