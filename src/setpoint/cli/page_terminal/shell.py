"""The shell of a terminal: it advances the generators of the interpreter on the event loop.

A program that waits for the cluster, the editor or the user is a task. Its generator yields WAIT_FOR_EVENT until the
task is done, and cancels it if the line is interrupted or its output is not read any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from setpoint.meta.clock import Clock
from setpoint.node.runtime.files import Files
from setpoint.node.runtime.shell.interpreter import run_line
from setpoint.node.runtime.shell.session import (
    FOREVER,
    WAIT_FOR_EVENT,
    Aborted,
    Break,
    Continue,
    Program,
    ProgramRun,
    Return,
    Session,
    StdinBuffer,
    Streams,
)
from setpoint.tasks import TaskRegistry, child_tasks, within

log = logging.getLogger("setpoint.cli")

INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141
_STEPS_WITHOUT_PAUSE: Final = 100
_MAX_TEXT: Final = 2 << 20
"""Characters that a program such as `sort` reads as a whole: more would take noticeably long on the event loop."""


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """Limits of one line."""

    steps: int = 200_000
    """Steps of the interpreter between two waits: an endless loop is stopped."""
    seconds: float = FOREVER
    """The duration of a line."""


class TerminalShell:
    """Runs one line after the other. Variables, functions and the current directory stay."""

    def __init__(
        self,
        files: Files,
        home: str,
        clock: Clock,
        stdin: StdinBuffer,
        write: Callable[[str], None],
        limits: ShellLimits,
    ) -> None:
        self._clock = clock
        self._write = write
        self._limits = limits
        self._event = asyncio.Event()
        self._alarm = FOREVER
        """Seconds after which a program that waits for an event is resumed."""
        self._tasks = TaskRegistry()
        self.session = Session(
            lambda: {"HOME": home, "USER": "user"},
            files,
            "setpoint",
            lambda: clock.now().timestamp(),
            self._refuse_job,
            unknown_programs_run=False,
            image_fully_known=True,
            stdin_buffer=stdin,
            directory=home,
            max_text=_MAX_TEXT,
            wake_after=self._wake_after,
        )

    def install(self, programs: Mapping[str, Program]) -> None:
        self.session.programs = programs

    def notify(self) -> None:
        """Resume the programs that wait for an event."""
        self._event.set()

    async def run(self, text: str) -> int:
        """Run a line, and return its exit code. Raise Exit if it ends the shell. A line that is cancelled has ended
        with all its tasks when the cancellation is delivered."""
        streams = Streams(self._write, self._write)
        running = run_line(self.session, text, streams)
        try:
            if self._limits.seconds == FOREVER:
                status = await self._advance(running)
            else:
                status = await within(self._clock, self._limits.seconds, self._advance(running))
        except TimeoutError:
            self._write(f"stopped: the line ran for more than {self._limits.seconds:.0f} s\n")
            status = INTERRUPTED
        finally:
            running.close()
            await self._tasks.stop()
        self.session.status = status
        return status

    async def _advance(self, running: ProgramRun) -> int:
        steps = 0
        while True:
            self._event.clear()
            self._alarm = FOREVER
            try:
                pause = next(running)
            except StopIteration as end:
                return int(end.value or 0)
            except (Aborted, Return) as end:
                return end.code
            except (Break, Continue):
                return 0
            except BrokenPipeError:
                return _BROKEN_PIPE
            except RecursionError:
                self._write("stopped: nested too deeply\n")
                return 2
            steps = steps + 1 if pause == 0.0 else 0
            if steps > self._limits.steps:
                self._write(f"stopped: more than {self._limits.steps:,} steps without a pause; use `sleep` in loops\n")
                return INTERRUPTED
            if pause != 0.0:
                await self._wait(pause)
            elif steps % _STEPS_WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)

    async def _wait(self, pause: float) -> None:
        if pause == FOREVER:
            await asyncio.Event().wait()
        elif pause > 0:
            await self._clock.sleep(pause)
        elif self._alarm == FOREVER:
            await self._event.wait()
        else:
            async with child_tasks(self._event.wait(), self._clock.sleep(self._alarm)) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    def _wake_after(self, seconds: float) -> None:
        self._alarm = min(self._alarm, seconds)

    def _refuse_job(self, running: ProgramRun) -> int:
        running.close()
        self._write("background jobs are not available here; open another terminal\n")
        return 0

    def task(self, work: Coroutine[Any, Any, int]) -> ProgramRun:
        """Run a coroutine as a program of the shell; it returns the exit code."""
        task = self._tasks.start(self._reported(work))
        task.add_done_callback(lambda _: self.notify())
        try:
            while not task.done():
                yield WAIT_FOR_EVENT
            return task.result()
        finally:
            task.cancel()

    async def _reported(self, work: Coroutine[Any, Any, int]) -> int:
        try:
            return await work
        except BrokenPipeError:
            return _BROKEN_PIPE
        except Exception:
            log.exception("a command in the terminal of the page failed")
            self._write("the command failed unexpectedly; the log of the server has the details\n")
            return 1
