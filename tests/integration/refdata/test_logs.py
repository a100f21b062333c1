"""The log lines of reference data carry `eventId`, `dictCode`, `version` and `source` (section 11.5)."""

from __future__ import annotations

from contextlib import ExitStack

from tests.integration.observe.log_lines import Lines, lines, without  # noqa: F401
from tests.integration.refdata.chain import consuming, relaying
from tests.integration.refdata.platform import Platform, command

FIELDS = ("eventId", "dictCode", "version", "source")


def test_the_way_of_a_command_can_be_followed_in_the_log(platform: Platform, lines: Lines) -> None:  # noqa: F811
    of = platform.services
    good = command("COUNTRY", {"AT": {"name": "Austria"}})
    bad = command("COUNTRY", {"XX": {"name": "Atlantis"}})  # which its table refuses
    topic = of.config.refdata.kafka.commands_topic
    with ExitStack() as running:
        member = consuming(of, running)
        for one in (good, bad):
            of.publisher.publish(topic, key=one.key, value=one.encoded(), headers={})
        of.publisher.publish(topic, key=good.key, value=b"no command", headers={})
        done = 0
        while done < 3:
            done += member.work_off(1.0)
    assert relaying(platform).work_off() == 1
    found = lines("app.refdata")
    by_event = {name: [line for line in found if line["event"] == name] for name in {*map(_event, found)}}
    for line in found:
        assert set(FIELDS) <= set(line), line
    assert without(by_event["refdata_announced"], *FIELDS) == []
    assert [line["version"] for line in by_event["refdata_announced"]] == [1]
    ended = by_event["refdata_command_ended"]
    assert without(ended, "eventId", "dictCode", "source") == []
    assert {(line["eventId"], line["version"]) for line in ended} == {
        (str(good.event_id), 1), (str(bad.event_id), None)
    }  # fmt: skip
    letters = by_event["refdata_dead_letter"]
    assert {line["eventId"] for line in letters} == {str(bad.event_id), None}


def _event(line: dict[str, str]) -> str:
    return line["event"]
