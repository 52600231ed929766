"""One scenario, again and again, each time with something else going wrong: the end must always be the same.

    def test_whatever_happens(explore):
        explore(operator, scenario)

The scenario is run once in peace, which shows what the operator writes and hears. Then it is run under every single
fault at every one of these points. Where it comes to something else than in peace, the smallest such case is shown, as
a plan by which it happens again: `explore(operator, scenario, only="crash-after:7")`.
"""

from __future__ import annotations

import inspect
import json
import logging
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.times import parse_duration
from setpoint.reconcile import Manager
from setpoint.sdk import Operator
from setpoint.testing.cluster import VirtualCluster, virtual_cluster
from setpoint.testing.disturbance import Disturbance, Step
from setpoint.testing.end_state import EndState, differences, end_state
from setpoint.testing.exploring_report import Diverged, told
from setpoint.testing.plan import KINDS, Fault, Plan
from setpoint.testing.virtual_time import run_virtual

log = logging.getLogger("setpoint.testing")

Scenario = Callable[..., Awaitable[None]]
"""What users do: (cluster), or (cluster, outside)."""

EVERY_FAULT = (
    "error", "conflict", "crash-before", "crash-after", "lost-answer", "timeout", "too-many", "stale", "rewind",
    "duplicate", "drop-watch", "expire-watch", "delay-watch", "down", "down/1m",
)  # fmt: skip
"""The simplest first. Nodes are cut off only when asked for: that says more about Pods than about an operator."""
LIMIT = 200
_AFTERWARDS, _LONG_AFTERWARDS = "1m", "6m"
"""Longer for built-in components: some look at everything only every five minutes, and what fell between is theirs.
What an operator means to look at again is known from its queues."""
_QUIET = 5.0


@dataclass(slots=True)
class Ending:
    """What one run came to."""

    plan: Plan
    state: EndState = field(default_factory=dict)
    """Of the resources that were touched; in peace, of all."""
    touched: set[str] = field(default_factory=set)
    """As the store names them."""
    steps: list[Step] = field(default_factory=list)
    failure: str = ""
    """What the scenario, the check, or the wait for rest said."""
    phase: str = "it did not start"
    """How it would have to be told if it failed now."""
    open: Plan = field(default_factory=Plan)
    """What of the plan did not come to pass."""


@dataclass(frozen=True, slots=True)
class Explored:
    """How much was tried."""

    writes: int
    events: int
    tried: int
    cases: int

    def __str__(self) -> str:
        return f"{self.writes} writes, {self.events} events: {self.tried} of {self.cases} cases tried"


class Exploration:
    """A scenario whose end in peace is known, once it was asked for."""

    def __init__(
        self,
        operator: Operator | Callable[..., Operator] | None,
        scenario: Scenario,
        *,
        component: str | Sequence[str] = (),
        outside: Callable[[], Any] | None = None,
        check: Scenario | None = None,
        leave_out: Sequence[str] = (),
        afterwards: str = "",
        **options: Any,
    ) -> None:
        """See `explore`."""
        self._components = (component,) if isinstance(component, str) else tuple(component)
        if (operator is None) == (not self._components):
            raise ValueError("explore an operator, or a component of the cluster by its name")
        self._operator = operator
        self._scenario = scenario
        self._outside = outside
        self._check = check
        self._leave_out = leave_out
        usual = _AFTERWARDS if operator is not None else _LONG_AFTERWARDS
        self._afterwards = parse_duration(afterwards or usual) / 1e9
        self._options = {"nodes": 0, **options}

    @cached_property
    def peace(self) -> Ending:
        """Raises what the scenario raises."""
        return self.under(Plan())

    def under(self, plan: Plan) -> Ending:
        """How it ends when this goes wrong."""
        ending = Ending(plan)
        # What neither this run nor the one in peace has touched is as it was at the beginning of both.
        compared = self.peace.touched if plan.faults else None
        try:
            run_virtual(self._live, ending, compared)
        except Exception as error:
            if not plan.faults:
                raise
            ending.failure = f"{ending.phase}: {_why(error)}"
        return ending

    def differences(self, ending: Ending) -> str:
        """From the end in peace; empty when there are none."""
        return ending.failure or differences(self.peace.state, ending.state)

    # -- one run ------------------------------------------------------------------------------------------------------

    async def _live(self, ending: Ending, compared: set[str] | None) -> None:
        async with AsyncExitStack() as stack:
            world: list[Any] = []
            if self._outside is not None:
                made = self._outside()
                world.append(await stack.enter_async_context(made) if hasattr(made, "__aenter__") else made)
            cluster = await stack.enter_async_context(virtual_cluster(**self._options))
            names = self._components or (await self._start(cluster, stack, world),)
            await self._disturb(cluster, names, ending, world)
            ending.phase = "the check failed"
            if self._check is not None:
                await self._check(cluster, *world)
            only = None if compared is None else compared | ending.touched
            ending.state = await end_state(cluster.client, self._leave_out, only)
            ending.state["outside"] = Counter(_outside(each) for each in world)

    async def _rest(self, cluster: VirtualCluster, names: Sequence[str]) -> None:
        """Everything has had its chance: what is to be tried again was, and nobody writes any more."""
        await cluster.sleep(self._afterwards)
        for name in names:
            manager = cluster.component(name).current
            if isinstance(manager, Manager):
                await cluster.sleep(manager.due_within)
        await cluster.settle(_QUIET)

    async def _start(self, cluster: VirtualCluster, stack: AsyncExitStack, world: list[Any]) -> str:
        operator = self._operator
        assert operator is not None
        if not isinstance(operator, Operator):
            make = operator
            before = set(cluster.links)
            await stack.enter_async_context(cluster.running(lambda: make(*world)))
            (name,) = set(cluster.links) - before
            return name
        await stack.enter_async_context(cluster.running(operator))
        return operator.name

    async def _disturb(self, cluster: VirtualCluster, names: Sequence[str], ending: Ending, world: list[Any]) -> None:
        store = cluster.embedded.store
        store.watch(
            "", store.revision, lambda events, _: ending.touched.update(_resource_of(each.key) for each in events)
        )
        disturbance = Disturbance(cluster, names, ending.plan, strict=False)
        ending.steps = disturbance.steps
        try:
            async with disturbance:
                ending.phase = "the scenario failed"
                await self._scenario(cluster, *world)
                ending.phase = "it does not come to rest"
                await cluster.settle()
                await disturbance.over()
                await self._rest(cluster, names)
        finally:
            ending.open = disturbance.open

    # -- many ---------------------------------------------------------------------------------------------------------

    def explore(
        self, *, only: str | Plan = "", faults: Sequence[str] = EVERY_FAULT, limit: int | None = None
    ) -> Explored:
        """Raises Diverged."""
        if not self.peace.steps:
            raise AssertionError("in peace nothing is written or heard: there is nothing that could go wrong")
        if only:
            return self._replay(Plan.parse(only))
        cases = list(self._cases([Plan.template(each) for each in faults]))
        chosen = _spread(cases, LIMIT if limit is None else limit)
        if len(chosen) < len(cases) and limit is None:
            warnings.warn(f"explore: {len(chosen)} of {len(cases)} cases are tried; more with limit=", stacklevel=3)
        tried = 0
        for case in sorted(chosen, key=self._size):
            if tried % 20 == 0:
                log.info("explore: %d of %d cases tried", tried, len(chosen))
            tried += 1
            ending = self.under(case)
            if self.differences(ending):
                smallest, more = self._smaller(ending, [each for each in cases if each not in set(chosen)])
                raise self._diverged(smallest, tried + more, len(cases))
        log.info("explore: all of %d cases came to the same", tried)
        return self._explored(tried, len(cases))

    def _replay(self, plan: Plan) -> Explored:
        ending = self.under(plan)
        if self.differences(ending):
            raise self._diverged(ending, 1, 1)
        if ending.open.faults:
            counts = f"{self._count('write')} writes and {self._count('event')} events"
            raise AssertionError(f"{ending.open} never came to pass: in peace there are {counts}")
        return self._explored(1, 1)

    def _explored(self, tried: int, cases: int) -> Explored:
        return Explored(self._count("write"), self._count("event"), tried, cases)

    def _diverged(self, ending: Ending, tried: int, cases: int) -> Diverged:
        text = told(ending.plan, self.differences(ending), self.peace.steps, ending.steps, tried, cases)
        return Diverged(text, str(ending.plan))

    def _count(self, at: str) -> int:
        return sum(step.at == at and step.armed for step in self.peace.steps)

    def _cases(self, templates: Sequence[Plan]) -> Iterator[Plan]:
        for template in templates:
            for nth in range(1, self._count(template.faults[0].at) + 1):
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

    def _smaller(self, ending: Ending, skipped: Sequence[Plan]) -> tuple[Ending, int]:
        """The first that diverges of those that are smaller and were not tried: parts of it, then earlier points. And
        how many were."""
        parts = [Plan((each,)) for each in ending.plan] if len(ending.plan) > 1 else []
        earlier = [each for each in sorted(skipped, key=self._size) if self._size(each) < self._size(ending.plan)]
        tried = 0
        for plan in [*parts, *earlier][:LIMIT]:
            tried += 1
            found = self.under(plan)
            if self.differences(found):
                return found, tried
        return ending, tried


def _spread(cases: Sequence[Plan], limit: int) -> list[Plan]:
    """So many of them, evenly over all kinds and points."""
    if len(cases) <= limit:
        return list(cases)
    return [cases[(2 * number + 1) * len(cases) // (2 * limit)] for number in range(limit)]


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, NotFound | AlreadyExists):
        return f"{error}. Under a fault things take longer: a scenario waits for what it relies on, by `cluster.until`"
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _resource_of(key: str) -> str:
    group, resource, *_ = key.split("/", 2)
    return f"{group}/{resource}"


def _outside(world: Any) -> str:
    state = world.state() if callable(getattr(world, "state", None)) else world
    if inspect.isawaitable(state):
        raise TypeError("state() of what is outside is no coroutine")
    return json.dumps({"kind": "outside", "state": state}, sort_keys=True, default=str)


def explore(
    operator: Operator | Callable[..., Operator] | None = None,
    scenario: Scenario | None = None,
    *,
    only: str | Plan = "",
    faults: Sequence[str] = EVERY_FAULT,
    limit: int | None = None,
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
    `afterwards` is how long everything is left alone before the ends are compared.
    All else are options of `virtual_cluster`; without nodes, unless `nodes` says otherwise."""
    if scenario is None:
        raise ValueError("explore needs a scenario")
    return Exploration(operator, scenario, **options).explore(only=only, faults=faults, limit=limit)
