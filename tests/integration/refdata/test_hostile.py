"""Somebody tries to write SQL with what a command may say."""

from __future__ import annotations

import pytest

from tests.integration.refdata.platform import Platform, chunk, command

ATTEMPTS = (
    "'; DROP TABLE mdm_country; --",
    "' OR '1'='1",
    "\\'; DROP TABLE mdm_country; --",
    "%(tenantId)s",
    "%s %d %%",
    ":tenantId",
    "$$; DROP TABLE mdm_country; $$",
    "/* */ -- ",
    '"; DROP TABLE mdm_country; --',
    "\u02bc; DROP TABLE mdm_country; --",
    "E'\\x27'",
    "1); DELETE FROM refdata.dictionary_meta; SELECT (1",
)


@pytest.mark.parametrize("text", ATTEMPTS)
def test_keys_and_payloads_are_data_whatever_they_say(text: str, platform: Platform) -> None:
    platform.apply(command("COUNTRY", {"AT": {"name": "Austria"}}, tenantId="tenant-b"))
    [found, *_] = platform.apply(
        command("COUNTRY", {text: {"name": text}, "BE": {"name": "Belgium", text: text}}),
        command("NOTES", {text: {text: text}}),
        command("COUNTRY", {text: None, "CL": {"name": text}}),
    )
    assert (found.status, found.version) == ("COMMITTED", 1)
    assert platform.countries() == {"BE": "Belgium", "CL": text}
    assert platform.notes() == {text: {text: text}}
    assert platform.countries("tenant-b") == {"AT": "Austria"}


@pytest.mark.parametrize("code", ["COUNTRY", "NOTES"])
@pytest.mark.parametrize("text", ATTEMPTS)
def test_snapshots_are_data_whatever_they_say(text: str, code: str, platform: Platform) -> None:
    one = chunk(code, "8e9f0f2e-6c80-4a0f-9a5e-4a5ab3ed2b10", 1, 1, {text: {"name": text}})
    assert platform.statuses(one) == [("COMMITTED", 1, None)]
    assert (platform.countries() if code == "COUNTRY" else platform.notes()) == {
        text: text if code == "COUNTRY" else {"name": text}
    }


@pytest.mark.parametrize("text", [text for text in ATTEMPTS if len(text) <= 64])
def test_a_tenant_or_dictionary_cannot_even_be_called_so(text: str) -> None:
    for name in ("tenantId", "dictCode"):
        with pytest.raises(Exception, match=name):
            command("COUNTRY", {"AT": {}}, **{name: text})


def test_what_the_database_says_of_one_tenant_s_command_names_no_other_s_data(platform: Platform) -> None:
    platform.sql("CREATE UNIQUE INDEX one_name ON mdm_country (name)")
    try:
        platform.apply(command("COUNTRY", {"AT": {"name": "a secret"}}, tenantId="tenant-b"))
        [found] = platform.apply(command("COUNTRY", {"XX": {"name": "a secret"}}))
    finally:
        platform.sql("DROP INDEX one_name")
    assert found.error_code == "ITEM_REFUSED"
    assert "tenant-b" not in str(found.sentence) and "a secret" not in str(found.sentence)
