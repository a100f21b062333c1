"""Under which name a process holds what is its own: no other process of the instance may have it."""

from __future__ import annotations

import socket

import pytest

from app.adapters import database


def named(monkeypatch: pytest.MonkeyPatch, host: str) -> str:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    return database.name_of_process(7)


def test_a_short_host_name_stands_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(monkeypatch, "h" * 32) == "h" * 32 + "/7"


def test_hosts_that_differ_behind_a_long_beginning_have_names_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As an orchestrator names the copies of one process; in its container each has the same pid.
    pods = [f"production-headworks-refdata-kafka-adapter-6d5f9c7b8-{end}" for end in ("x2k4j", "q8w7z")]
    names = [named(monkeypatch, pod) for pod in pods]
    assert len(set(names)) == 2
    assert all(name.startswith("production-headwork") and len(name) == 34 for name in names)
