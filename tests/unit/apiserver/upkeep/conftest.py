from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from running_loops import RunningLoops


@pytest.fixture
async def running() -> AsyncIterator[RunningLoops]:
    loops = RunningLoops()
    yield loops
    await loops.stop()
