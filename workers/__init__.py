"""The Celery fleet: application, task base, thin tasks."""
