"""Unit tests reach nothing: sockets are off."""

from __future__ import annotations

import pytest
import pytest_socket


@pytest.fixture(autouse=True)
def _no_sockets() -> None:
    pytest_socket.disable_socket()
