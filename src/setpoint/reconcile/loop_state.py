"""The present state of the control loops of this process: queued keys, back-off, errors, latest runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from setpoint.client.run import Run
from setpoint.meta.clock import Clock
from setpoint.reconcile.controller import Controller
from setpoint.view.why.controllers import CONTROLLERS
from setpoint.view.why.facts import LoopKey, Ref


class SchedulingAttempt(NamedTuple):
    """The last attempt to schedule a Pod that waits for a node."""

    attempts: int
    """The number of attempts so far."""
    at: int
    """The time of the last one, in milliseconds since the epoch."""
    message: str
    """The message of the condition PodScheduled."""
    verdicts: list[tuple[str, str]]
    """Some nodes, and why the Pod does not fit there in the present state by the scheduler's plugins; empty if it
    fits."""


class LoopStates:
    """Reads the state of controllers; it changes nothing."""

    def __init__(
        self,
        running: Callable[[], Iterable[Controller]],
        clock: Clock,
        others: Callable[[], Iterable[str]] = tuple,
        attempt: Callable[[str], SchedulingAttempt | None] = lambda key: None,
    ) -> None:
        """`running` returns the controllers that run now, and `others` the names of loops of another form. `attempt`
        returns the last attempt for the Pod with a key."""
        self._running = running
        self._clock = clock
        self._others = others
        self.attempt = attempt

    def controllers(self) -> list[str]:
        """Return the names of the control loops that run."""
        return [*(each.name for each in self._running()), *self._others()]

    def keys(self, ref: Ref) -> list[LoopKey]:
        """Return the state of an object's key in the controller of its kind."""
        name = CONTROLLERS.get(ref.kind)
        return [self.state(each, ref.path) for each in self._running() if each.name == name]

    def state(self, controller: Controller, key: str) -> LoopKey:
        queue = controller.queue
        position, due, last = queue.position(key), queue.due_in(key), controller.recent.last(key)
        return LoopKey(
            controller.name,
            0 if position is None else position + 1,
            queue.is_processing(key),
            0 if due is None else self._milliseconds(due),
            queue.failures(key),
            controller.errors.get(key, ""),
            0 if last is None or last.ended is None else self._milliseconds(last.ended - self._clock.monotonic()),
        )

    def runs(self, controller: str) -> list[Run]:
        """Return the latest runs of the controllers with this name, the oldest first."""
        return [run for each in self._running() if each.name == controller for run in each.recent]

    def _milliseconds(self, from_now: float) -> int:
        """Return the time in this many seconds, in milliseconds since the epoch."""
        return int((self._clock.now().timestamp() + from_now) * 1000)
