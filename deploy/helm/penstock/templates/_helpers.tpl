{{/* The name of everything in a release. */}}
{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-penstock" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "penstock.selectorLabels" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "penstock.labels" -}}
{{ include "penstock.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Behind the name of a pod: where other pods find it. */}}
{{- define "penstock.podDomain" -}}
{{ include "penstock.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* All members by their peer addresses, as in 0=penstock-0.penstock-nodes...:9095. */}}
{{- define "penstock.cluster" -}}
{{- $name := include "penstock.name" . -}}
{{- $domain := include "penstock.podDomain" . -}}
{{- $members := list -}}
{{- range $node := until (int .Values.nodes) -}}
{{- $members = append $members (printf "%d=%s-%d.%s:9095" $node $name $node $domain) -}}
{{- end -}}
{{- join "," $members -}}
{{- end -}}

{{/* Names in URLs of HTTP clients: those of the service, and that of the pod. */}}
{{- define "penstock.httpHosts" -}}
{{- $service := include "penstock.name" . -}}
{{- $namespaced := printf "%s.%s" $service .Release.Namespace -}}
{{- $inside := printf "%s.svc" $namespaced -}}
{{- $full := printf "%s.%s" $inside .Values.clusterDomain -}}
{{- join "," (list $service $namespaced $inside $full (printf "$(POD_NAME).%s" (include "penstock.podDomain" .))) -}}
{{- end -}}

{{- define "penstock.settings" -}}
{{- $pairs := list -}}
{{- range $name, $value := .Values.settings -}}
{{- $text := toString $value -}}
{{- if kindIs "float64" $value -}}
{{- $text = printf "%v" (ternary ($value | int64) $value (eq (floor $value) $value)) -}}
{{- end -}}
{{- $pairs = append $pairs (printf "%s=%s" $name $text) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{- define "penstock.secretName" -}}
{{- if .Values.peerSecret.existingSecret -}}
{{- .Values.peerSecret.existingSecret -}}
{{- else -}}
{{- $given := required "Give all nodes one secret: peerSecret.existingSecret or peerSecret.value." .Values.peerSecret.value -}}
{{- include "penstock.name" . -}}
{{- end -}}
{{- end -}}
