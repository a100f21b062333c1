"""Settings come from the environment, and what is wrong with them is said in a sentence."""

from __future__ import annotations

from dataclasses import Field, fields

import pytest

from app.adapters.settings import Settings, SettingsError

GOOD = {
    "HEADWORKS_DATABASE_URL": "postgresql://localhost/headworks",
    "HEADWORKS_BROKER_URL": "redis://localhost/0",
    "HEADWORKS_DATA_DIR": "/data",
}


def test_a_number_is_read() -> None:
    assert Settings.from_env({**GOOD, "HEADWORKS_LEASE_SECONDS": "2.5"}).lease_seconds == 2.5


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_setting_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.from_env({key: value for key, value in GOOD.items() if key != name})


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(SettingsError, match="HEADWORKS_UPLOAD_BYTES is 'many', which is no int"):
        Settings.from_env({**GOOD, "HEADWORKS_UPLOAD_BYTES": "many"})


def test_a_redis_cluster_is_refused_as_broker() -> None:
    with pytest.raises(SettingsError, match="Redis Cluster"):
        Settings.from_env({**GOOD, "HEADWORKS_BROKER_URL": "redis+cluster://localhost/0"})


def test_files_go_to_the_data_folder_unless_told_otherwise() -> None:
    assert Settings.from_env(GOOD).storage == "file:///data/files"
    other = Settings.from_env({**GOOD, "HEADWORKS_STORAGE_URL": "s3://bucket/prefix"})
    assert other.storage == "s3://bucket/prefix"


SWITCHES = [
    ("1", True),
    ("on", True),
    ("TRUE", True),
    ("0", False),
    ("off", False),
    ("false", False),
    ("", False),
]


@pytest.mark.parametrize(("text", "expected"), SWITCHES)
def test_a_switch_is_read(text: str, expected: bool) -> None:
    found = Settings.from_env({**GOOD, "HEADWORKS_WEBHOOKS_TO_LOOPBACK": text})
    assert found.webhooks_to_loopback is expected


def test_a_switch_that_is_neither_on_nor_off_is_named() -> None:
    with pytest.raises(SettingsError, match="HEADWORKS_WEBHOOKS_TO_LOOPBACK is 'maybe', which is no switch"):
        Settings.from_env({**GOOD, "HEADWORKS_WEBHOOKS_TO_LOOPBACK": "maybe"})


@pytest.mark.parametrize("field", [one for one in fields(Settings) if one.type in ("int", "float", "bool")])
def test_a_number_of_the_environment_is_a_number(field: Field[object]) -> None:
    text = "on" if field.type == "bool" else "7"
    found = Settings.from_env({**GOOD, f"HEADWORKS_{field.name.upper()}": text})
    assert type(getattr(found, field.name)).__name__ == field.type
