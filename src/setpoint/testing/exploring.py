"""Run one scenario repeatedly, each time with a different fault: the end state must always be the same.

    def test_whatever_happens(explore):
        explore(operator, scenario)

The scenario runs once without faults, which records the operator's writes and events. Then it runs under every single
fault at every one of these points. If the end state differs, the smallest such case is reported as a plan that
reproduces it: `explore(operator, scenario, only="crash-after:7")`.
"""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from textwrap import indent
from typing import Any, Protocol

from setpoint.meta.times import human_duration
from setpoint.sdk import Operator
from setpoint.system import SystemClock
from setpoint.testing.end_state import differences
from setpoint.testing.trial import RunResult, Scenario, Trial
from setpoint.view.fault_plan import KINDS, Fault, Plan

log = logging.getLogger("setpoint.testing")

_MIN_ANNOUNCED = 2.0
"""Seconds below which a run is not announced."""
_REPORT_INTERVAL = 30.0
"""Seconds between two lines on an output that cannot rewrite lines."""
_BEFORE, _AFTER = 3, 8
EVERY_FAULT = (
    "error",
    "conflict",
    "crash-before",
    "crash-after",
    "lost-answer",
    "timeout",
    "too-many",
    "stale",
    "rewind",
    "duplicate",
    "drop-watch",
    "expire-watch",
    "delay-watch",
    "down",
    "down/30s",
)
"""The kinds of faults that are injected by default, the simplest first.

None lasts as long as `cluster.until` waits. Node partitions are opt-in: they test Pods more than an operator.
"""
LIMIT = 200
_MIN_ATTEMPTS = 20


class Progress:
    """Writes one line that is rewritten on a terminal, or a line at intervals on other outputs."""

    def __init__(self, write: Callable[[str], None], monotonic: Callable[[], float], *, live: bool) -> None:
        self._write = write
        self._monotonic = monotonic
        self._live = live
        self._cases = 0
        self._tried = 0
        self._started_at = 0.0
        self._reported_at = 0.0
        self._which = ""
        self._announced = False

    def begin(self, chosen: int, cases: int) -> None:
        """Set the number of chosen cases and of all cases."""
        self._cases = chosen
        self._which = f"{chosen} cases" if chosen == cases else f"{chosen} of {cases} cases"
        self._started_at = self._monotonic()

    def case(self, number: int, plan: str) -> None:
        """Report the current case and, after the first case, the estimated remaining time."""
        self._tried = number - 1
        if not self._tried:
            return
        now = self._monotonic()
        each = (now - self._started_at) / self._tried
        if not self._announced:
            if each * self._cases < _MIN_ANNOUNCED:
                return
            self._announced, self._reported_at = True, now
            self._print(f"explore: {self._which}, about {human_duration(each * self._cases)}")
        elif self._live or now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            left = human_duration(each * (self._cases - self._tried))
            self._print(f"explore: case {number} of {self._cases} ({plan}), about {left} left")

    def interrupted(self) -> None:
        """Report the cases that were tried without a difference."""
        duration = human_duration(self._monotonic() - self._started_at)
        self._clear()
        self._write(
            f"explore: interrupted after {duration}; {self._tried} of {self._cases} cases reached the same end state, "
            "the others were not tried\n"
        )

    def end(self) -> None:
        self._clear()

    def _print(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}" if self._live else f"{text}\n")

    def _clear(self) -> None:
        if self._live and self._announced:
            self._write("\r\x1b[K")


class Diverged(AssertionError):
    """The end state differs from the run without faults."""

    __module__ = "setpoint.testing"

    def __init__(self, text: str, seed: str) -> None:
        super().__init__(text)
        self.seed = seed
        """The plan that reproduces the difference."""


class ReportedStep(Protocol):
    """The parts of `fault_injection.Step` that a report shows."""

    at: str
    nth: int
    when: float
    what: str
    fault: str
    answer: str


def report(
    plan: Plan,
    differences: str,
    baseline: Sequence[ReportedStep],
    found: Sequence[ReportedStep],
    tried: int,
    cases: int,
) -> str:
    """Return the report of a case: the faults, the steps with and without them, and the differences."""
    parts = [f"{plan} changes the end state (case {tried} of {cases})."]
    parts += [f"{fault}: {fault.description}." for fault in plan]
    parts += ["Steps without faults:", indent(_around(plan, baseline), "  ")]
    parts += [f"Steps under {plan}:", indent(_around(plan, found), "  ")]
    parts += ["Differences from the end state without faults:", indent(differences, "  ")]
    parts += [f'Reproduce it with: explore(..., only="{plan}")']
    return "\n".join(parts)


def _around(plan: Plan, steps: Sequence[ReportedStep]) -> str:
    """Return the steps just before and after the faults; of the events, only those with a fault."""
    points = {(fault.at, fault.nth) for fault in plan}
    shown = [step for step in steps if step.at == "write" or (step.at, step.nth) in points]
    places = [place for place, step in enumerate(shown) if (step.at, step.nth) in points] or [0]
    first, last = max(min(places) - _BEFORE, 0), max(places) + _AFTER + 1
    lines = ["..."] if first else []
    lines += [_line(step) for step in shown[first:last]]
    lines += [f"... {len(shown) - last} more"] if len(shown) > last else []
    return "\n".join(lines) or "nothing"


def _line(step: ReportedStep) -> str:
    line = f"{step.when:7.3f} s  {step.at} {step.nth}  {step.what}"
    line += f"  <- {step.fault}" if step.fault else ""
    return f"{line}  ({step.answer})" if step.answer else line


@dataclass(frozen=True, slots=True)
class Explored:
    """How much was tried."""

    writes: int
    """The number of writes that changed something."""
    events: int
    tried: int
    cases: int

    def __str__(self) -> str:
        return f"{self.writes} writes, {self.events} events: {self.tried} of {self.cases} cases tried"


class Exploration:
    """A scenario with its fault-free baseline, which is run on first use."""

    def __init__(self, operator: Operator | Callable[..., Operator] | None, scenario: Scenario, **options: Any) -> None:
        """Prepare a trial; see `explore` for the options."""
        self._trial = Trial(operator, scenario, **options)

    @cached_property
    def baseline(self) -> RunResult:
        """Return the run without faults; exceptions of the scenario propagate."""
        return self._trial.without_faults()

    def under(self, plan: Plan) -> RunResult:
        """Run the scenario under a plan."""
        return self._trial.under(plan, self.baseline)

    def differences(self, ending: RunResult) -> str:
        """Return the differences from the baseline; empty if there are none."""
        return ending.failure or differences(self.baseline.state, ending.state)

    def explore(
        self,
        *,
        only: str | Plan = "",
        faults: Sequence[str] = EVERY_FAULT,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Explored:
        """Run the scenario under every fault and raise Diverged on the first different end state."""
        __tracebackhide__ = True
        progress = progress or Progress(_to_stderr, SystemClock().monotonic, live=sys.stderr.isatty())
        if not self.baseline.steps:
            raise AssertionError("the scenario causes no write and no event: there is nothing to inject a fault into")
        if only:
            return self._replay(Plan.parse(only))
        cases = list(self._cases([Plan.template(each) for each in faults]))
        chosen = _spread(cases, LIMIT if limit is None else limit)
        if len(chosen) < len(cases) and limit is None:
            warnings.warn(f"explore: {len(chosen)} of {len(cases)} cases are tried; more with limit=", stacklevel=3)
        progress.begin(len(chosen), len(cases))
        try:
            with _reduced_garbage_collection(), _quiet_logs():
                self._try(sorted(chosen, key=self._size), cases, progress)
        except KeyboardInterrupt:
            progress.interrupted()
            raise
        finally:
            progress.end()
        log.info("explore: all %d cases reached the same end state", len(chosen))
        return self._explored(len(chosen), len(cases))

    def _try(self, chosen: Sequence[Plan], cases: Sequence[Plan], progress: Progress) -> None:
        """Run the chosen cases and raise Diverged on the first different end state."""
        for tried, case in enumerate(chosen, 1):
            progress.case(tried, str(case))
            ending = self.under(case)
            if self.differences(ending):
                skipped = set(cases).difference(chosen)
                smallest, more = self._smaller(ending, [each for each in cases if each in skipped], len(chosen))
                raise self._diverged(smallest, tried + more, len(cases))

    def _replay(self, plan: Plan) -> Explored:
        ending = self.under(plan)
        if self.differences(ending):
            raise self._diverged(ending, 1, 1)
        if ending.open.faults:
            writes, events = (sum(step.at == at for step in self.baseline.steps) for at in ("write", "event"))
            counts = f"{writes} writes and {events} events"
            raise AssertionError(f"{ending.open} was never injected: without faults there are {counts}")
        return self._explored(1, 1)

    def _explored(self, tried: int, cases: int) -> Explored:
        return Explored(len(self._points("write")), len(self._points("event")), tried, cases)

    def _diverged(self, ending: RunResult, tried: int, cases: int) -> Diverged:
        text = report(ending.plan, self.differences(ending), self.baseline.steps, ending.steps, tried, cases)
        return Diverged(text, str(ending.plan))

    def _points(self, at: str) -> list[int]:
        """Return the points at which a fault can matter.

        A write that changes nothing is skipped: a fault there is equivalent to one just before or after it.
        """
        return [step.nth for step in self.baseline.steps if step.at == at and step.armed and step.matters]

    def _cases(self, templates: Sequence[Plan]) -> Iterator[Plan]:
        for template in templates:
            for nth in self._points(template.faults[0].at):
                yield template.at_point(nth)

    @cached_property
    def _places(self) -> dict[tuple[str, int], int]:
        return {(step.at, step.nth): place for place, step in enumerate(self.baseline.steps)}

    def _size(self, plan: Plan) -> tuple[int, bool, int]:
        """Return the sort key of a case: few faults first, then default durations, then early points.

        Cases with equal keys stay in the order of simplicity.
        """
        long = any(fault.lasting > KINDS[fault.kind].lasting for fault in plan)
        return sum(KINDS[fault.kind].parts for fault in plan), long, max(self._place(fault) for fault in plan)

    def _place(self, fault: Fault) -> int:
        return self._places.get((fault.at, fault.nth), len(self._places))

    def _smaller(self, ending: RunResult, skipped: Sequence[Plan], most: int) -> tuple[RunResult, int]:
        """Return the first smaller case that diverges and was not tried, and the number of cases tried to find it.

        Tries parts of the plan, then the same faults at earlier points, bounded by `most`.
        """
        plan, size = ending.plan, self._size(ending.plan)
        parts = [Plan((each,)) for each in plan] if len(plan) > 1 else []
        earlier = [each for each in skipped if each.at_point(1) == plan.at_point(1) and self._size(each) < size]
        tried = 0
        for smaller in [*parts, *earlier][: max(most, _MIN_ATTEMPTS)]:
            tried += 1
            found = self.under(smaller)
            if self.differences(found):
                return found, tried
        return ending, tried


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _reduced_garbage_collection() -> Iterator[None]:
    """Reduce garbage collection: every run leaves a whole cluster to collect, and older objects need not be scanned
    each time."""
    if gc.get_freeze_count():  # the caller has frozen objects itself and relies on that afterwards
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Suppress the log warnings about broken connections, which are expected here hundreds of times."""
    loops = logging.getLogger("setpoint.reconcile")
    before = loops.level
    loops.setLevel(logging.ERROR)
    try:
        yield
    finally:
        loops.setLevel(before)


def _spread(cases: Sequence[Plan], limit: int) -> list[Plan]:
    """Return at most `limit` cases, spread evenly over all kinds and points."""
    if len(cases) <= limit:
        return list(cases)
    return [cases[(2 * number + 1) * len(cases) // (2 * limit)] for number in range(limit)]


def explore(
    operator: Operator | Callable[..., Operator] | None = None,
    scenario: Scenario | None = None,
    *,
    only: str | Plan = "",
    faults: Sequence[str] = EVERY_FAULT,
    limit: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Explored:
    """Run the scenario without faults and then under every single fault at every point, each on a fresh virtual
    cluster.

    Raise Diverged, with the smallest case whose end state differs.

    `operator` is an Operator, or a factory function: a restart after a crash then creates a new one without in-memory
    state. Explore built-in components by name: `explore(scenario=..., component="controllers")`.

    `scenario(cluster)` performs the actions of users. It waits for what it relies on, and need not wait at its end.
    `check(cluster)` runs at the end of each run, and fails by an assertion.

    `outside()` creates the state that the operator manages beyond the cluster, anew for each run. It is passed as
    another argument to the operator's factory, the scenario and the check, and is compared too, by its `state()` if it
    has that method.

    `only` runs just this plan, as shown in a report. `faults` selects the kinds, `limit` the number of cases, spread
    evenly over all of them. `leave_out` names what may legitimately differ: plurals (`secrets`) and fields
    (`teapots:status.attempts`). `progress` receives progress reports; by default a line on stderr shows the expected
    cost and the progress. `afterwards` is the duration to wait before the end states are compared.

    All other arguments are options of `virtual_cluster`; `nodes` defaults to 0.
    """
    __tracebackhide__ = True
    if scenario is None:
        raise ValueError("explore needs a scenario")
    return Exploration(operator, scenario, **options).explore(only=only, faults=faults, limit=limit, progress=progress)
