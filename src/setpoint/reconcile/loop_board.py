"""Describes the control loops of a process for people who watch and debug them (`view/loops.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from setpoint.client.run import Run
from setpoint.meta.clock import Clock
from setpoint.reconcile.controller import Controller
from setpoint.reconcile.gate import Gates, Mode
from setpoint.reconcile.informer import Informer
from setpoint.reconcile.leader_election import LeaderElection
from setpoint.reconcile.run import RecentRuns
from setpoint.view.loops import DelayedKey, LoopRow, LoopRun, QueuedKey, WorkingKey, cpu_limit_note

MAX_KEYS, MAX_RUNS = 20, 50
"""The number of keys of each list, and of runs, that are described."""
_RATE_SECONDS = 10.0
_MAX_REASON_LENGTH = 300
_CLOCK_TOLERANCE = 0.05


class ComponentState(NamedTuple):
    """A component that runs loops, or would if it was not stopped or another process did not lead."""

    name: str
    """The name of its Lease."""
    controllers: list[Controller]
    election: LeaderElection | None
    """The election in which it takes part; None if there is none, or it is stopped."""
    running: bool
    error: str
    """Why it does not run, if it has failed; else empty."""
    informers: list[Informer[Any]]
    """The informers of its loops, also while these wait until all have synced."""


class Times:
    """Converts times of the monotonic clock, as of one moment."""

    def __init__(self, monotonic: float, epoch: float) -> None:
        """`epoch` is the time of the wall clock at which the monotonic clock was 0, in seconds."""
        self.monotonic = monotonic
        self._epoch = epoch

    @property
    def now(self) -> int:
        """The moment in milliseconds since the epoch."""
        return self.at(self.monotonic)

    def at(self, monotonic: float) -> int:
        """Return a time in milliseconds since the epoch."""
        return int((self._epoch + monotonic) * 1000)


class LoopBoard:
    """The loops of one process. Reading it changes nothing."""

    def __init__(
        self,
        clock: Clock,
        gates: Gates,
        components: Callable[[], Iterable[ComponentState]],
        others: Callable[[Times], Iterable[tuple[LoopRow, RecentRuns]]],
    ) -> None:
        """`components` returns the components with their controllers, and `others` the loops of another form."""
        self._clock = clock
        self.gates = gates
        self._components = components
        self._others = others
        self._epoch = 0.0
        self._idle: dict[str, tuple[int, Mode, dict[str, Any]]] = {}
        """The loops that had nothing to do when they were last described, by name: reconciles, mode and JSON."""

    def _times(self) -> Times:
        monotonic = self._clock.monotonic()
        epoch = self._clock.now().timestamp() - monotonic
        if abs(epoch - self._epoch) > _CLOCK_TOLERANCE:
            self._epoch = epoch  # the same time is otherwise always shown as the same number
        return Times(monotonic, self._epoch)

    def names(self) -> list[str]:
        """Return the names of the loops that run."""
        controllers = (each.name for component in self._components() for each in component.controllers)
        return [*dict.fromkeys((*controllers, *(row.name for row, _ in self._others(self._times()))))]

    def loops(self) -> dict[str, dict[str, Any]]:
        """Return each loop by its name, as JSON."""
        times = self._times()
        found: dict[str, dict[str, Any]] = {}
        for component in self._components():
            for controller in component.controllers:
                row = self._known(controller) or self._described(component.name, controller, times)
                # Two loops of one name have one gate; the numbers of the busier one are shown.
                if controller.name not in found or found[controller.name]["done"] < row["done"]:
                    found[controller.name] = row
        for other, _ in self._others(times):
            found[other.name] = other.to_json()
        return dict(sorted(found.items()))

    def _known(self, controller: Controller) -> dict[str, Any] | None:
        """Return the description of a loop that had nothing to do and has done nothing since; None if it may differ."""
        done, mode, row = self._idle.get(controller.name, (-1, Mode.RUN, None))
        if row is None or done != controller.counts.done or mode is not self.gates.gate(controller.name).mode:
            return None
        return None if controller.queue.is_busy else row

    def _described(self, component: str, controller: Controller, times: Times) -> dict[str, Any]:
        row = self._row(component, controller, times)
        described = row.to_json()
        if row.rate or controller.queue.is_busy:
            self._idle.pop(row.name, None)
        else:
            self._idle[row.name] = (row.done, Mode(row.mode), described)
        return described

    def _row(self, component: str, controller: Controller, times: Times) -> LoopRow:
        queue, counts, gate = controller.queue, controller.counts, self.gates.gate(controller.name)
        working = []
        for key in sorted(queue.processing(MAX_KEYS)):
            run = controller.recent.last(key)
            working.append(WorkingKey(key, times.at(run.began) if run is not None else times.now))
        return LoopRow(
            controller.name,
            component,
            gate.mode,
            gate.every if gate.mode is Mode.SLOW else 0.0,
            depth=len(queue),
            added=queue.added,
            done=counts.done,
            failed=counts.failed,
            **rate_and_durations(controller.recent, times),
            queued=[QueuedKey(key, changes, times.at(since)) for key, changes, since in queue.queued(MAX_KEYS)],
            working=working,
            delayed=[
                DelayedKey(
                    key,
                    times.at(times.monotonic + left),
                    queue.failures(key),
                    failed.error if (failed := controller.failures.get(key)) is not None else "",
                )
                for key, left in queue.delayed_keys(MAX_KEYS)
            ],
            delayed_count=queue.delayed,
        )

    def components(self) -> list[dict[str, Any]]:
        """Return the components that run the loops, as JSON."""
        return [_component(each) for each in self._components()]

    def informers(self) -> list[dict[str, Any]]:
        """Return what the informers of the loops have received, as JSON."""
        times = self._times()
        return [
            {
                "component": component.name,
                "resource": str(informer.resource),
                "synced": informer.synced.is_set(),
                "revision": informer.revision,
                "selective": informer.is_selective,
                "objects": len(informer.items),
                "error": informer.error[:_MAX_REASON_LENGTH],
                "failingSince": 0 if informer.failing_since is None else times.at(informer.failing_since),
                "retry": 0 if informer.retry_at is None else times.at(informer.retry_at),
            }
            for component in self._components()
            for informer in component.informers
        ]

    def gate(self) -> dict[str, Any]:
        """Return the state of the gates that applies to several loops, as JSON."""
        gates, times = self.gates, self._times()
        stopped, limit = gates.stopped, gates.cpu_limit
        return {
            "mode": gates.mode,
            "every": gates.every if gates.mode is Mode.SLOW else 0.0,
            "own": [
                {"name": each.name, "mode": each.mode, "every": each.every}
                for each in gates.with_own_mode()
                if each.mode is not gates.mode
            ],
            "breakpoints": [each._asdict() for each in gates.breakpoints.values()],
            "stopped": None
            if stopped is None
            else {
                "loop": stopped.loop,
                "key": stopped.key,
                "breakpoint": stopped.breakpoint.number,
                "at": times.at(stopped.at),
            },
            "by": gates.by if gates.held_until is not None else "",
            "until": 0 if gates.held_until is None else times.at(gates.held_until),
            "note": cpu_limit_note(limit.share) if limit is not None and limit.was_exceeded else "",
        }

    def runs(self, name: str) -> list[dict[str, Any]]:
        """Return the latest reconciles of the loops with this name as JSON, the newest first."""
        times = self._times()
        rings = [each.recent for component in self._components() for each in component.controllers if each.name == name]
        rings += [recent for row, recent in self._others(times) if row.name == name]
        runs = sorted((run for ring in rings for run in ring), key=lambda run: run.began, reverse=True)
        return [described(run, times)._asdict() for run in runs[:MAX_RUNS]]


def _component(state: ComponentState) -> dict[str, Any]:
    election = state.election
    leads = state.running and (election is None or election.leading.is_set())
    holder = election.holder if election is not None else ""
    status = "stopped" if not state.running else "leads" if leads else "stands by"
    return {
        "name": state.name,
        "state": status,
        "holder": holder,
        "elected": election is not None,
        "error": state.error,
    }


def rate_and_durations(recent: RecentRuns, times: Times) -> Mapping[str, Any]:
    """Return the reconciles per second and the median and 99th percentile of durations, of the latest reconciles."""
    ended = [run for run in recent if run.ended is not None]
    if not ended:
        return {}
    within = [run for run in ended if run.ended is not None and run.ended > times.monotonic - _RATE_SECONDS]
    seconds = _RATE_SECONDS
    if len(within) == recent.maximum:  # more than are kept
        seconds = max(times.monotonic - within[0].began, 0.001)
    durations = sorted((run.ended or 0.0) - run.began for run in ended)
    return {
        "rate": round(len(within) / seconds, 1),
        "p50": round(durations[len(durations) // 2] * 1000, 2),
        "p99": round(durations[min(len(durations) - 1, len(durations) * 99 // 100)] * 1000, 2),
    }


def described(run: Run, times: Times) -> LoopRun:
    took = None if run.ended is None else round((run.ended - run.began) * 1000, 2)
    reason = run.reason[:_MAX_REASON_LENGTH]
    return LoopRun(
        run.id,
        run.key,
        times.at(run.began),
        took,
        run.triggers,
        run.count,
        run.besides,
        run.writes,
        reason,
        run.error,
    )
