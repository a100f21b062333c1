"""The HTTP API of one instance, for the command line and the samples (standard library only)."""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TERMINAL = ("completed", "partial", "failed")
TIMEOUT_SECONDS = 60.0


class ClientError(RuntimeError):
    """A request came to nothing; the message is a sentence for whoever made it."""


class Unreachable(ClientError):
    """Nothing answers at the address."""


class RequestRefused(ClientError):
    """The instance refuses the request, and says why."""


class Client:
    """Requests to one instance, with its key. Raises `ClientError` for whatever goes wrong."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._key = key
        # Without the proxies of the environment: an instance is usually on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **query: str) -> Any:
        """The decoded answer."""
        return json.loads(self.text(f"{path}?{urllib.parse.urlencode(query)}" if query else path))

    def text(self, path: str) -> str:
        """The answer as it is."""
        return self._send(path).decode()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The decoded answer to a JSON body."""
        return json.loads(self._send(path, json.dumps(body).encode(), {"Content-Type": "application/json"}))

    def upload(
        self, file: Path, fields: Mapping[str, str | None], *, idempotency_key: str | None = None
    ) -> Any:
        """The report is handed in; returns the answer. OSError when the file cannot be read."""
        body, content_type = _multipart(file.read_bytes(), {"filename": file.name, **fields})
        headers = {"Content-Type": content_type}
        if idempotency_key:
            headers["Idempotency-Key"] = idempotency_key
        return json.loads(self._send("/v1/uploads", body, headers))

    def _send(self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        request = urllib.request.Request(self._url + path, data=body, headers=dict(headers or {}))
        if self._key:
            request.add_header("Authorization", f"Bearer {self._key}")
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return response.read()  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            with error:
                raise RequestRefused(_detail(error)) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(f"Nothing answers at {self._url} ({reason}).") from None


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["detail"])
    except (ValueError, KeyError):
        return f"The instance answered with {error.code}."


def _multipart(content: bytes, fields: Mapping[str, str | None]) -> tuple[bytes, str]:
    """Body and content type of a form with one file, `file`."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
        if value is not None
    ]
    parts.append(
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="report"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = "".join(parts).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"
