"""Processes of the machines: started, signalled, and started again when they end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_RESTART_PAUSE = 0.5


class Process:
    """A process that is started again when it ends, as a service manager does, unless it is held down."""

    def __init__(
        self,
        name: str,
        machine: str,
        command: Callable[[], Sequence[str]],
        log: Path,
        on_exit: Callable[[Process, int], None],
        environment: dict[str, str] | None = None,
    ) -> None:
        """`command` returns the command line of the next start; `on_exit` is called with the exit code when the process
        ends without having been signalled by `end`."""
        self.name = name
        self.machine = machine
        self._command = command
        self._log = log
        self._on_exit = on_exit
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = asyncio.Event()
        self._expected_exit = False
        self._starting = asyncio.Lock()
        """Held while the process is started: it may run before it is known here."""

    def __str__(self) -> str:
        return f"{self.name}@{self.machine}"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def start(self) -> None:
        self._wanted.set()

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def suspend(self) -> None:
        """Suspend the process, and wait until it has stopped. One of its threads must run to receive the signal, and on a
        busy machine the others work on until then."""
        self.send(signal.SIGSTOP)
        if self._process is not None:
            with suppress(ChildProcessError):  # it has ended
                await asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    async def end(self, number: signal.Signals = signal.SIGKILL, timeout: float = 20.0) -> None:
        """End the process by a signal, and hold it down until `start` is called."""
        self._wanted.clear()
        async with self._starting:
            self._expected_exit = True
            process = self._process
        if process is None:
            return
        self.send(number)
        try:
            await asyncio.wait_for(process.wait(), timeout)
        except TimeoutError:
            self.send(signal.SIGKILL)
            await process.wait()

    async def supervise(self) -> None:
        """Keep the process running whenever it is wanted; end it on cancellation."""
        try:
            while True:
                await self._wanted.wait()
                async with self._starting:
                    if not self._wanted.is_set():
                        continue
                    self._expected_exit = False
                    with self._log.open("ab") as log:
                        self._process = await asyncio.create_subprocess_exec(
                            *self._command(),
                            stdin=asyncio.subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            env=self._environment,
                        )
                code = await self._process.wait()
                if not self._expected_exit:
                    self._on_exit(self, code)
                    await asyncio.sleep(_RESTART_PAUSE)
        finally:
            self.send(signal.SIGKILL)
            if self._process is not None:
                await self._process.wait()
