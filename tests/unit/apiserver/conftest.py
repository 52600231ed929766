from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from setpoint.apiserver.http.limits import Limits
from setpoint.apiserver.http.server import Server

sys.path.insert(0, str(Path(__file__).parent))

from front_door import FrontDoor, YieldingStore
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


@pytest.fixture
async def door(mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture) -> AsyncIterator[FrontDoor]:
    front_door = await FrontDoor.open()
    yield front_door
    await front_door.close()


@pytest.fixture
async def busy_door(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[FrontDoor]:
    """One whose store takes its time, so that writers meet."""
    front_door = await FrontDoor.open(YieldingStore())
    yield front_door
    await front_door.close()


@pytest.fixture
async def full_door(
    mutation_detector: MutationDetector, quiet_log: pytest.LogCaptureFixture
) -> AsyncIterator[FrontDoor]:
    """With everything that a cluster begins with."""
    front_door = await FrontDoor.open(full=True)
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
