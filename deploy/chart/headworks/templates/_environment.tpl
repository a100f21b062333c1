{{/*
The environment of one process, as YAML. Takes a dict: root, and needs (the groups of _processes.tpl).
A secret is a reference, to the chart's own Secret where a value was given as text, else to an existing one.
*/}}
{{- define "headworks.environment" -}}
{{- $root := .root -}}
{{- $v := .root.Values -}}
{{- $shared := "/shared" -}}
- {name: HEADWORKS_DATA_DIR, value: /data}
- {name: HEADWORKS_ALIVE_FILE, value: /data/alive}
- {name: PROMETHEUS_MULTIPROC_DIR, value: /metrics}
- {name: REMAP_SIGTERM, value: SIGQUIT}
{{- if .metrics }}
- {name: HEADWORKS_METRICS_BIND, value: "0.0.0.0:9464"}
{{- end }}
{{- if $v.tracing.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ $v.tracing.endpoint | quote }}}
{{- end }}
{{- range .needs }}
{{- if eq . "web" }}
- {name: HEADWORKS_BIND, value: "0.0.0.0:8000"}
- {name: HEADWORKS_URL, value: {{ $v.url | quote }}}
- {name: HEADWORKS_TRUSTED_PROXIES, value: {{ $v.trustedProxies | quote }}}
{{- else if eq . "storage" }}
- {name: HEADWORKS_STORAGE_URL, value: {{ default (printf "file://%s/files" $shared) $v.storageUrl | quote }}}
{{- else if eq . "drop" }}
- {name: HEADWORKS_DROP_DIR, value: {{ $shared }}/drop}
{{- else if eq . "suppliers" }}
- {name: HEADWORKS_SUPPLIERS_DIR, value: {{ $shared }}/etl_data/raw_v1}
- {name: HEADWORKS_SUPPLIER_CONFIGS_DIR, value: /etc/headworks/suppliers}
{{- with $v.suppliers.stateUrl }}
- {name: HEADWORKS_SUPPLIERS_STATE_URL, value: {{ . | quote }}}
{{- end }}
{{- else if eq . "catalog" }}
- {name: HEADWORKS_CATALOG_ENV, value: {{ $v.catalog.env }}}
- {name: HEADWORKS_CATALOG_RAW_URL, value: {{ default (printf "file://%s/raw" $shared) $v.catalog.rawUrl | quote }}}
{{- else if eq . "refdata" }}
{{- if $v.refdata.enabled }}
- {name: HEADWORKS_REFDATA_CONFIG, value: /etc/headworks/refdata/refdata.yaml}
{{- end }}
{{- else if eq . "reads" }}
- {name: HEADWORKS_REFDATA_BIND, value: "0.0.0.0:8093"}
- {name: HEADWORKS_REFDATA_SERVER, value: {{ $v.refdata.server }}}
- {name: HEADWORKS_REFDATA_READERS, value: {{ $v.refdata.readers | quote }}}
{{- else if eq . "flower" }}
- {name: HEADWORKS_FLOWER_ADDRESS, value: 127.0.0.1}
- {name: HEADWORKS_FLOWER_PORT, value: "5555"}
{{- end }}
{{- end }}
{{- if include "headworks.usesS3" . }}
- {name: AWS_DEFAULT_REGION, value: {{ $v.s3.region | quote }}}
{{- with $v.s3.endpointUrl }}
- {name: HEADWORKS_STORAGE_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- $needs := .needs }}
{{- $usesS3 := include "headworks.usesS3" . }}
{{- range $one := (include "headworks.secrets" $root | fromYamlArray) }}
{{- if or (has $one.need $needs) (and $usesS3 (eq $one.need "s3")) }}
- name: {{ $one.env }}
  valueFrom:
    secretKeyRef: {name: {{ $one.secret }}, key: {{ $one.key }}}
{{- end }}
{{- end }}
{{- range $name, $value := $v.extraEnv }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* Whether a process with these needs keeps anything in S3; empty: no. */}}
{{- define "headworks.usesS3" -}}
{{- $v := .root.Values -}}
{{- if or (and (has "storage" .needs) (hasPrefix "s3://" $v.storageUrl)) (and (has "suppliers" .needs) $v.suppliers.stateUrl) (and (has "catalog" .needs) $v.catalog.rawUrl) -}}
yes
{{- end -}}
{{- end -}}

{{/* Every secret as YAML: which need has it, its variable, where it stands; and its text where that was given. */}}
{{- define "headworks.secrets" -}}
{{- $v := .Values -}}
{{- $own := include "headworks.fullname" . -}}
{{- $rows := list
  (list "database" "HEADWORKS_DATABASE_URL" $v.postgresql "url" "key")
  (list "broker" "HEADWORKS_BROKER_URL" (ternary $v.rabbitmq $v.redis $v.rabbitmq.enabled) "url" "key")
  (list "redis" "HEADWORKS_REDIS_URL" $v.redis "url" "key")
  (list "keys" "HEADWORKS_SECRET" $v.app "secret" "secretKey")
  (list "keys" "HEADWORKS_API_KEY" $v.app "apiKey" "apiKeyKey")
  (list "key" "HEADWORKS_API_KEY" $v.app "apiKey" "apiKeyKey")
-}}
{{- if $v.s3.enabled -}}
{{- $rows = concat $rows (list
  (list "s3" "AWS_ACCESS_KEY_ID" $v.s3 "accessKeyId" "accessKeyIdKey")
  (list "s3" "AWS_SECRET_ACCESS_KEY" $v.s3 "secretAccessKey" "secretAccessKeyKey")) -}}
{{- end -}}
{{- if $v.kafka.enabled -}}
{{- $rows = append $rows (list "kafka" "KAFKA_BOOTSTRAP" $v.kafka "bootstrap" "key") -}}
{{- end -}}
{{- if $v.catalog.enabled -}}
{{- $rows = concat $rows (list
  (list "catalog" "HEADWORKS_CATALOG_APPLICATION_ID" $v.catalog "applicationId" "applicationIdKey")
  (list "catalog" "HEADWORKS_CATALOG_ACCESS_KEY" $v.catalog "accessKey" "accessKeyKey")) -}}
{{- end -}}
{{- if $v.pipeline.enabled -}}
{{- $rows = concat $rows (list
  (list "pipeline" "HEADWORKS_PIPELINE_DATABASE_URL" $v.pipeline "databaseUrl" "databaseKey")
  (list "pipeline" "HEADWORKS_PIPELINE_TOKENS" $v.pipeline "tokens" "tokensKey")) -}}
{{- end -}}
{{- if $v.refdata.enabled -}}
{{- $rows = append $rows (list "refdata" "HEADWORKS_REFDATA_DATABASE_URL" $v.refdata "databaseUrl" "databaseKey") -}}
{{- end -}}
{{- if $v.flower.enabled -}}
{{- $rows = append $rows (list "flower" "FLOWER_BASIC_AUTH" $v.flower "basicAuth" "key") -}}
{{- end -}}
{{- range $row := $rows -}}
{{- $section := index $row 2 -}}
{{- $text := index $section (index $row 3) -}}
{{- $elsewhere := default $v.existingSecret $section.existingSecret }}
- need: {{ index $row 0 }}
  env: {{ index $row 1 }}
  secret: {{ ternary $own $elsewhere (not (empty $text)) }}
  key: {{ index $section (index $row 4) }}
  text: {{ $text | quote }}
{{- end -}}
{{- if $v.refdata.enabled -}}
{{- range $v.refdata.extraSecretEnv }}
- need: refdata
  env: {{ .name }}
  secret: {{ .secret }}
  key: {{ .key }}
  text: ""
{{- end -}}
{{- end -}}
{{- end -}}
