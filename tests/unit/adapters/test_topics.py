"""Which engine is chosen, where keys go, and what is not said of options."""

from __future__ import annotations

import pytest

from app.adapters import topics
from app.adapters.topics import Topics, connect, kafka, streams
from app.kernel import errors
from app.kernel.clock import SystemClock


def test_kafka_is_chosen_where_one_is_named() -> None:
    both = Topics(bootstrap="kafka:9092", redis_url="redis://redis")
    assert isinstance(connect(both, SystemClock()), kafka.Kafka)
    assert isinstance(connect(Topics(redis_url="redis://redis"), SystemClock()), streams.Streams)


def test_a_key_has_the_same_partition_for_ever() -> None:
    # Another answer would put a key's next messages beside its earlier ones.
    assert streams.partition_of("123456789", 1000) == 0xCBF43926 % 1000  # the check value of CRC-32
    found = [streams.partition_of(key, 16) for key in ("", "tenant-a:COUNTRY", "tenant-b:ВАЛЮТА")]
    assert found == [0, 6, 5]


def test_what_is_secret_stands_in_no_text() -> None:
    where = Topics(redis_url="redis://:hidden@redis", options={"sasl.password": "hidden"})
    assert "hidden" not in repr(where)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sasl.pasword": "hidden"}, "sasl.pasword"),  # no such option
        ({"security.protocol": "hidden"}, "security.protocol"),  # no such value
    ],
)
def test_an_option_that_is_not_taken_is_named_without_its_value(options: dict[str, str], named: str) -> None:
    engine = connect(Topics(bootstrap="127.0.0.1:1", options=options), SystemClock())
    with pytest.raises(errors.Fatal) as refused:
        engine.consumer("t", group="g").poll(1, 0.0)
    assert refused.value.code == "settings"
    assert named in refused.value.sentence
    assert "hidden" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_options_do_not_change_what_the_contract_rests_on() -> None:
    asked = {
        "acks": "0",
        "enable.idempotence": "false",
        "enable.auto.commit": "true",
        "isolation.level": "read_uncommitted",
        "compression.type": "zstd",
    }
    engine = kafka.Kafka(Topics(bootstrap="127.0.0.1:1", options=asked), SystemClock())
    published, read = engine.publisher()._config, engine.consumer("t", group="g")._config
    assert (published["acks"], published["enable.idempotence"]) == ("all", True)
    assert (read["enable.auto.commit"], read["isolation.level"]) == (False, "read_committed")
    assert published["compression.type"] == "zstd"


def test_a_message_too_large_is_a_refusal_with_a_code() -> None:
    assert issubclass(topics.TooLarge, errors.Refused)
    assert topics.TooLarge().code == "message_too_large"
