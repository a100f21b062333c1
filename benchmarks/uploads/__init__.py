"""Uploads from POST to completed, beside what PostgreSQL alone needs for the same rows."""
