from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import chosen_stores
import pytest
from mutation_detector import MutationDetector, nothing_shared_is_changed
from raw_http_client import Wire
from server_harness import ServerHarness, YieldingStore
from store_choice import is_lagging

from setpoint.store.interface import Store
from setpoint.wire.limits import Limits
from setpoint.wire.server import Server


@pytest.fixture
def mutation_detector() -> Iterator[MutationDetector]:
    """Objects in the caches are shared by all readers: after the test each must still be what its bytes say."""
    with nothing_shared_is_changed() as detector:
        yield detector


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Bad input is no reason to log an error, and never one for a traceback."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    loud = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR or record.exc_info]
    assert not loud, [record.getMessage() for record in loud]


@pytest.fixture
def new_store() -> Store:
    return chosen_stores.new_store()


@pytest.fixture
async def harness(
    new_store: Store, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[ServerHarness]:
    harness = await ServerHarness.open(new_store)
    yield harness
    await harness.close()


@pytest.fixture
async def contended_harness(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[ServerHarness]:
    """One whose store takes its time, so that writers meet."""
    harness = await ServerHarness.open(chosen_stores.new_store() if is_lagging() else YieldingStore())
    yield harness
    await harness.close()


@pytest.fixture
async def full_harness(
    new_store: Store, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[ServerHarness]:
    """With everything that a cluster begins with."""
    harness = await ServerHarness.open(new_store, full=True)
    yield harness
    await harness.close()


@pytest.fixture
async def wire(harness: ServerHarness) -> AsyncIterator[Wire]:
    """The same server behind a real socket, in virtual time: deadlines are looked at often and pass when told to."""
    server = Server(harness.api.handle, clock=harness.clock, limits=Limits(tick=0.005), on_error=harness.api.unexpected)
    address = await server.start("127.0.0.1", 0)
    served = Wire(address, harness)
    yield served
    served.close()
    await server.stop(0)
