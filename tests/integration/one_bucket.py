"""An object store that speaks S3 over HTTP, and the credentials that it takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "dummy-id",
    "AWS_SECRET_ACCESS_KEY": "dummy-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    """The address of the store."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has what the store asks for, and looks nowhere else."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
