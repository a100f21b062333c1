"""Why a whole list is refused: a code of the registry, the stage, and facts about it."""

from __future__ import annotations

from app.suppliers import codes


class SupplierFailure(Exception):
    """A list that is not published. `detail` holds names and numbers, never prose."""

    def __init__(self, code: str, *, stage: str, **detail: str | int) -> None:
        codes.of_kind(code, "fail")
        super().__init__(code, stage, detail)
        self.code = code
        self.stage = stage  # config, gate, dq or publish
        self.detail = detail
