"""A scenario and what it is tried on: one run of it, from a fresh cluster to what it comes to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Unpack

from setpoint.meta.errors import AlreadyExists, InternalError, NotFound
from setpoint.meta.times import parse_duration
from setpoint.reconcile import Manager
from setpoint.sdk import Operator
from setpoint.testing.cluster import VirtualCluster, virtual_cluster
from setpoint.testing.disturbance import Disturbance, Step
from setpoint.testing.end_state import EndState, end_state
from setpoint.testing.plan import Plan
from setpoint.testing.snapshot import ClusterOptions, Prepared, Snapshot
from setpoint.testing.virtual_time import run_virtual

Scenario = Callable[..., Awaitable[None]]
"""What users do: (cluster), or (cluster, outside)."""

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


class Trial:
    """See `explore` for what it is made of."""

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
        start: Snapshot | Prepared | None = None,
        **options: Unpack[ClusterOptions],
    ) -> None:
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
        self._start_with = start
        self._options = options
        if start is None:
            self._options.setdefault("nodes", 0)

    def in_peace(self) -> Ending:
        """Raises what the scenario raises."""
        ending = Ending(Plan())
        run_virtual(self._live, self._begin, ending, None)
        return ending

    def under(self, plan: Plan, peace: Ending) -> Ending:
        """Only what was touched is compared: what neither this run nor the one in peace has touched is as it was at the
        beginning of both."""
        ending = Ending(plan)
        try:
            run_virtual(self._live, self._begin, ending, peace.touched)
        except Exception as error:
            ending.failure = f"{ending.phase}: {_why(error)}"
        return ending

    @cached_property
    def _begin(self) -> Snapshot:
        """With what every run begins: a cluster that is up, and knows the operator's kinds."""
        start = self._start_with
        return run_virtual(self._made, start.snapshot() if isinstance(start, Prepared) else start)

    async def _made(self, start: Snapshot | None) -> Snapshot:
        async with AsyncExitStack() as stack:
            world = await self._outside_of(stack)
            cluster = await stack.enter_async_context(virtual_cluster(start=start, **self._options))
            operator = self._operator(*world) if callable(self._operator) else self._operator
            if operator is not None and not operator.has_webhooks:
                await operator.install(cluster.client.named(operator.name), cluster.clock)
            await cluster.settle()
            return cluster.snapshot()

    async def _outside_of(self, stack: AsyncExitStack) -> list[Any]:
        if self._outside is None:
            return []
        made = self._outside()
        return [await stack.enter_async_context(made) if hasattr(made, "__aenter__") else made]

    async def _live(self, begin: Snapshot, ending: Ending, compared: set[str] | None) -> None:
        async with AsyncExitStack() as stack:
            world = await self._outside_of(stack)
            cluster = await stack.enter_async_context(virtual_cluster(start=begin))
            names = self._components or (await self._start(cluster, stack, world),)
            await self._disturb(cluster, names, ending, world)
            ending.phase = "the check failed"
            if self._check is not None:
                await self._check(cluster, *world)
            only = None if compared is None else compared | ending.touched
            ending.state = await end_state(cluster.client, self._leave_out, only)
            ending.state["outside"] = Counter(_outside(each) for each in world)

    async def _start(self, cluster: VirtualCluster, stack: AsyncExitStack, world: list[Any]) -> str:
        operator, before = self._operator, set(cluster.links)
        assert operator is not None
        made = operator if isinstance(operator, Operator) else lambda: operator(*world)
        await stack.enter_async_context(cluster.running(made))
        (name,) = set(cluster.links) - before
        return name

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

    async def _rest(self, cluster: VirtualCluster, names: Sequence[str]) -> None:
        """Everything has had its chance: what is to be tried again was, and nobody writes any more."""
        await cluster.sleep(self._afterwards)
        for name in names:
            manager = cluster.component(name).current
            if isinstance(manager, Manager):
                await cluster.sleep(manager.due_within)
        await cluster.settle(_QUIET)


def _why(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, NotFound | AlreadyExists):
        return f"{error}. Under a fault things take longer: a scenario waits for what it relies on, by `cluster.until`"
    if isinstance(error, InternalError) and "failed calling webhook" in str(error):
        return f"{error}. While an operator is down nobody answers for it: a scenario tries again, by `cluster.until`"
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _resource_of(key: str) -> str:
    group, resource, *_ = key.split("/", 2)
    return f"{group}/{resource}"


def _outside(world: Any) -> str:
    state = world.state() if callable(getattr(world, "state", None)) else world
    return json.dumps({"kind": "outside", "state": state}, sort_keys=True, default=str)
