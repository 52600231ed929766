from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from custom_resource_harness import CustomResourceHarness
from mutation_detector import MutationDetector

from setpoint.store.interface import Store


@pytest.fixture
async def harness(
    new_store: Store, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[CustomResourceHarness]:
    opened = await CustomResourceHarness.open(new_store)
    assert isinstance(opened, CustomResourceHarness)
    opened.begin()
    yield opened
    await opened.end()
