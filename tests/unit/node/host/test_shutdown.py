"""Graceful shutdown of a node: order, messages, and what happens when logind fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
from fake_logind import FakeLogind
from stopped_clock import StoppedClock

from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.logind import Logind, LogindError, shutdown_announcement
from setpoint.node.host.shutdown import NodeShutdown, ShutdownGroup, group_of, shutdown_groups
from setpoint.node.pod_worker import PodWorker
from setpoint.system import SystemClock

MESSAGE = "Pod was terminated in response to imminent node shutdown."


def test_groups_divide_the_grace_period() -> None:
    assert shutdown_groups(30.0, 10.0) == (ShutdownGroup(0, 20), ShutdownGroup(2_000_000_000, 10))
    assert shutdown_groups(30.0, 0.0) == (ShutdownGroup(0, 30), ShutdownGroup(2_000_000_000, 0))
    assert shutdown_groups(0.0, 0.0) == ()
    assert shutdown_groups(5.0, 10.0) == ()


@pytest.mark.parametrize(
    ("priority", "seconds"),
    [(None, 20), (-5, 20), (0, 20), (1_999_999_999, 20), (2_000_000_000, 10), (2_000_001_000, 10)],
)
def test_group_of_a_pod(priority: int | None, seconds: int) -> None:
    assert group_of({"spec": {"priority": priority}}, shutdown_groups(30.0, 10.0)).seconds == seconds


class Source:
    """Announces shutdowns when the test does."""

    def __init__(self) -> None:
        self.held = False
        self.log: list[str] = []
        self.preparing = False
        self.problem = ""
        self.failures: list[str] = []
        self.announcements: asyncio.Queue[bool | None] = asyncio.Queue()

    async def missing(self) -> str:
        return self.problem

    async def permit_delay(self, seconds: float) -> None:
        self.log.append(f"permit {seconds:g}")
        if self.failures:
            raise LogindError(self.failures.pop(0))

    async def is_shutting_down(self) -> bool:
        return self.preparing

    async def inhibit(self) -> None:
        self.held = True

    async def release(self) -> None:
        self.held = False

    @asynccontextmanager
    async def shutdowns(self) -> AsyncIterator[AsyncIterator[bool]]:
        async def announced() -> AsyncIterator[bool]:
            while (found := await self.announcements.get()) is not None:
                yield found

        yield announced()


class Worker:
    """A Pod that needs a number of seconds to end."""

    def __init__(self, clock: StoppedClock, name: str, needs: float, priority: int = 0, grace: int = 30) -> None:
        self._clock = clock
        self._needs = needs
        self._ends: float | None = None
        self.uid = name
        self.pod: dict[str, Any] = {
            "metadata": {"name": name},
            "spec": {"priority": priority, "terminationGracePeriodSeconds": grace},
        }
        self.evicted: tuple[float, str, str, float, bool, bool] | None = None
        self.reports = True

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.pod["spec"]
        return found

    @property
    def finished(self) -> bool:
        return self._ends is not None and self._clock.monotonic() >= self._ends

    @property
    def reported(self) -> dict[str, str]:
        return {"phase": "Failed" if self.finished and self.reports else "Running"}

    def evict(self, reason: str, message: str, grace: float, *, disruption: bool, announced: bool = True) -> None:
        now = self._clock.monotonic()
        self._ends = now + min(self._needs, grace)
        self.evicted = (now, reason, message, grace, disruption, announced)


class Node:
    """A node with Pods, and the loop that waits for shutdowns."""

    def __init__(self, clock: StoppedClock, source: Source, *workers: Worker) -> None:
        self.events: list[str] = []
        self.changes: list[bool] = []
        self.stepped: list[str] = []
        self.source = source
        self.shutdown = NodeShutdown(
            shutdown_groups(30.0, 10.0),
            source,
            clock,
            lambda: cast(list[PodWorker], [*workers]),
            self.stepped.append,
            lambda reason, message: self.events.append(f"{reason}: {message}"),
            self.changes.append,
        )


@asynccontextmanager
async def running(clock: StoppedClock, source: Source, *workers: Worker) -> AsyncIterator[Node]:
    node = Node(clock, source, *workers)
    task = asyncio.ensure_future(node.shutdown.run())
    await clock.advance(0)
    try:
        yield node
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_critical_pods_end_last() -> None:
    clock, source = StoppedClock(), Source()
    plain, short, critical = (
        Worker(clock, "plain", 6.0),
        Worker(clock, "short", 100.0, grace=3),
        Worker(clock, "critical", 4.0, 2_000_001_000),
    )
    async with running(clock, source, plain, short, critical) as node:
        assert source.held and node.shutdown.rejection() is None
        assert source.log == ["permit 30"]
        await clock.advance(100)
        source.announcements.put_nowait(True)
        await clock.advance(1)
        assert node.shutdown.rejection() == ("NodeShutdown", "Pod was rejected as the node is shutting down.")
        assert node.changes == [True]
        assert node.events == ["NodeShutdown: Shutdown manager detected shutdown event"]
        assert plain.evicted == (100.0, "Terminated", MESSAGE, 20.0, True, False)
        assert short.evicted is not None and short.evicted[3] == 3.0
        assert critical.evicted is None and source.held
        await clock.advance(5.5)
        assert critical.evicted is not None and critical.evicted[3] == 10.0
        assert source.held
        await clock.advance(4.5)
        assert not source.held
        assert node.stepped == ["plain", "short", "critical"]


async def test_shutdown_does_not_wait_longer_than_permitted() -> None:
    clock, source = StoppedClock(), Source()
    slow, critical = Worker(clock, "slow", 100.0, grace=60), Worker(clock, "critical", 100.0, 2_000_000_000, 60)
    slow._needs = critical._needs = 100.0
    async with running(clock, source, slow, critical):
        for worker in (slow, critical):
            worker.evict = lambda *_, **__: None  # type: ignore[method-assign]
        source.announcements.put_nowait(True)
        await clock.advance(29)
        assert source.held
        await clock.advance(2)
        assert not source.held


async def test_unreported_status_delays_a_shutdown_briefly() -> None:
    clock, source = StoppedClock(), Source()
    worker = Worker(clock, "offline", 1.0)
    worker.reports = False
    async with running(clock, source, worker):
        source.announcements.put_nowait(True)
        await clock.advance(2)
        assert worker.finished and source.held
        await clock.advance(2)
        assert not source.held


async def test_cancelled_shutdown_is_forgotten() -> None:
    clock, source = StoppedClock(), Source()
    async with running(clock, source, Worker(clock, "a", 1.0)) as node:
        source.announcements.put_nowait(True)
        await clock.advance(5)
        source.announcements.put_nowait(False)
        await clock.advance(1)
        assert node.changes == [True, False] and source.held
        assert node.events[1] == "NodeShutdown: Shutdown manager detected shutdown cancellation"
        assert node.shutdown.rejection() is None


async def test_shutdown_that_began_before_is_noticed_once() -> None:
    clock, source = StoppedClock(), Source()
    source.preparing = True
    worker = Worker(clock, "a", 1.0)
    async with running(clock, source, worker) as node:
        source.announcements.put_nowait(True)
        await clock.advance(5)
        assert node.changes == [True] and worker.evicted is not None and not source.held


async def test_failures_are_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, source = StoppedClock(), Source()
    source.failures = ["no bus", "no bus", "no bus"]
    with caplog.at_level(logging.WARNING, "setpoint.node"):
        async with running(clock, source):
            await clock.advance(10)
            assert source.held
            source.announcements.put_nowait(None)  # the connection is lost
            await clock.advance(2)
            assert source.held
    assert caplog.messages == [
        "a shutdown of this machine is not noticed: no bus",
        "a shutdown of this machine is not noticed: the connection to the system bus was lost",
    ]


async def test_machine_without_logind_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    source = Source()
    source.problem = "there is no program busctl"
    with caplog.at_level(logging.WARNING, "setpoint.node"):
        await Node(StoppedClock(), source).shutdown.run()
    text = "Pods are not ended gracefully when this machine shuts down: there is no program busctl"
    assert caplog.messages == [text]


# -- logind ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    made = BlockingPool(2)
    yield made
    made.close()


def _processes_with(directory: Path) -> list[Path]:
    """Return the processes that have a path of the directory among their arguments."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(directory).encode() in each.read_bytes():
                found.append(each)
    return found


def logind(fake: FakeLogind, pool: BlockingPool, configuration: Path) -> Logind:
    return Logind(pool, SystemClock(), fake.search_path, configuration)


async def test_inhibitor_is_held_until_it_is_released(tmp_path: Path, pool: BlockingPool) -> None:
    fake = FakeLogind(tmp_path)
    found = logind(fake, pool, tmp_path / "conf")
    assert await found.missing() == ""
    await found.inhibit()
    assert fake.is_inhibited
    assert "--what=shutdown --mode=delay --who=setpoint" in fake.inhibitor
    await found.inhibit()
    assert fake.is_inhibited
    await found.release()
    assert not fake.is_inhibited
    await found.release()


async def test_announcements_of_the_bus(tmp_path: Path, pool: BlockingPool) -> None:
    fake = FakeLogind(tmp_path)
    found = logind(fake, pool, tmp_path / "conf")
    async with asyncio.timeout(20), found.shutdowns() as announcements:
        fake.announce(True)
        assert await anext(announcements) is True
        assert await found.is_shutting_down()
        fake.announce(False)
        assert await anext(announcements) is False
        assert not await found.is_shutting_down()
        assert _processes_with(tmp_path)
    assert not _processes_with(tmp_path), "the monitor ends with the block"


async def test_longer_delays_are_configured(tmp_path: Path, pool: BlockingPool) -> None:
    fake, path = FakeLogind(tmp_path, delay=5.0, next_delay=30.0), tmp_path / "etc" / "99-setpoint.conf"
    found = logind(fake, pool, path)
    await found.permit_delay(5.0)
    assert not path.exists() and not fake.reloads
    await found.permit_delay(30.0)
    assert path.read_text().endswith("[Login]\nInhibitDelayMaxSec=30\n")
    assert fake.reloads[0].endswith("KillUnit ssi systemd-logind.service all 1")


async def test_delay_that_logind_does_not_permit(tmp_path: Path, pool: BlockingPool) -> None:
    found = logind(FakeLogind(tmp_path, delay=5.0, next_delay=5.0), pool, tmp_path / "conf")
    with pytest.raises(LogindError, match="logind permits a delay of 5 s only, not 30 s"):
        await found.permit_delay(30.0)


async def test_machine_without_the_programs(tmp_path: Path, pool: BlockingPool) -> None:
    found = Logind(pool, SystemClock(), str(tmp_path), tmp_path / "conf")
    assert await found.missing() == "there is no program busctl"
    with pytest.raises(LogindError, match="there is no program systemd-inhibit"):
        await found.inhibit()


async def test_inhibitor_that_is_refused(tmp_path: Path, pool: BlockingPool) -> None:
    program = tmp_path / "systemd-inhibit"
    program.write_text("#!/bin/sh\necho 'Access denied' >&2\nexit 1\n")
    program.chmod(0o755)
    found = Logind(pool, SystemClock(), str(tmp_path), tmp_path / "conf")
    with pytest.raises(LogindError, match="systemd-inhibit failed: Access denied"):
        await found.inhibit()


def test_lines_that_announce_nothing() -> None:
    for line in (b"", b"text", b"[]", b"{}", b'{"member":"PrepareForShutdown","payload":{"data":[]}}', b"null"):
        assert shutdown_announcement(line) is None
    assert shutdown_announcement(b'{"member":"PrepareForSleep","payload":{"type":"b","data":[true]}}') is None
    assert shutdown_announcement(b'{"member":"PrepareForShutdown","payload":{"type":"b","data":[true]}}') is True
