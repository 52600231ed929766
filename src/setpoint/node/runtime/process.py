"""A simulated program while it runs. It goes on when somebody looks, from where it was to the present."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from setpoint.node.runtime.log import BoundedLog
from setpoint.node.runtime.shell.session import (
    WAIT_FOR_INPUT,
    WAIT_FOR_JOBS,
    WAIT_FOR_TEXT,
    Exit,
    Return,
    Running,
    Session,
)

_NEVER = float("inf")
_MOST_STEPS = 500
"""In one instant. A program that does more without ever pausing spins, and is let on once a second."""
_SPIN_PAUSE = 1.0

KILLED, TERMINATED = 137, 143
_FIRST_JOB = 7
"""The process number of the first program in the background."""


class _Thread:
    __slots__ = ("at", "code", "number", "running", "waits_for")

    def __init__(self, running: Running, at: float, number: int) -> None:
        self.number = number
        self.running = running
        self.at = at
        """When it goes on; never, if it waits for something else than time."""
        self.waits_for = 0.0
        self.code: int | None = None


class Process:
    def __init__(self, start: Callable[[Process], tuple[Session, Running]], at: float, output: BoundedLog) -> None:
        """`start` gives the session and what runs in it; the first thread is the program itself."""
        self.time = at
        """Where the program is; never ahead of the present."""
        self.output = output
        self.exit_code: int | None = None
        self.ended_at = at
        self._threads: list[_Thread] = []
        self._current: _Thread | None = None
        """The thread that runs now, or ran last."""
        self._spun = 0
        self._done: list[asyncio.Future[None]] = []
        session, running = start(self)
        self._session: Session | None = session
        """None once the program has ended. The session refers to this process, so keeping it would be a cycle."""
        self.typed = session.typed
        self._threads.append(_Thread(running, at, 1))
        self._started = _FIRST_JOB

    @property
    def wake(self) -> float | None:
        """When it does something next, by itself."""
        if self.exit_code is not None:
            return None
        earliest = min(thread.at for thread in self._threads)
        return None if earliest == _NEVER else earliest

    @property
    def waits_for_input(self) -> bool:
        return any(thread.waits_for in (WAIT_FOR_INPUT, WAIT_FOR_TEXT) for thread in self._threads)

    def spawn(self, running: Running) -> int:
        """Run something in the background; the result is its process number."""
        number, self._started = self._started, self._started + 1
        if len(self._threads) < 50:
            self._threads.append(_Thread(running, self.time, number))
        return number

    def has_job(self, number: int) -> bool:
        return any(thread.number == number for thread in self._threads[1:])

    def kill_job(self, number: int) -> None:
        """End what was started in the background, unless it is this very moment's program."""
        for thread in [each for each in self._threads[1:] if each.number == number]:
            if thread is not self._current:
                thread.running.close()
                self._threads.remove(thread)
                self._wake_waiting()

    def advance(self, now: float) -> None:
        while self.exit_code is None:
            thread = min(self._threads, key=lambda each: each.at)
            if thread.at > now:
                return
            if thread.at > self.time:
                self.time, self._spun = thread.at, 0
            self._spun += 1
            if self._spun > _MOST_STEPS:
                self._spun = 0
                for each in self._threads:
                    each.at = max(each.at, self.time + _SPIN_PAUSE)
                continue
            self._resume(thread)

    def _resume(self, thread: _Thread) -> None:
        self._current = thread
        try:
            pause = next(thread.running)
        except StopIteration as ended:
            self._ended(thread, int(ended.value or 0))
        except (Exit, Return) as ended:
            self._ended(thread, ended.code)
        except RecursionError:
            self._ended(thread, 2)
        else:
            thread.waits_for = pause
            thread.at = self.time + pause if pause >= 0 else _NEVER
            if pause == WAIT_FOR_JOBS:
                self._wake_waiting()
            elif pause in (WAIT_FOR_INPUT, WAIT_FOR_TEXT):
                self.fed()

    def _ended(self, thread: _Thread, code: int) -> None:
        if thread is self._threads[0]:
            self.end(code, self.time)
        else:
            self._threads.remove(thread)
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        main = self._threads[0]
        if main.waits_for == WAIT_FOR_JOBS and len(self._threads) == 1:
            main.at, main.waits_for = self.time, 0.0

    def fed(self) -> None:
        """There may be input."""
        typed = self.typed
        for thread in self._threads:
            if thread.waits_for == WAIT_FOR_INPUT:
                woken = typed.closed or "\n" in typed.text
            else:
                woken = thread.waits_for == WAIT_FOR_TEXT and (typed.closed or typed.text != "")
            if woken:
                thread.at, thread.waits_for = self.time, 0.0

    def signal(self, name: str, now: float) -> bool:
        """Whether the program heard it: it has a trap for it."""
        self.advance(now)
        session = self._session
        if session is None or name not in session.traps:
            return False
        session.signal = name
        main = self._threads[0]
        if main.waits_for == WAIT_FOR_JOBS:
            main.at, main.waits_for = now, 0.0
        self.advance(now)
        return True

    def end(self, code: int, at: float) -> None:
        if self.exit_code is not None:
            return
        self.exit_code, self.ended_at, self._session = code, at, None
        for thread in self._threads:
            thread.running.close()
        del self._threads[1:]
        self.output.close()
        for waiter in self._done:
            if not waiter.done():
                waiter.set_result(None)
        self._done.clear()

    async def ended(self) -> None:
        while self.exit_code is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._done.append(waiter)
            await waiter
