"""What the audit log can say: every action with its meaning."""

from __future__ import annotations

ACTIONS = {
    # uploads
    "created": "an upload was taken in",
    "moved": "an upload went from one state to the next",
    "resumed": "a worker took up an upload that another had begun",
    "released": "a worker that was asked to stop gave an upload back",
    "deferred": "an upload was put off, since a service asked for time",
    "lease_expired": "a worker was not heard of in time, and lost its upload",
    "requeued": "a person sent an upload on its way again",
    "event_received": "the end of an upload was told to whoever listens",
    # webhooks
    "webhook_created": "a webhook was made",
    "webhook_deleted": "a webhook was deleted",
    "webhook_disabled": "a webhook was disabled, since its receiver is gone",
    "webhook_secret_rotated": "a webhook was given a new secret",
    "webhook_tested": "a sample event was sent to a webhook",
    "webhook_redelivered": "a person had a delivery sent again",
}
