"""Runs a class: the front in this process, and workers as child processes that are started again if they end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from setpoint.cluster.classroom.front import TEACHER, ClassFront
from setpoint.cluster.classroom.worker import SEATS_PATH
from setpoint.cluster.classroom.worker_link import WorkerLink
from setpoint.cluster.config import ConfigError
from setpoint.cluster.page import PageConfig, class_limits, listening, page_hosts, page_tls
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.tasks import child_tasks
from setpoint.web.lessons.folder import Courses
from setpoint.web.sessions import Sessions
from setpoint.web.static_files import STATIC
from setpoint.wire.server import Server

log = logging.getLogger("setpoint.cluster")

MAX_SEATS: Final = 1_000
_STOP_TIMEOUT: Final = 0.5
_STARTED_WITHIN: Final = 30.0
"""Seconds until a worker must answer."""
_ENDED_WITHIN: Final = 5.0
"""Seconds that a worker has to end."""
_POLL_INTERVAL: Final = 0.05
_RESTART_DELAY: Final = 1.0
_SESSIONS_BESIDES: Final = 16
"""Number of sessions besides one for each seat: of the teacher, and of learners with a second browser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """The settings of a class."""

    seats: int
    page: PageConfig
    """The address, names and certificate of its page."""
    workers: int = 1
    worker_command: Sequence[str] = (sys.executable, "-m", "setpoint", "__class-worker")
    """The command of a worker, which reads its settings from its standard input and ends when that ends."""
    lessons: str = ""
    """A folder with lessons of the teacher's own; empty means none."""
    sleep_after: float = 300.0
    """Seconds without a request or an open page after which the cluster of a seat sleeps."""


@dataclass(slots=True)
class RunningClass:
    """A class that is served."""

    url: str
    front: ClassFront
    sessions: Sessions

    @property
    def join_link(self) -> str:
        """The link for all learners."""
        return f"{self.url}/#class-{self.front.code}"

    def new_teacher_link(self) -> str:
        """Return a link that lets one browser in as the teacher."""
        return f"{self.url}/#{self.sessions.new_code(TEACHER)}"


class WorkerProcess:
    """A worker as a child process. It is started again if it ends; its seats are then new, and keep their learners."""

    def __init__(self, config: ClassConfig, socket: Path, hosts: Sequence[str], clock: Clock) -> None:
        self._command = config.worker_command
        self._clock = clock
        self.link = WorkerLink(socket, clock)
        self._settings = orjson.dumps(
            {
                "socket": str(socket),
                "seats": config.seats,
                "hosts": list(hosts),
                "tls": config.page.is_tls,
                "lessons": config.lessons,
                "sleepAfter": config.sleep_after,
            }
        )
        self.ready = asyncio.Event()
        """Set when it has answered for the first time."""
        self.front: ClassFront | None = None
        """The front, whose seats a new process of this worker gets."""

    async def run(self) -> None:
        """Run the process until cancelled."""
        while True:
            process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
            try:
                assert process.stdin is not None
                process.stdin.write(self._settings + b"\n")
                await process.stdin.drain()
                if await self._answers(process):
                    await self._restore()
                    self.ready.set()
                code = await process.wait()
                log.error("a worker of the class ended with %d; it is started again", code)
            finally:
                if process.returncode is None:
                    await _end(process)
            await self._clock.sleep(_RESTART_DELAY)

    async def _answers(self, process: asyncio.subprocess.Process) -> bool:
        """Wait until the process answers, and return whether it does."""
        deadline = self._clock.monotonic() + _STARTED_WITHIN
        while process.returncode is None and self._clock.monotonic() < deadline:
            try:
                await self.link.call("GET", SEATS_PATH)
                return True
            except ApiError:
                await self._clock.sleep(_POLL_INTERVAL)
        return False

    async def _restore(self) -> None:
        """Give the learners of this worker their seats again."""
        for seat in [*self.front.seats.values()] if self.front is not None else []:
            if seat.worker is self.link:
                with suppress(ApiError):
                    await self.link.call("PUT", f"{SEATS_PATH}/{seat.id}", {"nickname": seat.nickname})


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and kill it if it does not: nothing of a class is kept."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_ENDED_WITHIN):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def classroom(config: ClassConfig, clock: Clock) -> AsyncIterator[RunningClass]:
    """Run a class while the block runs; it begins when the workers answer. Raises ConfigError."""
    if not 0 < config.seats <= MAX_SEATS or not 0 < config.workers <= config.seats:
        raise ConfigError(f"a class has 1 to {MAX_SEATS} seats, and no more workers than seats")
    config.page.check()
    tls = page_tls(config.page)
    sockets = await listening(config.page)
    hosts = page_hosts(config.page, sockets[0].getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="setpoint-class-") as directory:
        workers = [
            WorkerProcess(config, Path(directory) / f"worker-{number}", hosts, clock)
            for number in range(config.workers)
        ]
        sessions = Sessions(clock, os.urandom, most=config.seats + _SESSIONS_BESIDES)
        front = ClassFront(
            clock=clock,
            entropy=os.urandom,
            hosts=hosts,
            tls=tls is not None,
            seats=config.seats,
            workers=[each.link for each in workers],
            sessions=sessions,
            courses=Courses(Path(config.lessons) if config.lessons else None),
            files=config.page.files or STATIC,
        )
        for each in workers:
            each.front = front
        async with front.entrance, child_tasks(front.run(), *(each.run() for each in workers)):
            try:
                async with asyncio.timeout(_STARTED_WITHIN):
                    for each in workers:
                        await each.ready.wait()
            except TimeoutError:
                raise ConfigError("the workers of the class did not start; see the log above") from None
            limits = class_limits(config.seats)
            server = Server(front.handle, clock=clock, limits=limits, ssl=tls, on_error=front.page.unexpected)
            server.serve(sockets)
            try:
                yield RunningClass(f"{'https' if tls is not None else 'http'}://{hosts[0]}", front, sessions)
            finally:
                await server.stop(_STOP_TIMEOUT)
                await front.page.stop()
