"""Celery's settings, each with its reason. The broker's address comes from the environment."""

from celery.schedules import crontab

# Queues: one for each kind of work, so that a long parse never holds up a promotion.
task_default_queue = "cleanup"
task_create_missing_queues = True
task_routes = {
    "uploads.scan_drop": {"queue": "intake"},
    "uploads.parse": {"queue": "parse"},
    "uploads.promote": {"queue": "promote"},
    "uploads.relay": {"queue": "events"},
    "uploads.audit": {"queue": "events"},
    "uploads.deliver": {"queue": "webhooks"},  # not "events": a slow receiver must not hold up the relay
    "uploads.cleanup": {"queue": "cleanup"},
    "suppliers.scan": {"queue": "intake"},
    "suppliers.run": {"queue": "suppliers"},  # a long list must not hold up anything else
    "suppliers.expire": {"queue": "suppliers"},
    "catalog.begin_net": {"queue": "cleanup"},
    "catalog.advance": {"queue": "cleanup"},
    "catalog.job_*": {"queue": "catalog"},  # hours at the marketplace's pace
}

# The row in PostgreSQL is the truth; a message is a hint, and its loss is repaired by the sweep.
task_ignore_result = True  # no result backend: state lives in PostgreSQL
task_acks_late = True  # a worker that dies hands its message back
task_reject_on_worker_lost = False  # a message that kills its worker must not come back for ever
worker_prefetch_multiplier = 1  # with late acks: one message for each slot, none hoarded
task_publish_retry_policy = {"max_retries": 3, "interval_start": 0, "interval_max": 1}

# One visibility timeout everywhere, above the hard time limit: recovery comes from leases, not from it.
task_soft_time_limit = 1500
task_time_limit = 1800
visibility_timeout = 3600
broker_transport_options = {
    "visibility_timeout": visibility_timeout,
    "unacked_restore_interval": 10,  # unacknowledged messages are looked for every 10 s, not 100 s
    "unacked_restore_throttle": 1,
    # A half-open connection is given up; the consumer probes several, one after the other.
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    # A worker that listens on a connection which is no more hears again within 1 + 2 x 5 s; with the
    # default of 25 it is deaf for 51 s.
    "health_check_interval": 5,
    # No retry_on_timeout: with it the client also reconnects by itself after a reset, into a read
    # without a timeout, and the worker is deaf.
}
rabbitmq_transport_options = {  # in place of the above where the broker is RabbitMQ
    "confirm_publish": True,  # a hint that it refuses is an error, and no silence
}
broker_heartbeat = 10  # RabbitMQ's; with the default of 120 s a worker is deaf for minutes behind a dead link
broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # the default gives up after 100
worker_cancel_long_running_tasks_on_connection_loss = False  # a broker blip must not kill good work

worker_soft_shutdown_timeout = 3  # with REMAP_SIGTERM=SIGQUIT: work is handed back within 10 s
# A job whose process ended without an answer is given up that soon: with the default of 10 s the stop of a
# worker takes longer than it may. Its lease has handed the work on anyway.
worker_lost_wait = 2
worker_max_tasks_per_child = 1000  # a rare renewal; frequent ones cause hangs
worker_max_memory_per_child = 400_000  # KiB
worker_proc_alive_timeout = 30  # the default of 4 s is too short for a busy machine's imports
worker_send_task_events = True  # for Flower
worker_hijack_root_logger = False
worker_redirect_stdouts = False

beat_max_loop_interval = 5
beat_scheduler = "workers.beat:Scheduler"
beat_schedule = {
    "scan-drop": {"task": "uploads.scan_drop", "schedule": 2.0, "options": {"expires": 10}},
    "relay": {"task": "uploads.relay", "schedule": 5.0, "options": {"expires": 10}},
    "audit": {"task": "uploads.audit", "schedule": 5.0, "options": {"expires": 10}},
    "cleanup": {"task": "uploads.cleanup", "schedule": 3600.0, "options": {"expires": 3000}},
    "scan-inboxes": {"task": "suppliers.scan", "schedule": 10.0, "options": {"expires": 10}},
    "expire-supplier-files": {"task": "suppliers.expire", "schedule": 3600.0, "options": {"expires": 3000}},
    # three in the night in Japan
    "begin-net": {"task": "catalog.begin_net", "schedule": crontab(hour=18, minute=0)},
    "advance-net": {"task": "catalog.advance", "schedule": 30.0, "options": {"expires": 30}},
}
timezone = "UTC"
