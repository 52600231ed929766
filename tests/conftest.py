from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))

if TYPE_CHECKING:
    from local_server import LocalServer

    from setpoint.client import Client


@pytest.fixture
async def local_server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    """A whole API server in the test's own process: `.client` is its administrator, `.clock` stands still."""
    # Here, so that tests of small rooms load no server.
    from local_server import local_server

    async with local_server(tmp_path) as server:
        yield server


@pytest.fixture
def client(local_server: LocalServer) -> Client:
    return local_server.client
