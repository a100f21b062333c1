"""The client and the daemon for Python, over a network that loses answers and with work that goes wrong."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.pipeline import client as client_module
from app.pipeline.client import LeaseLost, PipelineClient, Problem, Task, Unavailable
from app.pipeline.daemon import Daemon, Held, WorkFailed
from tests.conftest import SetClock
from tests.faults.proxy import Proxy
from tests.integration.pipeline import tasks
from tests.integration.pipeline.conftest import Api
from tests.integration.pipeline.tasks import FILE

STAGE = "shard-worker"


@pytest.fixture
def network(pipeline: Api) -> Iterator[Proxy]:
    """What lies between the client and the pipeline."""
    port = urlsplit(pipeline.url).port
    assert port
    found = Proxy(port)
    yield found
    found.close()


@pytest.fixture
def clock() -> SetClock:
    """Nobody waits between two tries."""
    return SetClock()


@pytest.fixture
def client(network: Proxy, clock: SetClock) -> PipelineClient:
    return PipelineClient(f"http://127.0.0.1:{network.port}/", worker_id="worker-1", clock=clock)


def claimed(
    api: Api, client: PipelineClient, shards: tuple[int, ...] = (0,), lease_seconds: int = 60
) -> Task:
    """The first of these tasks, which is the client's own."""
    tasks.ready(api, STAGE, shards)
    [task] = client.claim(STAGE, lease_seconds=lease_seconds)
    return task


def taken_away(api: Api, task: Task) -> str:
    """The token of another worker, who has the task by now."""
    tasks.move(api, task.stage, "fail", task.shard)
    tasks.move(api, task.stage, "retry", task.shard)
    [item] = tasks.claim(api, task.stage, "another")
    assert item["shard"] == task.shard
    return str(item["lease_token"])


def details(api: Api, shard: int = 0) -> dict[str, Any]:
    """What is known of the task in the stage."""
    shards = api.call("GET", f"/files/{FILE}", details="true")["shards"]
    return next(found["stages"][STAGE] for found in shards if found["shard"] == shard)


def reached(api: Api, shard: int = 0) -> list[str]:
    """The statuses the task has gone through in the stage."""
    return [to for _, to, _ in tasks.moves(api)[shard, STAGE]]


# The client


def test_a_file_is_taken_through_its_stages(pipeline: Api, client: PipelineClient) -> None:
    assert client.register(FILE, range(2)) is True
    assert client.register(FILE, [1, 0]) is False
    assert client.finish_ingest(FILE) == 2
    first, second = client.claim("shard-splitter", limit=5)
    assert (first.stage, first.filename, first.shard, first.attempt) == ("shard-splitter", FILE, 0, 1)
    client.extend_lease(first, lease_seconds=600)
    client.done(first)
    client.fail(second, code="NO_SPACE", message="nothing is left")
    assert client.retry_failed("shard-splitter", error_code="ANOTHER") == 0
    assert client.retry_failed("shard-splitter", filename="another") == 0
    assert client.retry_failed("shard-splitter", filename=FILE, error_code="NO_SPACE") == 1
    [again] = client.claim("shard-splitter", limit=5)
    assert (again.shard, again.attempt) == (1, 2)

    assert client.file(FILE) == pipeline.call("GET", f"/files/{FILE}")
    assert client.file(FILE, details=True) == pipeline.call("GET", f"/files/{FILE}", details="true")
    assert client.summary() == pipeline.call("GET", "/metrics/summary")
    assert [row["worker_id"] for row in tasks.history(pipeline) if row["to_status"] == "started"][2:] == [
        "worker-1"
    ] * 3


@pytest.mark.parametrize("lost", [1, 5])
@pytest.mark.parametrize(
    ("path", "call", "answer"),
    [
        ("register", lambda client, _: client.register("another", [0, 1]), False),  # the first made it
        ("event-ingest/done", lambda client, _: client.finish_ingest(FILE), 1),
        ("heartbeat", lambda client, task: client.extend_lease(task), None),
        (f"{STAGE}/done", lambda client, task: client.done(task), None),
        (f"{STAGE}/fail", lambda client, task: client.fail(task, code="X"), None),
        ("retry-failed", lambda client, _: client.retry_failed(STAGE), 0),
        (f"files/{FILE}", lambda client, _: client.file(FILE)["filename"], FILE),
        ("summary", lambda client, _: client.summary()["total"], 1),
    ],
)
def test_a_call_whose_answer_is_lost_is_made_again_and_has_been_made_once(
    pipeline: Api,
    client: PipelineClient,
    network: Proxy,
    clock: SetClock,
    lost: int,
    path: str,
    call: Callable[[PipelineClient, Task], Any],
    answer: Any,
) -> None:
    task = claimed(pipeline, client)
    rows = {"register": 2, f"{STAGE}/done": 1, f"{STAGE}/fail": 1}.get(path, 0)
    [(before,)] = pipeline.sql("SELECT count(*) FROM pipeline_history")
    network.lose_answers(path.encode(), range(lost))

    assert call(client, task) == answer

    assert network.lost == lost
    assert len(clock.slept) == lost
    assert pipeline.sql("SELECT count(*) FROM pipeline_history") == [(before + rows,)]


def test_a_claim_whose_answer_is_lost_is_not_made_again_and_comes_back(
    pipeline: Api, client: PipelineClient, network: Proxy, clock: SetClock
) -> None:
    """A second claim would take a second task, and the first would wait for its lease all the same."""
    tasks.ready(pipeline, STAGE, [0, 1])
    network.lose_answers(b"claim", [0])

    with pytest.raises(Unavailable):
        client.claim(STAGE)

    assert (network.lost, clock.slept) == (1, [])
    tasks.expired(pipeline, STAGE, 0)
    assert [(task.shard, task.attempt) for task in client.claim(STAGE, limit=2)] == [(0, 2), (1, 1)]


def test_a_pipeline_that_cannot_be_reached_is_given_up_in_the_end(
    client: PipelineClient, network: Proxy, clock: SetClock
) -> None:
    network.refuse()

    with pytest.raises(Unavailable):
        client.register(FILE, [0])

    assert len(clock.slept) == client_module.MOST_TRIES - 1
    assert all(0 <= seconds <= client_module.LONGEST_WAIT_SECONDS for seconds in clock.slept)


@pytest.mark.parametrize("call", ["done", "fail", "extend_lease"])
def test_who_has_lost_the_lease_is_told_so_at_once(
    pipeline: Api, client: PipelineClient, clock: SetClock, call: str
) -> None:
    task = claimed(pipeline, client)
    taken_away(pipeline, task)
    calls: dict[str, Callable[[], None]] = {
        "done": lambda: client.done(task),
        "fail": lambda: client.fail(task, code="X"),
        "extend_lease": lambda: client.extend_lease(task),
    }

    with pytest.raises(LeaseLost) as raised:
        calls[call]()

    assert (raised.value.code, raised.value.status) == ("lease_lost", 409)
    assert raised.value.current_status == "started"
    assert clock.slept == []
    assert reached(pipeline)[-1] == "started"


def test_a_refusal_is_told_with_its_code_and_is_not_asked_again(
    pipeline: Api, client: PipelineClient, clock: SetClock
) -> None:
    task = claimed(pipeline, client)
    client.fail(task, code="X")

    with pytest.raises(Problem) as raised:
        client.done(task)
    assert (raised.value.code, raised.value.status) == ("invalid_transition", 409)
    assert (raised.value.current_status, type(raised.value)) == ("failed", Problem)
    with pytest.raises(Problem) as raised:
        client.finish_ingest("another")
    assert (raised.value.code, raised.value.status, raised.value.current_status) == ("unknown_file", 404, "")
    assert clock.slept == []


@pytest.mark.parametrize("message", ["x" * 10_000, "ж" * 10_000, "a\x00b", "a\n" * 3000])
def test_any_message_of_a_failure_is_taken(pipeline: Api, client: PipelineClient, message: str) -> None:
    client.fail(claimed(pipeline, client), code="X", message=message)

    stored = details(pipeline)["error_message"]
    assert stored[:2] == message[:2].replace("\x00", "\ufffd")
    assert len(stored) <= 4096


def test_half_a_character_in_a_message_does_not_keep_a_task_from_failing(
    pipeline: Api, client: PipelineClient
) -> None:
    """Such as in the name of a file that is not UTF-8, as Python reads it."""
    client.fail(claimed(pipeline, client), code="X", message="cannot open a\udcff")

    assert details(pipeline)["status"] == "failed"


# Answers that the pipeline would not give


@dataclass
class Scripted:
    """A server that gives these answers one after the other, and remembers what it was asked."""

    port: int = 0
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    found = Scripted()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append((self.path, self.headers["Authorization"]))
            status, body = found.answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


NO_ANSWERS = [
    (500, b'{"code": "internal_error"}'),
    (502, b"<html>Bad Gateway</html>"),
    (503, b""),
    (504, b"null"),
    (429, b'{"code": "too_many_requests"}'),
    (200, b"<html>Welcome to the WLAN</html>"),
    (200, b"[]"),
    (404, b"<html>Not Found</html>"),
    (200, b'{"total": '),
]


@pytest.mark.parametrize(("status", "body"), NO_ANSWERS)
def test_an_answer_that_is_none_is_asked_for_again(
    scripted: Scripted, clock: SetClock, status: int, body: bytes
) -> None:
    client = PipelineClient(f"http://127.0.0.1:{scripted.port}", token="a-token", worker_id="w", clock=clock)
    scripted.answers = [(status, body), (status, body), (200, json.dumps({"total": 5}).encode())]

    assert client.summary() == {"total": 5}

    assert scripted.asked == [("/api/v1/pipeline/metrics/summary", "Bearer a-token")] * 3
    assert len(clock.slept) == 2


def test_a_client_without_a_token_sends_none(scripted: Scripted, clock: SetClock) -> None:
    scripted.answers = [(401, b'{"code": "unauthorized", "detail": "no"}')]

    with pytest.raises(Problem) as raised:
        PipelineClient(f"http://127.0.0.1:{scripted.port}", worker_id="w", clock=clock).summary()

    assert (raised.value.code, raised.value.status) == ("unauthorized", 401)
    assert scripted.asked == [("/api/v1/pipeline/metrics/summary", None)]


# The daemon


def test_a_daemon_does_its_work_and_says_so(pipeline: Api, client: PipelineClient) -> None:
    tasks.ready(pipeline, STAGE, [0, 1])
    done: list[tuple[str, int, str]] = []

    def work(task: Task, held: Held) -> None:
        held.check()
        assert details(pipeline, task.shard)["status"] == "started"
        done.append((task.filename, task.shard, task.stage))

    daemon = Daemon(client, STAGE, work)

    assert [daemon.work_off(), daemon.work_off(), daemon.work_off()] == [True, True, False]
    assert done == [(FILE, 0, STAGE), (FILE, 1, STAGE)]
    for shard in (0, 1):
        assert reached(pipeline, shard) == ["started", "done"]
        assert details(pipeline, shard)["worker_id"] == "worker-1"


def test_a_daemon_runs_until_it_is_stopped(pipeline: Api, client: PipelineClient) -> None:
    tasks.ready(pipeline, STAGE, range(4))
    stopped = threading.Event()

    def work(task: Task, _: Held) -> None:
        if task.shard == 2:
            stopped.set()

    Daemon(client, STAGE, work).run(stopped)

    assert [tasks.statuses(pipeline, shard)[2] for shard in range(4)] == ["done", "done", "done", "new"]


def test_work_that_fails_is_failed_with_its_reason(pipeline: Api, client: PipelineClient) -> None:
    tasks.ready(pipeline, STAGE)

    def work(task: Task, held: Held) -> None:
        raise WorkFailed("Line 17 has no date.", code="BAD_EVENTS")

    assert Daemon(client, STAGE, work).work_off() is True

    found = details(pipeline)
    assert (found["status"], found["error_code"]) == ("failed", "BAD_EVENTS")
    assert found["error_message"] == "Line 17 has no date."
    assert tasks.history(pipeline)[-1]["error_code"] == "BAD_EVENTS"


@pytest.mark.parametrize("error", [RuntimeError("password=secret"), KeyError("x"), ValueError("\x00\udcff")])
def test_work_that_breaks_is_failed_and_the_daemon_goes_on(
    pipeline: Api, client: PipelineClient, error: Exception
) -> None:
    tasks.ready(pipeline, STAGE, [0, 1])

    def work(task: Task, held: Held) -> None:
        if task.shard == 0:
            raise error

    daemon = Daemon(client, STAGE, work)

    assert [daemon.work_off(), daemon.work_off()] == [True, True]
    found = details(pipeline, 0)
    assert (found["status"], found["error_code"]) == ("failed", "INTERNAL_ERROR")
    assert "secret" not in found["error_message"]
    assert reached(pipeline, 1) == ["started", "done"]


def expires_at(api: Api) -> datetime:
    [(found,)] = api.sql("SELECT shard_worker_lease_expires_at FROM pipeline_tracking")
    assert isinstance(found, datetime)
    return found


def test_heartbeats_keep_a_lease_for_as_long_as_the_work_takes(pipeline: Api, client: PipelineClient) -> None:
    """The work takes more than two leases of a second, while another daemon looks for something to do."""
    tasks.ready(pipeline, STAGE)
    claimed_by_another: list[Any] = []

    def work(task: Task, held: Held) -> None:
        begin = expires_at(pipeline)

        def kept() -> bool:
            claimed_by_another.extend(tasks.claim(pipeline, STAGE, "another"))
            return expires_at(pipeline) > begin + timedelta(seconds=2.2)

        tasks.eventually(kept)
        held.check()

    assert Daemon(client, STAGE, work, lease_seconds=1).work_off() is True

    assert claimed_by_another == []
    assert tasks.moves(pipeline)[0, STAGE] == [("new", "started", 1), ("started", "done", 1)]


def test_no_heartbeat_comes_after_the_work(pipeline: Api, client: PipelineClient) -> None:
    tasks.ready(pipeline, STAGE)
    hearts: list[threading.Thread] = []

    def work(task: Task, held: Held) -> None:
        hearts.extend(thread for thread in threading.enumerate() if "_beat" in thread.name)

    Daemon(client, STAGE, work, lease_seconds=1).work_off()

    assert len(hearts) == 1
    assert not [thread for thread in threading.enumerate() if "_beat" in thread.name]


def is_lost(held: Held) -> bool:
    try:
        held.check()
    except LeaseLost:
        return True
    return False


@pytest.mark.parametrize("outcome", ["asks", "returns", "fails", "breaks"])
def test_work_on_a_task_that_has_become_anothers_does_not_count(
    pipeline: Api, client: PipelineClient, outcome: str
) -> None:
    """Whatever it comes to: the other has the task, and the daemon goes on with the next."""
    tasks.ready(pipeline, STAGE, [0, 1])
    tokens: list[str] = []

    def work(task: Task, held: Held) -> None:
        if task.shard == 1:
            return
        assert not is_lost(held)
        tokens.append(taken_away(pipeline, task))
        tasks.eventually(lambda: is_lost(held))
        if outcome == "asks":
            held.check()
        if outcome == "fails":
            raise WorkFailed("It cannot be done.", code="BAD_EVENTS")
        if outcome == "breaks":
            raise ValueError("it broke")

    daemon = Daemon(client, STAGE, work, lease_seconds=1)

    assert [daemon.work_off(), daemon.work_off()] == [True, True]
    assert reached(pipeline, 0) == ["started", "failed", "new", "started"]
    assert (details(pipeline)["worker_id"], details(pipeline)["attempt"]) == ("another", 2)
    tasks.move(pipeline, STAGE, "done", lease_token=tokens[0])
    assert reached(pipeline, 1) == ["started", "done"]


def test_a_daemon_whose_answers_are_lost_does_each_task_once(
    pipeline: Api, client: PipelineClient, network: Proxy
) -> None:
    tasks.ready(pipeline, STAGE, [0, 1])
    network.lose_answers(b"/stages/", range(0, 100, 2))
    done = []

    def work(task: Task, held: Held) -> None:
        done.append(task.shard)
        if task.shard == 1:
            raise WorkFailed("Not this one.", code="X")

    daemon = Daemon(client, STAGE, work)

    assert [daemon.work_off(), daemon.work_off(), daemon.work_off()] == [True, True, False]
    assert (done, network.lost) == ([0, 1], 2)
    assert (reached(pipeline, 0), reached(pipeline, 1)) == (["started", "done"], ["started", "failed"])


def test_a_server_that_cannot_be_reached_does_not_end_the_daemon(
    pipeline: Api, client: PipelineClient, network: Proxy
) -> None:
    tasks.ready(pipeline, STAGE)
    network.refuse()
    stopped = threading.Event()
    daemon = Daemon(client, STAGE, lambda task, held: stopped.set())
    assert daemon.work_off() is False

    running = threading.Thread(target=daemon.run, args=(stopped,))
    running.start()
    network.heal()
    running.join(tasks.PATIENCE_SECONDS)

    assert not running.is_alive()
    assert reached(pipeline) == ["started", "done"]


@pytest.mark.parametrize("outcome", ["done", "fails", "breaks"])
def test_a_server_that_goes_away_during_the_work_does_not_end_the_daemon(
    pipeline: Api, client: PipelineClient, network: Proxy, outcome: str
) -> None:
    """Nobody hears how the work went; the task comes back when its lease has run out."""
    tasks.ready(pipeline, STAGE)

    def work(task: Task, held: Held) -> None:
        network.refuse()
        network.cut()
        if outcome == "fails":
            raise WorkFailed("It cannot be done.", code="X")
        if outcome == "breaks":
            raise ValueError("it broke")

    assert Daemon(client, STAGE, work).work_off() is True

    assert reached(pipeline) == ["started"]
    network.heal()
    tasks.expired(pipeline, STAGE)
    assert Daemon(client, STAGE, lambda task, held: None).work_off() is True
    assert tasks.moves(pipeline)[0, STAGE][-1] == ("started", "done", 2)


def test_a_daemon_of_a_stage_that_is_none_goes_on_asking(pipeline: Api, client: PipelineClient) -> None:
    assert Daemon(client, "shard-merger", lambda task, held: None).work_off() is False
