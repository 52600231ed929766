"""Simulated containers, the processes that run in them, and their logs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.interface import START_ERROR, ContainerConfig, ContainerRecord, LogLine
from setpoint.node.runtime.shell.session import (
    WAIT_FOR_INPUT,
    WAIT_FOR_JOBS,
    WAIT_FOR_TEXT,
    Exit,
    ProgramRun,
    Return,
    Session,
)

_MAX_LINES = 2000
_NEVER = float("inf")
_MAX_STEPS_AT_TIME = 500
"""Steps without a pause. A program that makes more spins and is resumed once a second."""
_SPIN_PAUSE = 1.0
KILLED, TERMINATED = 137, 143
"""The exit codes of programs that SIGKILL and SIGTERM ended."""
CONTAINER_ID_SCHEME = "simulated://"
_FIRST_JOB_NUMBER = 7
"""The process id of the first background job."""


class BoundedLog:
    """A log in memory that drops its oldest lines."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_MAX_LINES)
        self._written = 0
        """The number of lines written so far, including dropped ones."""
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []

    def write(self, at: float, stream: str, text: str) -> None:
        for line in text.splitlines(keepends=True):
            self._lines.append(LogLine(at, stream, line))
            self._written += 1
        self._wake()

    def close(self) -> None:
        """End the log: nothing will be written any more."""
        self._closed = True
        self._wake()

    def lines(self) -> Sequence[LogLine]:
        return tuple(self._lines)

    def text(self) -> str:
        return "".join(line.text for line in self._lines)

    async def follow(self) -> AsyncIterator[LogLine]:
        read_count = self._written - len(self._lines)
        while True:
            behind = self._written - read_count
            read_count = self._written
            if behind:
                for line in tuple(self._lines)[-behind:]:
                    yield line
            elif self._closed:
                return
            else:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class _Job:
    """A program in the foreground or background of a process."""

    __slots__ = ("at", "number", "running", "waits_for")

    def __init__(self, running: ProgramRun, at: float, number: int) -> None:
        self.number = number
        self.running = running
        self.at = at
        """The time at which the job resumes; infinite if it does not wait for a time."""
        self.waits_for = 0.0
        """The value that the program yielded last: seconds, or one of the WAIT_FOR constants."""


class Process:
    """A simulated process. It is advanced on demand, from the time it has reached to the present."""

    def __init__(self, start: Callable[[Process], tuple[Session, ProgramRun]], at: float, output: BoundedLog) -> None:
        """Create the process. `start` returns the session and the main program, which becomes the first job."""
        self.time = at
        """The time up to which the program has run; never in the future."""
        self.output = output
        self.exit_code: int | None = None
        self.ended_at = at
        self._jobs: list[_Job] = []
        self._current: _Job | None = None
        """The job that runs now, or ran last; None before the first step."""
        self._steps_at_time = 0
        self._end_waiters: list[asyncio.Future[None]] = []
        session, running = start(self)
        self._session: Session | None = session
        """The session; None once the program has ended, because the session refers to this process and would form a
        cycle."""
        self.stdin_buffer = session.stdin_buffer
        self._jobs.append(_Job(running, at, 1))
        self._next_job_number = _FIRST_JOB_NUMBER

    @property
    def next_wakeup(self) -> float | None:
        """Return when the process does something next without input, or None."""
        if self.exit_code is not None:
            return None
        earliest = min(job.at for job in self._jobs)
        return None if earliest == _NEVER else earliest

    @property
    def waits_for_input(self) -> bool:
        return any(job.waits_for in (WAIT_FOR_INPUT, WAIT_FOR_TEXT) for job in self._jobs)

    def spawn(self, running: ProgramRun) -> int:
        """Start a background job and return its process id."""
        number, self._next_job_number = self._next_job_number, self._next_job_number + 1
        if len(self._jobs) < 50:
            self._jobs.append(_Job(running, self.time, number))
        return number

    def has_job(self, number: int) -> bool:
        return any(job.number == number for job in self._jobs[1:])

    def kill_job(self, number: int) -> None:
        """End a background job, unless it is the one that runs now."""
        for job in [each for each in self._jobs[1:] if each.number == number]:
            if job is not self._current:
                job.running.close()
                self._jobs.remove(job)
                self._wake_main_job()

    def advance(self, now: float) -> None:
        while self.exit_code is None:
            job = min(self._jobs, key=lambda each: each.at)
            if job.at > now:
                return
            if job.at > self.time:
                self.time, self._steps_at_time = job.at, 0
            self._steps_at_time += 1
            if self._steps_at_time > _MAX_STEPS_AT_TIME:
                self._steps_at_time = 0
                for each in self._jobs:
                    each.at = max(each.at, self.time + _SPIN_PAUSE)
                continue
            self._resume(job)

    def _resume(self, job: _Job) -> None:
        self._current = job
        try:
            pause = next(job.running)
        except StopIteration as end:
            self._job_ended(job, int(end.value or 0))
        except (Exit, Return) as end:
            self._job_ended(job, end.code)
        except RecursionError:
            self._job_ended(job, 2)
        else:
            job.waits_for = pause
            job.at = self.time + pause if pause >= 0 else _NEVER
            if pause == WAIT_FOR_JOBS:
                self._wake_main_job()
            elif pause in (WAIT_FOR_INPUT, WAIT_FOR_TEXT):
                self.input_changed()

    def _job_ended(self, job: _Job, code: int) -> None:
        if job is self._jobs[0]:
            self.end(code, self.time)
        else:
            self._jobs.remove(job)
            self._wake_main_job()

    def _wake_main_job(self) -> None:
        main = self._jobs[0]
        if main.waits_for == WAIT_FOR_JOBS and len(self._jobs) == 1:
            main.at, main.waits_for = self.time, 0.0

    def input_changed(self) -> None:
        """Resume the jobs that wait for input, if there is enough."""
        stdin_buffer = self.stdin_buffer
        for job in self._jobs:
            if job.waits_for == WAIT_FOR_INPUT:
                woken = stdin_buffer.closed or "\n" in stdin_buffer.text
            else:
                woken = job.waits_for == WAIT_FOR_TEXT and (stdin_buffer.closed or stdin_buffer.text != "")
            if woken:
                job.at, job.waits_for = self.time, 0.0

    def signal(self, name: str, now: float) -> bool:
        """Deliver a signal. Return whether the program has a trap for it."""
        self.advance(now)
        session = self._session
        if session is None or name not in session.traps:
            return False
        session.signal = name
        main = self._jobs[0]
        if main.waits_for == WAIT_FOR_JOBS:
            main.at, main.waits_for = now, 0.0
        self.advance(now)
        return True

    def end(self, code: int, at: float) -> None:
        if self.exit_code is not None:
            return
        self.exit_code, self.ended_at, self._session = code, at, None
        for job in self._jobs:
            job.running.close()
        del self._jobs[1:]
        self.output.close()
        for waiter in self._end_waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._end_waiters.clear()

    async def wait_ended(self) -> None:
        while self.exit_code is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._end_waiters.append(waiter)
            await waiter


class Container:
    """A run of a simulated container."""

    __slots__ = ("config", "files", "kill_at", "log", "process", "record", "server_argv")

    def __init__(self, config: ContainerConfig, record: ContainerRecord) -> None:
        self.config = config
        self.record = record
        self.process: Process | None = None
        """The process; None if the container is a server, which is not executed."""
        self.log: BoundedLog | None = None
        self.server_argv: list[str] | None = None
        """The command line of the server that the container's shell has started; None if it has not."""
        self.files: Files | None = None
        self.kill_at: float | None = None

    @property
    def runs_server(self) -> bool:
        """Return whether a server runs in the container, and not only a script."""
        return self.process is None or self.server_argv is not None

    def sync_record(self) -> None:
        """Copy the end of the process to the record of the container."""
        process = self.process
        if process is not None and process.exit_code is not None and self.record.running:
            self._record_end(process.exit_code, process.ended_at)

    def end(self, code: int, at: float) -> None:
        if self.process is not None:
            self.process.end(code, at)
        elif self.log is not None:
            self.log.close()
        self._record_end(code, at)

    def fail_to_start(self, program: str, at: float) -> None:
        """Record that the container could not start because the program does not exist."""
        self.record.started_at, self.record.finished_at = 0.0, at
        self.record.exit_code, self.record.reason = 128, START_ERROR
        self.record.message = (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            f'failed: unable to start container process: error during container init: exec: "{program}": '
            "executable file not found in $PATH"
        )

    def _record_end(self, code: int, at: float) -> None:
        record, spec = self.record, self.config.spec
        record.finished_at, record.exit_code = at, code
        record.reason = "Error" if code else "Completed"
        message = self.files.read(spec.get("terminationMessagePath") or "/dev/termination-log") if self.files else ""
        from_log = code and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError" and self.log is not None
        if not message and from_log and self.log is not None:
            message = "".join(line.text for line in tuple(self.log.lines())[-80:])[-2048:]
        record.message = (message or "")[:4096]


_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class RepeatedExit(NamedTuple):
    """How a container ends as soon as it starts, as long as it has the same image."""

    code: int
    image: str
    """The image in the Pod's spec."""


def repeated_exit(spec: Mapping[str, Any], reported: Mapping[str, Any]) -> RepeatedExit | None:
    """Return how a container ends in a copy of a cluster whose status says that it keeps exiting on a real node. None
    if it does not, or is simulated there too: then its program is known."""
    waiting = (reported.get("state") or {}).get("waiting") or {}
    ended = (reported.get("lastState") or {}).get("terminated") or {}
    container_id = str(reported.get("containerID") or ended.get("containerID") or "")
    if waiting.get("reason") != "CrashLoopBackOff" or not ended or container_id.startswith(CONTAINER_ID_SCHEME):
        return None
    return RepeatedExit(int(ended.get("exitCode") or 0) & 255, str(spec.get("image", "")))


class PodContainers:
    """The containers of one Pod. What most Pods do not have is replaced and not modified, so that they share it."""

    __slots__ = (
        "address",
        "applied_exit_codes",
        "current",
        "executions",
        "has_sandbox",
        "node",
        "previous",
        "repeated_exits",
    )

    def __init__(self) -> None:
        self.has_sandbox = False
        self.applied_exit_codes: Mapping[str, str] = _NONE
        """The exit code that an annotation requested last, by container."""
        self.repeated_exits: Mapping[str, RepeatedExit] = _NONE
        """How containers end that kept exiting on a real node, by container."""
        self.address = ""
        self.node = ""
        """The name of the Pod's node."""
        self.current: dict[str, Container] = {}
        self.previous: Mapping[str, Container] = _NONE
        self.executions: tuple[tuple[str, Process], ...] = ()
        """Processes started by exec, each with the name of its container."""


class SimulatedExecution:
    """Implements Execution for a process that a client started in a container or attached to."""

    def __init__(self, process: Process, clock: Clock, changed: Callable[[], None]) -> None:
        self._process = process
        self._clock = clock
        self._changed = changed

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def waits_for_input(self) -> bool:
        return self._process.waits_for_input

    @property
    def output(self) -> BoundedLog:
        return self._process.output

    def write(self, text: str) -> None:
        self._process.stdin_buffer.text += text
        self._input_changed()

    def close_input(self) -> None:
        self._process.stdin_buffer.closed = True
        self._input_changed()

    def _input_changed(self) -> None:
        now = self._clock.now().timestamp()
        self._process.advance(now)
        self._process.time = now
        self._process.input_changed()
        self._process.advance(now)
        self._changed()

    def kill(self) -> None:
        self._process.end(KILLED, self._clock.now().timestamp())

    async def wait(self) -> int:
        await self._process.wait_ended()
        return self._process.exit_code or 0
