"""Nothing secret is logged."""

from __future__ import annotations

import pytest

from app.adapters import logs
from app.adapters.settings import Settings


@pytest.mark.parametrize("field", ["password", "api_key", "database_url", "token", "authorization", "dsn"])
def test_a_field_with_the_name_of_a_secret_is_hidden(field: str) -> None:
    assert logs.redact(None, "info", {"event": "e", field: "s3cret"}) == {"event": "e", field: "***"}


def test_other_fields_are_shown() -> None:
    assert logs.redact(None, "info", {"event": "e", "upload_id": "1"}) == {"event": "e", "upload_id": "1"}


def test_settings_do_not_show_their_secrets(tmp_path: object) -> None:
    environ = {
        "HEADWORKS_DATABASE_URL": "postgresql://u:s3cret@h/d",
        "HEADWORKS_BROKER_URL": "redis://:s3cret@h/0",
        "HEADWORKS_DATA_DIR": "/data",
        "HEADWORKS_API_KEY": "s3cret",
    }
    assert "s3cret" not in repr(Settings.from_env(environ))
