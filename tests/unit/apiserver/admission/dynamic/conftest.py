from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "custom"))

from custom_door import CustomDoor
from mutation_detector import MutationDetector


@pytest.fixture
async def door(mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture) -> AsyncIterator[CustomDoor]:
    opened = await CustomDoor.open()
    assert isinstance(opened, CustomDoor)
    opened.begin()
    yield opened
    await opened.end()
