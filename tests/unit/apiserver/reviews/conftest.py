from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mutation_detector import MutationDetector
from server_harness import ServerHarness


@pytest.fixture
async def issuer(
    tmp_path: Path, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[ServerHarness]:
    """A server that can keep a key, with the ServiceAccount `sa`."""
    harness = await ServerHarness.open(cert_dir=tmp_path, service_account_issuer=["https://issuer"])
    await harness.make("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}})
    yield harness
    await harness.close()
