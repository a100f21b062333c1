{{- define "headworks.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "headworks.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: headworks
{{ include "headworks.selector" . }}
{{- end -}}

{{- define "headworks.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headworks.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "headworks.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "headworks.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What no container of this image may do. */}}
{{- define "headworks.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "headworks.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Values that contradict each other are refused before anything is made. */}}
{{- define "headworks.check" -}}
{{- $isFile := not (hasPrefix "s3://" .Values.storageUrl) -}}
{{- if and $isFile (not .Values.sharedVolume.enabled) -}}
{{- fail "Uploaded files need a place that every pod sees: set storageUrl to s3://bucket/prefix, or sharedVolume.enabled." -}}
{{- end -}}
{{- if and (not $isFile) (not .Values.s3.enabled) -}}
{{- fail "storageUrl is in S3: set s3.enabled, and its credentials." -}}
{{- end -}}
{{- range $name := list "suppliers.stateUrl" "catalog.rawUrl" -}}
{{- $parts := splitList "." $name -}}
{{- $url := index (index $.Values (first $parts)) (last $parts) -}}
{{- if and $url (not $.Values.s3.enabled) -}}
{{- fail (printf "%s is in S3: set s3.enabled, and its credentials." $name) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.sharedVolume.enabled -}}
{{- fail "The inboxes of the suppliers and the drop folder are folders of the shared volume: set sharedVolume.enabled." -}}
{{- end -}}
{{- if and (gt (int (index .Values.processes "suppliers").replicas) 1) (not .Values.suppliers.stateUrl) -}}
{{- fail "More than one process of the suppliers take turns by leases, which need suppliers.stateUrl in S3." -}}
{{- end -}}
{{- if and .Values.refdata.config.kafka (not .Values.kafka.enabled) -}}
{{- fail "refdata.config names Kafka: set kafka.enabled." -}}
{{- end -}}
{{- end -}}
