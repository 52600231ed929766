"""Gates: a debugger for control loops.

Before a worker dequeues a key, the gate of its loop decides whether it may, and which one. A loop whose gate is open
has no gate object at its queue at all, so that an open gate costs one attribute check. A closed gate stops nothing but
reconciles: Leases are renewed, informers deliver changes, and keys are queued and deduplicated.

Each loop has a mode, and there is one for the loops that have none of their own:

- `run`: every key passes;
- `paused`: only single steps pass;
- `slow`: one key passes each `every` seconds; if the mode was set for all loops, one key of all loops together.

A breakpoint pauses all loops when one of them would reconcile a matching key. Someone must renew the hold on the gates
from time to time. Otherwise all of them open again, so that no cluster stays paused by oversight.

With a limit of CPU time (`reconcile/cpu_limit.py`), all gates also close while the loops have used their time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import NamedTuple, Protocol

from setpoint.meta.clock import Clock
from setpoint.reconcile.cpu_limit import CpuLimit
from setpoint.tasks import within
from setpoint.view.why.controllers import RECONCILED_KINDS

HOLD_SECONDS = 600.0
"""Seconds after which closed gates open again, unless the hold is renewed."""
MAX_BREAKPOINTS = 32
_MAX_STEPS = 100


class Mode(StrEnum):
    RUN = "run"
    PAUSED = "paused"
    SLOW = "slow"


class GatedQueue(Protocol):
    """A queue of keys behind a gate."""

    gate: Gate | None
    """The gate that decides about dequeuing; None while it is open."""

    def next_key(self) -> str | None:
        """Return the key that would be dequeued next; None if the queue is empty."""
        ...

    def waiting_since(self, key: str) -> float | None:
        """Return when the key was queued, in seconds of the monotonic clock; None if it cannot be dequeued now."""
        ...

    def expedite(self, key: str) -> bool:
        """Queue a key now that is delayed. Return whether it can be dequeued."""
        ...

    def wake(self) -> None:
        """Let waiting workers ask the gate again."""
        ...


class Breakpoint(NamedTuple):
    """A condition for pausing all loops. Empty fields match everything."""

    number: int
    loop: str
    kind: str
    key: str

    def matches(self, loop: str, key: str) -> bool:
        return (
            self.loop in ("", loop)
            and self.key in ("", key)
            and (not self.kind or self.kind == RECONCILED_KINDS.get(loop))
        )


class Stop(NamedTuple):
    """The reconcile before which a breakpoint paused the loops."""

    loop: str
    key: str
    breakpoint: Breakpoint
    at: float
    """When, in seconds of the monotonic clock."""


class Gate:
    """The gate of the loops with one name."""

    __slots__ = ("_gates", "_next_at", "_own", "_steps", "every", "name", "queues")

    def __init__(self, name: str, gates: Gates) -> None:
        self.name = name
        self.every = 0.0
        """Seconds between two keys in the mode `slow`."""
        self.queues: list[GatedQueue] = []
        """The queues of the loops that run."""
        self._gates = gates
        self._own: Mode | None = None
        """The mode of this loop; None means the mode of all loops."""
        self._steps: deque[str] = deque(maxlen=_MAX_STEPS)
        """Keys that may pass although the loop is paused; empty means the next one."""
        self._next_at = 0.0

    @property
    def mode(self) -> Mode:
        return self._own or self._gates.mode

    @property
    def has_own_mode(self) -> bool:
        return self._own is not None

    @property
    def is_open(self) -> bool:
        gates = self._gates
        return self.mode is Mode.RUN and not gates.breakpoints and gates.resting_until is None

    def set_mode(self, mode: Mode | None, every: float = 0.0) -> None:
        """Set the mode of this loop, or let the mode of all loops apply to it."""
        self._own, self.every, self._next_at = mode, every, 0.0
        if mode is not Mode.PAUSED:
            self._steps.clear()
        self.apply()

    def apply(self) -> None:
        """Set the gate at the queues if it is closed, and let their workers ask again."""
        gate = None if self.is_open else self
        for queue in self.queues:
            queue.gate = gate
            queue.wake()

    def wake(self) -> None:
        for queue in self.queues:
            queue.wake()

    def allow(self, key: str) -> None:
        """Let one key pass, or the next one if `key` is empty."""
        self._steps.append(key)
        self.wake()

    def admit(self, queue: GatedQueue) -> str | None:
        """Return the key that may be dequeued now; None if none may."""
        key = queue.next_key()
        if key is None or self._gates.resting_until is not None:
            return None
        for place, wanted in enumerate(self._steps):
            if not wanted or queue.waiting_since(wanted) is not None:
                del self._steps[place]
                return wanted or key
        gates = self._gates
        if self.mode is Mode.PAUSED:
            return None
        if self.mode is Mode.SLOW and not self._is_due():
            return None
        if gates.breakpoints and gates.breaks(self.name, key):
            return None
        if self.mode is Mode.SLOW:
            self._passed()
        return key

    def _is_due(self) -> bool:
        """Return whether a key may pass in the mode `slow`; if not, ask to be woken when one may."""
        at = self._gates.next_at if self._own is None else self._next_at
        if self._gates.clock.monotonic() >= at:
            return True
        self._gates.wake_at(at)
        return False

    def _passed(self) -> None:
        now = self._gates.clock.monotonic()
        if self._own is None:
            self._gates.passed(self, now)
        else:
            self._next_at = now + self.every


class Gates:
    """The gates of all loops of one process, by name. All are open until a method closes them."""

    def __init__(self, clock: Clock, cpu_limit: CpuLimit | None = None) -> None:
        """`run` must run if there is a limit."""
        self.clock = clock
        self.cpu_limit = cpu_limit
        """The limit of the CPU time of the loops; None means no limit."""
        self.resting_until: float | None = None
        """When the loops go on that have used their CPU time, in seconds of the monotonic clock; None while they have
        not."""
        self.mode = Mode.RUN
        """The mode of the loops that have none of their own."""
        self.every = 0.0
        self.next_at = 0.0
        """When the next key may pass in the mode `slow` of all loops."""
        self.breakpoints: dict[int, Breakpoint] = {}
        self.stopped: Stop | None = None
        """The breakpoint that paused the loops; None if none did, or they run again."""
        self.by = ""
        """The user who changed the gates last; empty if none has, or the hold has expired."""
        self.held_until: float | None = None
        """When all gates open again, in seconds of the monotonic clock; None if all are open."""
        self._gates: dict[str, Gate] = {}
        self._numbers = 0
        self._pass_once: tuple[str, str] | None = None
        """The loop and key at which a breakpoint has stopped, and that may pass when the loops go on."""
        self._wake_at: float | None = None
        self._changed = asyncio.Event()

    def gate(self, name: str) -> Gate:
        """Return the gate of the loops with this name; the first call creates it."""
        found = self._gates.get(name)
        if found is None:
            found = self._gates[name] = Gate(name, self)
        return found

    @contextmanager
    def guarding(self, name: str, queue: GatedQueue) -> Iterator[None]:
        """Guard a queue while the block runs."""
        gate = self.gate(name)
        gate.queues.append(queue)
        queue.gate = None if gate.is_open else gate
        try:
            yield
        finally:
            queue.gate = None
            gate.queues.remove(queue)

    def with_own_mode(self) -> list[Gate]:
        """Return the gates whose mode was set for their loop alone."""
        return [gate for gate in self._gates.values() if gate.has_own_mode]

    @property
    def is_open(self) -> bool:
        """Whether every loop runs as if there were no gates."""
        modes = (self.mode, *(gate.mode for gate in self._gates.values()))
        return not self.breakpoints and all(mode is Mode.RUN for mode in modes)

    # -- CPU time ------------------------------------------------------------------------------------------------------

    @property
    def charge(self) -> Callable[[float], None] | None:
        """The function to which loops report the CPU time in seconds that they have used; None if it is not limited."""
        return None if self.cpu_limit is None else self._charge

    def _charge(self, seconds: float) -> None:
        assert self.cpu_limit is not None
        rest = self.cpu_limit.charge(seconds)
        if rest > 0:
            is_new, self.resting_until = self.resting_until is None, self.clock.monotonic() + rest
            if is_new:
                self._apply()
            self._changed.set()

    def _apply(self) -> None:
        for gate in self._gates.values():
            gate.apply()

    # -- commands ------------------------------------------------------------------------------------------------------

    def set_mode(self, mode: Mode, name: str = "", every: float = 0.0) -> None:
        """Set the mode of a loop, or of all loops if `name` is empty."""
        if name:
            self.gate(name).set_mode(mode, every)
        else:
            self.mode, self.every, self.next_at = mode, every, 0.0
            for gate in self._gates.values():
                gate.set_mode(None)
        if mode is not Mode.PAUSED and self.stopped is not None and name in ("", self.stopped.loop):
            self._pass_once, self.stopped = (self.stopped.loop, self.stopped.key), None
        self._keep()

    def step(self, name: str = "", key: str = "") -> tuple[str, str] | None:
        """Let one reconcile happen and return its loop and key: of the named loop, or of the one whose next key waits
        longest. A loop that runs is paused before. Return None if the key, or any key, is not queued."""
        gates = [self.gate(name)] if name else [*self._gates.values()]
        if any(gate.mode is Mode.RUN for gate in gates):
            self.set_mode(Mode.PAUSED, name)
        chosen = self._longest_waiting(gates, key)
        if chosen is not None:
            gate, found = chosen
            if self.stopped is not None and (gate.name, found) == self.stopped[:2]:
                self.stopped = None
            gate.allow(found)
            self._keep()
            return gate.name, found
        return None

    def _longest_waiting(self, gates: list[Gate], key: str) -> tuple[Gate, str] | None:
        waiting = []
        for gate in gates:
            for queue in gate.queues:
                found = key if key and queue.expedite(key) else None if key else queue.next_key()
                if found is not None and (since := queue.waiting_since(found)) is not None:
                    waiting.append((since, gate, found))
        if not waiting:
            return None
        # Loops that only look after everything now and then have no key, and come last.
        _, gate, found = min(waiting, key=lambda each: (not each[2], each[0]))
        return gate, found

    def add_breakpoint(self, loop: str = "", kind: str = "", key: str = "") -> Breakpoint:
        """Pause all loops before a reconcile of a matching key. Raises ValueError if there are too many."""
        if len(self.breakpoints) >= MAX_BREAKPOINTS:
            raise ValueError(f"there are {MAX_BREAKPOINTS} breakpoints already")
        self._numbers += 1
        added = self.breakpoints[self._numbers] = Breakpoint(self._numbers, loop, kind, key)
        self._apply()
        self._keep()
        return added

    def remove_breakpoint(self, number: int) -> bool:
        """Return whether there was one with this number; 0 removes all."""
        found = bool(self.breakpoints) if not number else number in self.breakpoints
        if number:
            self.breakpoints.pop(number, None)
        else:
            self.breakpoints.clear()
        self._apply()
        self._keep()
        return found

    def renew(self) -> None:
        """Keep the gates as they are for another `HOLD_SECONDS`."""
        self._keep()

    def open_all(self) -> None:
        """Let every loop run, and remove all breakpoints."""
        self.breakpoints.clear()
        self.by = ""
        self.set_mode(Mode.RUN)
        self._pass_once = None

    # -- used by gates -------------------------------------------------------------------------------------------------

    def breaks(self, loop: str, key: str) -> bool:
        """Return whether a breakpoint matches. If one does, all loops are paused now."""
        if self._pass_once == (loop, key):
            self._pass_once = None
            return False
        for each in self.breakpoints.values():
            if each.matches(loop, key):
                self.set_mode(Mode.PAUSED)
                self.stopped = Stop(loop, key, each, self.clock.monotonic())
                return True
        return False

    def passed(self, gate: Gate, now: float) -> None:
        """Note that a key has passed in the mode `slow` of all loops."""
        self.next_at = now + self.every
        # It becomes the last one to be asked, so that all loops get their share.
        self._gates[gate.name] = self._gates.pop(gate.name)

    def wake_at(self, at: float) -> None:
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self._changed.set()

    # -- time ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Let keys pass in the mode `slow`, end the hold when it expires, and let loops go on that have rested, until
        cancelled."""
        while True:
            self._changed.clear()
            now = self.clock.monotonic()
            if self.held_until is not None and now >= self.held_until:
                self.open_all()
            if self.resting_until is not None and now >= self.resting_until:
                self.resting_until = None
                self._apply()
            if self._wake_at is not None and now >= self._wake_at:
                self._wake_at = None
                for gate in tuple(self._gates.values()):
                    gate.wake()
            due = [at for at in (self.held_until, self.resting_until, self._wake_at) if at is not None]
            if due:
                with suppress(TimeoutError):
                    await within(self.clock, min(due) - now, self._changed.wait())
            else:
                await self._changed.wait()

    def _keep(self) -> None:
        self.held_until = None if self.is_open else self.clock.monotonic() + HOLD_SECONDS
        self._changed.set()


class Checkpoint:
    """The place in a loop without a queue where its gate applies: before each of its periodic runs."""

    def __init__(self, gates: Gates, name: str) -> None:
        self.gate: Gate | None = None
        self._gates = gates
        self._name = name
        self._waiting_since: float | None = None
        self._woken = asyncio.Event()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Apply the gate while the block runs."""
        with self._gates.guarding(self._name, self):
            yield

    async def wait(self) -> None:
        """Return when the next run may begin."""
        if self.gate is None:
            return
        self._waiting_since = self._gates.clock.monotonic()
        try:
            while self.gate is not None and self.gate.admit(self) is None:
                self._woken.clear()
                await self._woken.wait()
        finally:
            self._waiting_since = None

    def next_key(self) -> str | None:
        return None if self._waiting_since is None else ""

    def waiting_since(self, key: str) -> float | None:
        return None if key else self._waiting_since

    def expedite(self, key: str) -> bool:
        return not key and self._waiting_since is not None

    def wake(self) -> None:
        self._woken.set()
