"""A person with a browser: Chromium on the pages of a running fleet, and what such a person checks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from tests.conftest import KEY

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()
SECONDS = 20_000  # in milliseconds: an upload ends within it, also on a busy machine

PHONE: dict[str, Any] = {
    "viewport": {"width": 320, "height": 640},
    "is_mobile": True,
    "has_touch": True,
}


@dataclass
class Visit:
    """One person's browser on one workspace, and whatever went wrong in it."""

    context: BrowserContext
    page: Page
    url: str
    workspace: str
    wrongs: list[str] = field(default_factory=list)

    def goto(self, path: str) -> Page:
        """The page at this path, about this visit's workspace."""
        joint = "&" if "?" in path else "?"
        self.page.goto(f"{self.url}{path}{joint}workspace_id={self.workspace}")
        return self.page

    def choose(self, *files: Path | tuple[str, bytes]) -> None:
        """These files are chosen in the form."""
        chosen: list[Any] = [
            {"name": file.name, "mimeType": "text/csv", "buffer": file.read_bytes()}
            if isinstance(file, Path)
            else {"name": file[0], "mimeType": "text/csv", "buffer": file[1]}
            for file in files
        ]
        self.page.set_input_files("#file", chosen)

    def upload(self, *files: Path | tuple[str, bytes], currency: str = "", platform: str = "") -> str:
        """The files are uploaded with the form; the address that this led to."""
        self.goto("/")
        self.choose(*files)
        if currency:
            self.page.fill("#currency", currency)
        if platform:
            self.page.select_option("#platform", platform)
        return self.follow("button[value=upload]")

    def follow(self, button: str) -> str:
        """The button is pressed and leads to the page of an upload; its address."""
        with self.page.expect_navigation(url="**/uploads/*"):
            self.page.click(button)
        return self.page.url

    def ended(self) -> str:
        """The state of the upload on the page once it is terminal."""
        self.page.wait_for_selector("#upload:not([data-progress])", timeout=SECONDS)
        return self.page.inner_text(".title-row .badge")

    def tile(self, name: str) -> str:
        """The number in one of the tiles."""
        return self.page.inner_text(f".tiles div:has(dt:text-is('{name}')) dd")


@contextmanager
def visit(
    browser: Browser, url: str, workspace: str | None = None, *, key: str | None = KEY, **options: Any
) -> Iterator[Visit]:
    """A person who has logged in, if there is a key.

    At the end no script failed, no policy was broken, no dialog was opened.
    """
    context = browser.new_context(**options)
    assert key is None or context.request.post(f"{url}/login", form={"key": key}).ok
    page = context.new_page()
    found = Visit(context, page, url, workspace or str(uuid.uuid4()))
    page.on("pageerror", lambda error: found.wrongs.append(f"script: {error}"))
    page.on("dialog", lambda dialog: (found.wrongs.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "console",
        lambda message: (
            found.wrongs.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    try:
        yield found
        assert found.wrongs == []
    finally:
        context.close()


# -- what a person with a screen reader, a keyboard or weak eyes meets

_LOOK = (Path(__file__).parent / "audit.js").read_text(encoding="utf-8")


def audit(page: Page) -> list[str]:
    """What a page keeps from people who use it otherwise: names, order, contrast."""
    page.evaluate(_LOOK)
    return [*page.evaluate("audit.names()"), *page.evaluate("audit.contrast()")]


def unseen_focus(page: Page) -> list[str]:
    """Places that the Tab key stops at without showing it."""
    wrongs, stops = [], 0
    page.evaluate(_LOOK)
    page.evaluate("document.activeElement.blur()")
    for _ in range(200):
        page.keyboard.press("Tab")
        found = page.evaluate("audit.focus()")
        if found["tag"] == "BODY":
            break
        stops += 1
        if not found["seen"]:
            wrongs.append(f"{found['tag']} {found['text']}")
    return wrongs if stops >= 5 else [f"only {stops} stops"]
