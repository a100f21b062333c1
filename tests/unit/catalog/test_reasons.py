"""What stops a job of the catalog is known to the metrics before it happens."""

from __future__ import annotations

import pytest

from app.adapters import exposition
from app.catalog import jobs


@pytest.mark.parametrize("reason", ["access", "configuration"])
def test_a_reason_that_stops_a_job_is_known_before_it_happens(reason: str) -> None:
    jobs.know_reasons()
    text = exposition.text()[0].decode()
    for job_id in jobs.JOBS:
        labels = f'job_id="{job_id}",reason="{reason}",status="failed"'
        assert f"headworks_catalog_runs_total{{{labels}}} " in text
