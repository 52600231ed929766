"""Simulated containers while the runtime has them, and the programs that run in them."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.clock import Clock
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.interface import ContainerRecord, Launch
from setpoint.node.runtime.log import BoundedLog
from setpoint.node.runtime.process import KILLED, Process

START_ERROR = "StartError"
"""The reason of a container whose program does not exist."""


class Container:
    __slots__ = ("files", "kill_at", "launch", "log", "process", "record", "serving")

    def __init__(self, launch: Launch, record: ContainerRecord) -> None:
        self.launch = launch
        self.record = record
        self.process: Process | None = None
        """None: a server, which does nothing by itself."""
        self.log: BoundedLog | None = None
        self.serving: list[str] | None = None
        """The command line of the server that its shell has started."""
        self.files: Files | None = None
        self.kill_at: float | None = None

    @property
    def serves(self) -> bool:
        """Whether a server runs in it, and not only a script."""
        return self.process is None or self.serving is not None

    def settle(self) -> None:
        """What the process did is what the container did."""
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
        """There is no such program, so the runtime cannot start the container."""
        self.record.started_at, self.record.finished_at = 0.0, at
        self.record.exit_code, self.record.reason = 128, START_ERROR
        self.record.message = (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            f'failed: unable to start container process: error during container init: exec: "{program}": '
            "executable file not found in $PATH"
        )

    def _record_end(self, code: int, at: float) -> None:
        record, spec = self.record, self.launch.spec
        record.finished_at, record.exit_code = at, code
        record.reason = "Error" if code else "Completed"
        message = self.files.read(spec.get("terminationMessagePath") or "/dev/termination-log") if self.files else ""
        from_log = code and spec.get("terminationMessagePolicy") == "FallbackToLogsOnError" and self.log is not None
        if not message and from_log and self.log is not None:
            message = "".join(line.text for line in tuple(self.log.lines())[-80:])[-2048:]
        record.message = (message or "")[:4096]


class PodContainers:
    """Those of one Pod."""

    __slots__ = ("address", "commands", "current", "node", "previous")

    def __init__(self) -> None:
        self.address = ""
        self.node = ""
        """The name of the node that the Pod is on."""
        self.current: dict[str, Container] = {}
        self.previous: dict[str, Container] = {}
        self.commands: list[tuple[str, Process]] = []
        """Started in a running container from outside, by its name."""


class Command:
    """A program that somebody started in a container, or watches there."""

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
        self._process.typed.text += text
        self._fed()

    def close_input(self) -> None:
        self._process.typed.closed = True
        self._fed()

    def _fed(self) -> None:
        now = self._clock.now().timestamp()
        self._process.advance(now)
        self._process.time = now
        self._process.fed()
        self._process.advance(now)
        self._changed()

    def kill(self) -> None:
        self._process.end(KILLED, self._clock.now().timestamp())

    async def wait(self) -> int:
        await self._process.ended()
        return self._process.exit_code or 0
