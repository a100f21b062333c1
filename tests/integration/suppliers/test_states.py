"""Published states, on disk and in a bucket: one contract for both."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.kernel import errors
from app.suppliers.bucket_states import BucketStates
from app.suppliers.failures import SupplierFailure
from app.suppliers.states import Published, States, path_of
from tests import patience
from tests.integration.suppliers.tree import A, B, Tree


def state(number: int, folder: Path) -> tuple[Published, Path]:
    """A state and its facts, both of them another for each number."""
    content = f'{{"number":{number}}}\n'.encode() * (number + 1)
    facts = folder / f"facts-{number}"
    facts.write_bytes(content)
    run_id = f"acme_20260101T0000{number % 60:02}Z_{number:06x}"
    return (
        Published(
            "acme", run_id, path_of("acme", run_id), hashlib.sha256(content).hexdigest(), number + 1,
            number + 1, "c" * 64, f"{number:064x}", "прайс.csv", number, "2026-01-01T00:00:00+00:00",
        ),
        facts,
    )  # fmt: skip


def published(states: States, number: int, folder: Path, *, instead_of: Published | None) -> Published:
    found, facts = state(number, folder)
    states.store(found, facts)
    states.switch(found, instead_of=instead_of)
    return found


def content_of(states: States, found: Published) -> bytes:
    with states.facts(found) as path:
        return path.read_bytes()


def test_before_the_first_state_there_is_none(states: States) -> None:
    assert (states.current("acme"), states.stored("acme")) == (None, [])


def test_a_state_is_seen_once_it_is_switched_to(states: States, tmp_path: Path) -> None:
    first = published(states, 1, tmp_path, instead_of=None)
    second, facts = state(2, tmp_path)
    states.store(second, facts)
    assert states.current("acme") == first
    states.switch(second, instead_of=first)
    assert states.current("acme") == second
    assert hashlib.sha256(content_of(states, second)).hexdigest() == second.facts_sha256
    assert sorted(states.stored("acme")) == sorted([first.run_id, second.run_id])


def test_suppliers_have_states_of_their_own(states: States, tmp_path: Path) -> None:
    published(states, 1, tmp_path, instead_of=None)
    assert states.current("acme_two") is None and states.stored("acme_two") == []


def test_a_state_that_stands_is_never_changed(states: States, tmp_path: Path) -> None:
    found = published(states, 1, tmp_path, instead_of=None)
    before = content_of(states, found)
    other = tmp_path / "other"
    other.write_bytes(b"another content\n")
    forged = replace(found, facts_sha256=hashlib.sha256(other.read_bytes()).hexdigest())
    states.store(forged, other)
    assert content_of(states, found) == before


def test_who_has_not_seen_the_current_state_does_not_replace_it(states: States, tmp_path: Path) -> None:
    first = published(states, 1, tmp_path, instead_of=None)
    for number, instead_of in ((2, None), (3, state(9, tmp_path)[0])):
        with pytest.raises(SupplierFailure) as caught:
            published(states, number, tmp_path, instead_of=instead_of)
        assert caught.value.code == "PUBLISH_CONFLICT"
        assert states.current("acme") == first


def test_of_two_that_switch_in_the_same_moment_one_fails(
    bucket_states: BucketStates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have asked what is current, and got the same answer."""
    first = published(bucket_states, 1, tmp_path, instead_of=None)
    answer = bucket_states._pointer("acme")
    theirs = published(bucket_states, 2, tmp_path, instead_of=first)
    mine, facts = state(3, tmp_path)
    bucket_states.store(mine, facts)
    with monkeypatch.context() as before:
        before.setattr(bucket_states, "_pointer", lambda supplier: answer)
        with pytest.raises(SupplierFailure) as caught:
            bucket_states.switch(mine, instead_of=first)
    assert caught.value.code == "PUBLISH_CONFLICT"
    assert bucket_states.current("acme") == theirs


def test_of_two_first_states_one_fails(
    bucket_states: BucketStates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = published(bucket_states, 2, tmp_path, instead_of=None)
    mine, facts = state(1, tmp_path)
    bucket_states.store(mine, facts)
    with monkeypatch.context() as before:
        before.setattr(bucket_states, "_pointer", lambda supplier: None)
        with pytest.raises(SupplierFailure):
            bucket_states.switch(mine, instead_of=None)
    assert bucket_states.current("acme") == theirs


def test_a_reader_finds_whole_states_whatever_is_published(states: States, tmp_path: Path) -> None:
    current = published(states, 0, tmp_path, instead_of=None)
    done = threading.Event()
    wrong: list[Any] = []
    looked = [0]

    def read() -> None:
        while not done.is_set():
            try:
                found = states.current("acme")
            except errors.ConnectionLost:  # as an emulated bucket answers now and then under load
                continue
            if found is None or hashlib.sha256(content_of(states, found)).hexdigest() != found.facts_sha256:
                wrong.append(found)
            looked[0] += 1

    reader = threading.Thread(target=read)
    reader.start()
    number = 0
    until = patience.deadline(60)
    while number < 60 or (looked[0] <= 10 and time.monotonic() < until):
        number += 1
        current = published(states, number, tmp_path, instead_of=current)
    done.set()
    reader.join()
    assert wrong == [] and looked[0] > 10


def test_a_state_is_dropped_whole(states: States, tmp_path: Path) -> None:
    first = published(states, 1, tmp_path, instead_of=None)
    second = published(states, 2, tmp_path, instead_of=first)
    states.drop("acme", first.run_id)
    states.drop("acme", first.run_id)
    assert states.stored("acme") == [second.run_id]
    assert states.current("acme") == second


def test_a_run_publishes_into_either(states: States, on: Callable[[States], Tree]) -> None:
    mine = on(states)
    for content, facts in ((A, 2), (B, 2)):
        mine.put(content)
        outcome = mine.run()
        assert (outcome.status, outcome.reason_code) == ("PASS", None)
        found = states.current("acme")
        assert found is not None and (found.run_id, found.fact_count) == (outcome.run_id, facts)
        assert content_of(states, found).count(b"\n") == facts
    assert mine.manifest(outcome.run_id)["previous_run_id"] is not None


def test_an_answer_that_is_lost_after_the_switch_is_no_second_publication(
    bucket_states: BucketStates, on: Callable[[States], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on(bucket_states)
    mine.put(A)
    real = bucket_states._client.put_object

    def lost(**arguments: Any) -> Any:
        answer = real(**arguments)
        if arguments["Key"].endswith("acme.json"):
            raise errors.ConnectionLost()
        return answer

    with monkeypatch.context() as broken, pytest.raises(errors.ConnectionLost):
        broken.setattr(bucket_states._client, "put_object", lost)
        mine.run()
    assert mine.run().status == "NOOP"
    current = bucket_states.current("acme")
    assert current is not None and bucket_states.stored("acme") == [current.run_id]
    assert len(mine.files(mine.layout.archive("acme"))) == 1
    mine.put(A, "again.csv")
    assert mine.run().status == "NOOP"
    assert mine.files(mine.layout.duplicates("acme")) == ["again.csv"]


@pytest.mark.parametrize("call", range(8))
def test_a_store_that_fails_at_any_call_costs_time_alone(
    call: int, bucket_states: BucketStates, on: Callable[[States], Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = on(bucket_states)
    mine.put(A)
    mine.run()
    mine.put(B)
    real, left = bucket_states._client._make_api_call, [call]

    def failing(name: str, arguments: Any) -> Any:
        if left[0] == 0:
            left[0] = -1
            raise errors.ConnectionLost()
        left[0] -= 1
        return real(name, arguments)

    with monkeypatch.context() as broken, suppress(errors.ConnectionLost):
        broken.setattr(bucket_states._client, "_make_api_call", failing)
        mine.run()
    while (outcome := mine.run()).status != "NOOP" or outcome.waiting:
        assert outcome.status == "PASS"
    current = bucket_states.current("acme")
    assert current is not None and content_of(bucket_states, current).count(b"A-3") == 1
    assert len(bucket_states.stored("acme")) == 2
    assert len(mine.files(mine.layout.archive("acme"))) == 2
