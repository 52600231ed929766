from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from custom_door import CustomDoor
from mutation_detector import MutationDetector

from setpoint.store.interface import Store


@pytest.fixture
async def door(
    new_store: Store, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[CustomDoor]:
    opened = await CustomDoor.open(new_store)
    assert isinstance(opened, CustomDoor)
    opened.begin()
    yield opened
    await opened.end()
