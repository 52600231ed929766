from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from front_door import FrontDoor
from mutation_detector import MutationDetector


@pytest.fixture
async def issuer(
    tmp_path: Path, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[FrontDoor]:
    """A server that can keep a key, with the ServiceAccount `sa`."""
    front_door = await FrontDoor.open(cert_dir=tmp_path, service_account_issuer=["https://issuer"])
    await front_door.make("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}})
    yield front_door
    await front_door.close()
