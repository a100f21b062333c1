"""Requests that were once answered wrongly; what the API's description promises was asked of them."""

from __future__ import annotations

import pytest

from tests.integration.pipeline.conftest import Api


@pytest.mark.parametrize("end", ["", "/history"])
@pytest.mark.parametrize("name", ["%00", "a%00b", "%FF", "a%0A", "a" * 256])
def test_a_name_that_no_file_can_have_is_an_unknown_file(name: str, end: str, pipeline: Api) -> None:
    assert pipeline.call("GET", f"/files/{name}{end}", status=404)["code"] == "unknown_file"
