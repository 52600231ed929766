from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from several_servers import MaintainedServer, server_pair


@pytest.fixture
async def pair() -> AsyncIterator[tuple[MaintainedServer, MaintainedServer]]:
    """Two servers whose maintenance runs; the first one leads."""
    async with server_pair() as servers:
        yield servers
