"""The fleet does a net: from beat's task to the last job, each job a task of its own."""

from __future__ import annotations

import subprocess
import sys

import celery

from app.adapters.dispatch import CeleryDispatch
from app.catalog import net
from app.catalog.jobs import JOBS
from app.catalog.replay import demo
from app.kernel.clock import SystemClock
from tests.integration.catalog.test_crashes import environment, wait_until
from tests.integration.catalog.test_nearest import with_the_model
from tests.integration.catalog.world import World


@with_the_model
def test_a_worker_does_every_job_of_a_net(world: World) -> None:
    demo.add_invented(world.api, 24)
    world.wanted(201351)
    worker = [
        sys.executable, "-m", "celery", "-A", "workers.fleet", "worker", "-Q", "catalog,cleanup", "-c", "2",
        "-n", "catalog-test@%h", "--without-gossip", "--without-mingle", "--loglevel", "WARNING",
    ]  # fmt: skip
    with subprocess.Popen(
        worker, env=environment(world), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as fleet:
        try:
            CeleryDispatch(world.settings.broker_url, SystemClock()).send("catalog.begin_net")
            wait_until(lambda: fleet.poll() is not None or nets(world) == ["success"], seconds=90)
        finally:
            fleet.terminate()
            said, _ = fleet.communicate(timeout=30)
    assert nets(world) == ["success"], said.decode()
    runs = world.sql("SELECT job_id, status, job_start_at FROM apl.etl_run ORDER BY started_at")
    assert sorted(job for job, _, _ in runs) == sorted(JOBS)
    assert {status for _, status, _ in runs} == {"success"}
    assert len({start for _, _, start in runs}) == 1
    assert world.sql("SELECT bool_and(is_active), count(*) > 0 FROM apl.item") == [(True, True)]
    assert world.sql("SELECT count(*) FROM apl.item_embedding") == world.sql("SELECT count(*) FROM apl.item")


def test_each_job_waits_in_the_catalogs_own_queue() -> None:
    app = celery.Celery()
    app.config_from_object("celeryconfig")
    for job_id in JOBS:
        assert app.amqp.router.route({}, net.task_of(job_id))["queue"].name == "catalog"


def nets(world: World) -> list[str]:
    return [status for (status,) in world.sql("SELECT status FROM apl.etl_net")]
