"""What an operator asks of the reference data at the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from app import cli
from app.refdata import store
from app.refdata.commands import Command
from tests.integration.refdata.chain import consuming
from tests.integration.refdata.platform import TENANT, Platform, command


@pytest.fixture
def operator(platform: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whose environment names the platform; a command logs warnings alone, and other tests everything."""
    for name, value in platform.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADWORKS_REFDATA_CONFIG", str(platform.config))
    monkeypatch.setenv("HEADWORKS_DATABASE_URL", platform.first)
    monkeypatch.setenv("HEADWORKS_BROKER_URL", platform.environ["REFDATA_REDIS"])
    monkeypatch.setenv("HEADWORKS_DATA_DIR", str(tmp_path))
    yield
    structlog.reset_defaults()


def test_a_configuration_is_looked_at_beforehand(
    platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["refdata", "check", str(platform.config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "COUNTRY\tenabled\tdeltas and snapshots" in lines
    assert "LAWS\tenabled\tread-only" in lines
    assert "OLD\tdisabled\tdeltas and snapshots" in lines
    platform.config.write_text(platform.config.read_text().replace(":eventEpoch", ":epoch", 1))
    assert cli.main(["refdata", "check", str(platform.config)]) == 1
    said = capsys.readouterr().err
    assert "COUNTRY.upsertSql" in said and "Line " in said and ":epoch" in said


def test_dead_letters_are_shown_and_sent_again(
    platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["refdata", "dead-letters"]) == 0
    assert capsys.readouterr().out == ""
    late = command("LATE", {"a": {"n": 1}})
    of = platform.services
    of.ensure_topics()
    of.publisher.publish(of.config.refdata.kafka.commands_topic, key=late.key, value=late.encoded())
    with ExitStack() as running:
        loop = consuming(of, running)
        while loop.work_off(0.5):
            pass
        assert cli.main(["refdata", "dead-letters"]) == 0
        [shown] = map(json.loads, capsys.readouterr().out.splitlines())
        assert (shown["key"], shown["error-code"]) == (f"{TENANT}:LATE", "UNKNOWN_DICTIONARY")
        request = store.add_request(
            of.databases["postgres"], late, content=b"", digest=late.digest, awaited=False, traceparent=None
        )
        assert request.added
        platform.sql("UPDATE refdata.update_request SET status = 'FAILED', error_code = 'UNKNOWN_DICTIONARY'")
        platform.config.write_text(
            platform.config.read_text() + "\n    - code: LATE\n      apply:\n        mode: DICTIONARY_ITEM\n"
        )
        assert of.live.reload()
        assert cli.main(["refdata", "dead-letters", "--replay"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 1
        assert loop.work_off(2.0) == 1
    assert platform.notes() == {"a": {"n": 1}}
    found = store.request(of.databases["postgres"], TENANT, late.event_id)
    assert (found.status, found.committed_version) == ("COMMITTED", 1)
    assert cli.main(["refdata", "dead-letters"]) == 0
    assert capsys.readouterr().out == ""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str]]:
    """Key and code of the dead letters that the command names."""
    capsys.readouterr()
    assert cli.main(["refdata", "dead-letters", *arguments]) == 0
    return sorted(
        (letter["key"].partition(":")[2], letter["error-code"])
        for letter in map(json.loads, capsys.readouterr().out.splitlines())
    )


UNKNOWN = "UNKNOWN_DICTIONARY"


def test_dead_letters_that_are_wrong_are_discarded_and_the_others_sent_again(
    platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    of = platform.services
    of.ensure_topics()
    sent = [command(code, {"a": {"n": n}}) for n, code in enumerate(("GOOD", "WRONG", "GOOD", "WRONG"))]

    def bury(*commands: Command) -> None:
        for one in commands:
            of.publisher.publish(of.config.refdata.kafka.commands_topic, key=one.key, value=one.encoded())
        while loop.work_off(0.5):
            pass

    named = ("--discard", "--key", f"{TENANT}:WRONG")
    wrong = (*named, "--reason", "rates of yesterday")
    with ExitStack() as running:
        loop = consuming(of, running)
        bury(*sent)
        everything = [("GOOD", UNKNOWN)] * 2 + [("WRONG", UNKNOWN)] * 2
        assert told(capsys) == everything
        assert told(capsys, "--code", UNKNOWN, "--key", f"{TENANT}:GOOD") == everything[:2]
        assert told(capsys, "--code", "MALFORMED_COMMAND") == []
        assert told(capsys, *named, "--dry-run") == everything[2:]
        assert told(capsys) == everything
        assert platform.sql("SELECT count(*) FROM refdata.discarded_letter") == [(0,)]
        assert told(capsys, *wrong) == everything[2:]
        # Those that stand between them are still there, and nobody is asked twice about these.
        assert told(capsys) == everything[:2]
        assert told(capsys, *wrong) == []
        assert platform.sql(
            "SELECT message_key, error_code, reason, discarded_by LIKE 'command line%', count(*)"
            " FROM refdata.discarded_letter GROUP BY 1, 2, 3, 4"
        ) == [(f"{TENANT}:WRONG", UNKNOWN, "rates of yesterday", True, 2)]
        bury(sent[1])  # its sender insists
        assert told(capsys) == [*everything[:2], ("WRONG", UNKNOWN)]
        assert told(capsys, *wrong) == [("WRONG", UNKNOWN)]
        assert told(capsys, "--replay") == everything[:2]
        assert loop.work_off(2.0) == 2, "what was discarded is sent to nobody"
        while loop.work_off(0.5):
            pass
        assert told(capsys, "--replay") == everything[:2]  # the dictionary is still unknown
    assert told(capsys) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--discard"], "--discard needs --reason"),
        (["--discard", "--reason", " "], "--discard needs --reason"),
        (["--discard", "--reason", "x", "--replay"], "not allowed with"),
        (["--replay", "--key", "a:B"], "--replay takes all"),
        (["--replay", "--dry-run"], "--replay takes all"),
    ],
)
def test_what_is_to_be_done_with_dead_letters_is_said_clearly(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["refdata", "dead-letters", *arguments])
    assert (end.value.code, sentence in capsys.readouterr().err) == (2, True)


def test_a_new_epoch_is_begun_after_a_restore(
    platform: Platform, operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    platform.apply(command("NOTES", {"a": {}}))
    capsys.readouterr()  # what was logged meanwhile
    assert cli.main(["refdata", "new-epoch"]) == 0
    epoch = capsys.readouterr().out.strip()
    platform.apply(command("NOTES", {"b": {}}))
    first, second = platform.announcements()
    assert first["epoch"] != second["epoch"] == epoch
    assert cli.main(["refdata", "new-epoch", "--database", "nowhere"]) == 1
