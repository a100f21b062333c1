{{/*
The processes: each line of the Procfile, what it needs and whom it speaks to. Not values: they follow from the code.

  needs    groups of settings and secrets, see _environment.tpl
  egress   whom it connects to, see networkpolicy.yaml
  http     where it answers: port, and the paths that say whether it lives and whether it is ready
  alive    it touches its file in each round, and answers with its metrics where `metrics` is true
  grace    seconds from SIGTERM to SIGKILL: more than it takes to end, see docs/deploy.md
*/}}
{{- define "headworks.processes" -}}
web:
  args: [python, -m, gunicorn, --bind, $(HEADWORKS_BIND), --worker-class, gthread, --workers, "1", --threads, "16", --graceful-timeout, "5", --no-control-socket, --access-logfile, "-", --access-logformat, '%(h)s %(t)s "%(m)s %(U)s %(H)s" %(s)s %(b)s %(M)sms', "app.web:create_app()"]
  needs: [database, broker, redis, keys, web, storage, suppliers, pipeline, refdata, kafka]
  egress: [postgresql, redis, broker, s3, kafka, identity]
  http: {port: 8000, live: /healthz, ready: /readyz, metrics: /metrics}
  grace: 30
parse:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, parse, -c, "1", -n, parse@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis, storage]
  egress: [postgresql, redis, broker, s3]
  alive: true
  metrics: true
  grace: 30
promote:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, promote, -c, "2", -n, promote@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis]
  egress: [postgresql, redis, broker]
  alive: true
  metrics: true
  grace: 30
upkeep:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, "intake,cleanup", -c, "1", -n, upkeep@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis, storage, drop, suppliers, catalog]
  egress: [postgresql, redis, broker, s3]
  alive: true
  metrics: true
  grace: 30
relay:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, events, -c, "1", -n, relay@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis]
  egress: [postgresql, redis, broker]
  alive: true
  metrics: true
  grace: 30
webhooks:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, webhooks, -c, "1", -n, webhooks@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis, keys]
  egress: [postgresql, redis, broker, internet]
  alive: true
  metrics: true
  grace: 30
suppliers:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, suppliers, -c, "1", -n, suppliers@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis, suppliers]
  egress: [postgresql, redis, broker, s3]
  alive: true
  metrics: true
  grace: 30
catalog:
  args: [python, -m, celery, -A, workers.fleet, worker, -Q, catalog, -c, "2", -n, catalog@%h, -E, --without-gossip, --without-mingle, --loglevel, INFO]
  needs: [database, broker, redis, catalog]
  egress: [postgresql, redis, broker, s3, internet]
  alive: true
  metrics: true
  grace: 30
refdata-apply:
  args: [python, -m, workers.refdata, apply]
  needs: [redis, refdata, kafka]
  egress: [postgresql, redis, kafka]
  alive: true
  metrics: true
  grace: 90
refdata-relay:
  args: [python, -m, workers.refdata, relay]
  needs: [redis, refdata, kafka]
  egress: [postgresql, redis, kafka]
  alive: true
  metrics: true
  grace: 90
refdata-kafka-adapter:
  args: [python, -m, workers.refdata, kafka-adapter]
  needs: [redis, refdata, kafka]
  egress: [postgresql, redis, kafka]
  alive: true
  metrics: true
  grace: 90
refdata-query:
  args: [python, -m, workers.refdata, query]
  needs: [redis, key, refdata, reads, kafka]
  egress: [postgresql, redis, kafka, identity]
  http: {port: 8093, live: /actuator/health/liveness, ready: /actuator/health/readiness, metrics: /actuator/prometheus}
  grace: 90
beat:
  args: [python, -m, celery, -A, workers.fleet, beat, --schedule, $(HEADWORKS_DATA_DIR)/beat-schedule, --pidfile=, --loglevel, INFO]
  needs: [database, broker, redis]
  egress: [broker]
  alive: true
  single: true
  grace: 30
flower:
  args: [python, -m, workers.flower, --address=$(HEADWORKS_FLOWER_ADDRESS), --port=$(HEADWORKS_FLOWER_PORT), --max_tasks=5000, --purge_offline_workers=600]
  needs: [database, broker, redis, flower]
  egress: [broker]
  single: true
  grace: 30
{{- end -}}

{{/* The processes that this release has, with their values, as YAML. */}}
{{- define "headworks.wanted" -}}
{{- $all := include "headworks.processes" . | fromYaml -}}
{{- $found := dict -}}
{{- range $name, $process := $all -}}
{{- $isRefdata := hasPrefix "refdata-" $name -}}
{{- if and (or (ne $name "flower") $.Values.flower.enabled) (or (not $isRefdata) $.Values.refdata.enabled) -}}
{{- $_ := set $found $name (merge (deepCopy $process) (deepCopy (index $.Values.processes $name))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* How many of a process run at least. */}}
{{- define "headworks.fewest" -}}
{{- $scaling := .autoscaling | default dict -}}
{{- if .single }}1{{ else if $scaling.enabled }}{{ $scaling.minReplicas }}{{ else }}{{ .replicas }}{{ end -}}
{{- end -}}
