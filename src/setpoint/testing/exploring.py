"""One scenario, again and again, each time with something else going wrong: the end must always be the same.

    def test_whatever_happens(explore):
        explore(operator, scenario)

The scenario is run once in peace, which shows what the operator writes and hears. Then it is run under every single
fault at every one of these points. Where it comes to something else than in peace, the smallest such case is shown, as
a plan by which it happens again: `explore(operator, scenario, only="crash-after:7")`.
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
from typing import Any

from setpoint.sdk import Operator
from setpoint.system import SystemClock
from setpoint.testing.end_state import differences
from setpoint.testing.exploring_progress import Progress
from setpoint.testing.exploring_report import Diverged, told
from setpoint.testing.plan import KINDS, Fault, Plan
from setpoint.testing.trial import Ending, Scenario, Trial

log = logging.getLogger("setpoint.testing")

EVERY_FAULT = (
    "error", "conflict", "crash-before", "crash-after", "lost-answer", "timeout", "too-many", "stale", "rewind",
    "duplicate", "drop-watch", "expire-watch", "delay-watch", "down", "down/30s",
)  # fmt: skip
"""The simplest first. None lasts as long as `cluster.until` waits. Nodes are cut off only when asked for: that says
more about Pods than about an operator."""
LIMIT = 200
_FEW = 20


@dataclass(frozen=True, slots=True)
class Explored:
    """How much was tried."""

    writes: int
    """That changed something."""
    events: int
    tried: int
    cases: int

    def __str__(self) -> str:
        return f"{self.writes} writes, {self.events} events: {self.tried} of {self.cases} cases tried"


class Exploration:
    """A scenario whose end in peace is known, once it was asked for."""

    def __init__(self, operator: Operator | Callable[..., Operator] | None, scenario: Scenario, **options: Any) -> None:
        """See `explore`."""
        self._trial = Trial(operator, scenario, **options)

    @cached_property
    def peace(self) -> Ending:
        """Raises what the scenario raises."""
        return self._trial.in_peace()

    def under(self, plan: Plan) -> Ending:
        """How it ends when this goes wrong."""
        return self._trial.under(plan, self.peace)

    def differences(self, ending: Ending) -> str:
        """From the end in peace; empty when there are none."""
        return ending.failure or differences(self.peace.state, ending.state)

    def explore(
        self,
        *,
        only: str | Plan = "",
        faults: Sequence[str] = EVERY_FAULT,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Explored:
        """Raises Diverged."""
        __tracebackhide__ = True
        progress = progress or Progress(_to_stderr, SystemClock().monotonic, live=sys.stderr.isatty())
        if not self.peace.steps:
            raise AssertionError("in peace nothing is written or heard: there is nothing that could go wrong")
        if only:
            return self._replay(Plan.parse(only))
        cases = list(self._cases([Plan.template(each) for each in faults]))
        chosen = _spread(cases, LIMIT if limit is None else limit)
        if len(chosen) < len(cases) and limit is None:
            warnings.warn(f"explore: {len(chosen)} of {len(cases)} cases are tried; more with limit=", stacklevel=3)
        progress.begin(len(chosen), len(cases))
        try:
            with _little_garbage(), _in_silence():
                self._try(sorted(chosen, key=self._size), cases, progress)
        except KeyboardInterrupt:
            progress.interrupted()
            raise
        finally:
            progress.end()
        log.info("explore: all of %d cases came to the same", len(chosen))
        return self._explored(len(chosen), len(cases))

    def _try(self, chosen: Sequence[Plan], cases: Sequence[Plan], progress: Progress) -> None:
        """Raises Diverged."""
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
            writes, events = (sum(step.at == at for step in self.peace.steps) for at in ("write", "event"))
            counts = f"{writes} writes and {events} events"
            raise AssertionError(f"{ending.open} never came to pass: in peace there are {counts}")
        return self._explored(1, 1)

    def _explored(self, tried: int, cases: int) -> Explored:
        return Explored(len(self._points("write")), len(self._points("event")), tried, cases)

    def _diverged(self, ending: Ending, tried: int, cases: int) -> Diverged:
        text = told(ending.plan, self.differences(ending), self.peace.steps, ending.steps, tried, cases)
        return Diverged(text, str(ending.plan))

    def _points(self, at: str) -> list[int]:
        """At a write that changes nothing, nothing can go wrong that could not go wrong just before or after it."""
        return [step.nth for step in self.peace.steps if step.at == at and step.armed and step.matters]

    def _cases(self, templates: Sequence[Plan]) -> Iterator[Plan]:
        for template in templates:
            for nth in self._points(template.faults[0].at):
                yield template.at_point(nth)

    @cached_property
    def _places(self) -> dict[tuple[str, int], int]:
        return {(step.at, step.nth): place for place, step in enumerate(self.peace.steps)}

    def _size(self, plan: Plan) -> tuple[int, bool, int]:
        """Few faults before many, usual ones before long ones, early ones before late ones; what is equal here stays in
        the order of simplicity."""
        long = any(fault.lasting > KINDS[fault.kind].lasting for fault in plan)
        return sum(KINDS[fault.kind].parts for fault in plan), long, max(self._place(fault) for fault in plan)

    def _place(self, fault: Fault) -> int:
        return self._places.get((fault.at, fault.nth), len(self._places))

    def _smaller(self, ending: Ending, skipped: Sequence[Plan], most: int) -> tuple[Ending, int]:
        """The first that diverges of those that are smaller and were not tried: parts of it, then the same at earlier
        points, as many of them as were tried before, or a few. And how many were."""
        plan, size = ending.plan, self._size(ending.plan)
        parts = [Plan((each,)) for each in plan] if len(plan) > 1 else []
        earlier = [each for each in skipped if each.at_point(1) == plan.at_point(1) and self._size(each) < size]
        tried = 0
        for smaller in [*parts, *earlier][: max(most, _FEW)]:
            tried += 1
            found = self.under(smaller)
            if self.differences(found):
                return found, tried
        return ending, tried


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Every run leaves a whole cluster to be collected: all that is there already need not be looked at each time."""
    if gc.get_freeze_count():  # somebody has seen to it, and counts on it afterwards
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _in_silence() -> Iterator[None]:
    """That connections break is nothing to be warned of here, hundreds of times."""
    loops = logging.getLogger("setpoint.reconcile")
    before = loops.level
    loops.setLevel(logging.ERROR)
    try:
        yield
    finally:
        loops.setLevel(before)


def _spread(cases: Sequence[Plan], limit: int) -> list[Plan]:
    """So many of them, evenly over all kinds and points."""
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
    """Runs the scenario with the operator at work, in peace and then under every single fault at every point, each time
    on a fresh cluster in virtual time. Raises Diverged, with the smallest case in which the end is another.

    `operator` is one, or a function that makes one: a restart after a crash makes a new one then, which remembers
    nothing. Built-in components are explored by their names: `explore(scenario=..., component="controllers")`.
    `scenario(cluster)` is what users do. It waits for what it relies on, and need not wait at its end.
    `check(cluster)` is run at the end of each run, and fails by an assertion.
    `outside()` makes what the operator works on beyond the cluster, anew for each run: the function that makes the
    operator, the scenario and the check are handed it as another argument, and what it comes to is compared too, by its
    `state()` if it has that.
    `only` tries no more than this plan: as it was shown. `faults` says which kinds are tried, `limit` how many cases,
    spread evenly over all of them.
    `leave_out` names what may differ by nature: plurals (`secrets`) and fields (`teapots:status.attempts`).
    `progress` is told how far it is; by default a line on stderr says what it will cost, and how far it has come.
    `afterwards` is how long everything is left alone before the ends are compared.
    All else are options of `virtual_cluster`; without nodes, unless `nodes` says otherwise."""
    __tracebackhide__ = True
    if scenario is None:
        raise ValueError("explore needs a scenario")
    return Exploration(operator, scenario, **options).explore(only=only, faults=faults, limit=limit, progress=progress)
