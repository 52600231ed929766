"""The present state of the control loops of this process: queued keys, back-off, errors, latest runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from setpoint.client.run import Run
from setpoint.meta.clock import Clock
from setpoint.reconcile.controller import Controller
from setpoint.reconcile.gate import Gates, Mode
from setpoint.reconcile.loop_board import ComponentState
from setpoint.view.why.controllers import CONTROLLERS, RECONCILED_KINDS
from setpoint.view.why.facts import Hold, InformerState, LoopKey, Ref, SchedulingAttempt

_MAX_OTHERS = 3
"""The number of other keys that are named as being reconciled."""


class LoopStates:
    """Reads the state of controllers; it changes nothing."""

    def __init__(
        self,
        running: Callable[[], Iterable[Controller]],
        clock: Clock,
        others: Callable[[], Iterable[str]] = tuple,
        attempt: Callable[[str], SchedulingAttempt | None] = lambda key: None,
        gates: Gates | None = None,
        components: Callable[[], Iterable[ComponentState]] = tuple,
    ) -> None:
        """`running` returns the controllers that run now, and `others` the names of loops of another form. `attempt`
        returns the last attempt for the Pod with a key. `gates` hold the loops back; None means that nothing does.
        `components` returns the components with their informers."""
        self._running = running
        self._clock = clock
        self._others = others
        self.attempt = attempt
        self._gates = gates
        self._components = components

    def controllers(self) -> list[str]:
        """Return the names of the control loops that run."""
        return [*(each.name for each in self._running()), *self._others()]

    def keys(self, ref: Ref, controller: str = "") -> list[LoopKey]:
        """Return the state of an object's key in the controller of its kind, or in the one of this name."""
        name = controller or CONTROLLERS.get(ref.kind)
        return [self.state(each, ref.path) for each in self._running() if each.name == name]

    def state(self, controller: Controller, key: str) -> LoopKey:
        queue, now = controller.queue, self._clock.monotonic()
        position, due, last = queue.position(key), queue.due_in(key), controller.recent.last(key)
        since, failed = queue.waiting_since(key), controller.failures.get(key)
        if queue.is_processing(key) and last is not None and last.ended is None:
            since = last.began
        return LoopKey(
            controller.name,
            0 if position is None else position + 1,
            queue.is_processing(key),
            0 if due is None else self._milliseconds(due),
            queue.failures(key),
            "" if failed is None else failed.error,
            0 if last is None or last.ended is None else self._milliseconds(last.ended - now),
            0 if since is None else self._milliseconds(since - now),
            [each for each in queue.processing(_MAX_OTHERS + 1) if each != key][:_MAX_OTHERS],
            0 if failed is None else self._milliseconds(failed.since - now),
        )

    def hold(self, ref: Ref) -> Hold | None:
        """Return the hold on the loop that reconciles the object; None if it runs."""
        gates = self._gates
        if gates is None or gates.is_open:
            return None
        own = "kube-scheduler" if ref.kind == "Pod" else CONTROLLERS.get(ref.kind)
        names = [own] if own else [loop for loop, kind in RECONCILED_KINDS.items() if kind == ref.kind]
        left = 0.0 if gates.held_until is None else gates.held_until - self._clock.monotonic()
        until = self._milliseconds(left) if gates.held_until is not None else 0
        for name in names:
            if (mode := gates.gate(name).mode) is not Mode.RUN:
                return Hold(name, str(mode), gates.by, until)
        return None

    def informers(self, ref: Ref) -> list[InformerState]:
        """Return the informers of the component that reconciles the object, if it runs here."""
        manager = "kube-controller-manager" if ref.kind in CONTROLLERS else ""
        name = "kube-scheduler" if ref.kind == "Pod" else manager
        now = self._clock.monotonic()
        found = []
        for component in self._components():
            for informer in component.informers if component.name == name else ():
                since, retry = informer.failing_since, informer.retry_at
                found.append(
                    InformerState(
                        component.name,
                        str(informer.resource),
                        informer.is_selective,
                        informer.synced.is_set(),
                        informer.revision,
                        informer.error,
                        0 if since is None else self._milliseconds(since - now),
                        0 if retry is None else self._milliseconds(retry - now),
                    )
                )
        return found

    def runs(self, controller: str) -> list[Run]:
        """Return the latest runs of the controllers with this name, the oldest first."""
        return [run for each in self._running() if each.name == controller for run in each.recent]

    def _milliseconds(self, from_now: float) -> int:
        """Return the time in this many seconds, in milliseconds since the epoch."""
        return int((self._clock.now().timestamp() + from_now) * 1000)
