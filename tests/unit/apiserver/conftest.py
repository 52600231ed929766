from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from setpoint.apiserver.http.limits import Limits
from setpoint.apiserver.http.server import Server
from setpoint.store.interface import Store
from setpoint.store.memory import MemoryStore

sys.path.insert(0, str(Path(__file__).parent))

from front_door import FrontDoor, YieldingStore
from lagging_store import LaggingStore
from mutation_detector import MutationDetector, nothing_shared_is_changed
from wire_client import Wire


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Modules that name `STORES` are run on each of them, where a test uses a server."""
    stores = getattr(metafunc.module, "STORES", ())
    if stores and "store_kind" in metafunc.fixturenames:
        metafunc.parametrize("store_kind", stores, indirect=True)


@pytest.fixture
def store_kind(request: pytest.FixtureRequest) -> str:
    """`memory`, or `lagging`: a store that shows nothing earlier than the contract demands."""
    return str(getattr(request, "param", "memory"))


@pytest.fixture
def new_store(store_kind: str) -> Store:
    return LaggingStore() if store_kind == "lagging" else MemoryStore()


@pytest.fixture
async def door(
    new_store: Store, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[FrontDoor]:
    front_door = await FrontDoor.open(new_store)
    yield front_door
    await front_door.close()


@pytest.fixture
async def busy_door(
    store_kind: str, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[FrontDoor]:
    """One whose store takes its time, so that writers meet."""
    front_door = await FrontDoor.open(LaggingStore() if store_kind == "lagging" else YieldingStore())
    yield front_door
    await front_door.close()


@pytest.fixture
async def full_door(
    new_store: Store, mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[FrontDoor]:
    """With everything that a cluster begins with."""
    front_door = await FrontDoor.open(new_store, full=True)
    yield front_door
    await front_door.close()


@pytest.fixture
async def wire(door: FrontDoor) -> AsyncIterator[Wire]:
    """The same server behind a real socket, in virtual time: deadlines are looked at often and pass when told to."""
    server = Server(door.api.handle, clock=door.clock, limits=Limits(tick=0.005), on_error=door.api.unexpected)
    address = await server.start("127.0.0.1", 0)
    served = Wire(address, door)
    yield served
    served.close()
    await server.stop(0)
