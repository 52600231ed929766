"""One run of a scenario, from a fresh cluster to its end state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Unpack

from setpoint.cluster.virtual.fault_injection import FaultInjection, Step
from setpoint.meta.errors import AlreadyExists, InternalError, NotFound
from setpoint.meta.times import parse_duration
from setpoint.reconcile import Manager
from setpoint.sdk import Operator
from setpoint.testing.cluster import VirtualCluster, virtual_cluster
from setpoint.testing.end_state import EndState, end_state
from setpoint.testing.snapshot import ClusterOptions, Prepared, Snapshot
from setpoint.testing.virtual_time import run_virtual
from setpoint.view.fault_plan import Plan

Scenario = Callable[..., Awaitable[None]]
"""The actions of users: a function of (cluster) or (cluster, outside)."""

_AFTERWARDS, _LONG_AFTERWARDS = "1m", "6m"
"""How long to wait before end states are compared: for operators, and for built-in components. Some built-in ones
resync only every five minutes; the next requeue of an operator is known from its queues."""
_QUIET = 5.0


@dataclass(slots=True)
class RunResult:
    """The result of one run."""

    plan: Plan
    state: EndState = field(default_factory=dict)
    """The end state of the resources that were written; of all resources in the baseline."""
    touched: set[str] = field(default_factory=set)
    """The resources that were written, in the form `apps/deployments`."""
    steps: list[Step] = field(default_factory=list)
    failure: str = ""
    """The error of the scenario, the check, or the wait for quiescence; empty if there was none."""
    phase: str = "it did not start"
    """The description of a failure in the current phase of the run."""
    open: Plan = field(default_factory=Plan)
    """The faults of the plan that were not injected."""


class Trial:
    """A scenario with everything that its runs need; see `explore`."""

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

    def without_faults(self) -> RunResult:
        """Run without faults; exceptions of the scenario propagate."""
        ending = RunResult(Plan())
        run_virtual(self._live, self._begin, ending, None)
        return ending

    def under(self, plan: Plan, baseline: RunResult) -> RunResult:
        """Run under a plan, and compute the end state of the resources that this run or the baseline has written.

        All other resources are as they were at the beginning of both.
        """
        ending = RunResult(plan)
        try:
            run_virtual(self._live, self._begin, ending, baseline.touched)
        except Exception as error:
            ending.failure = f"{ending.phase}: {_why(error)}"
        return ending

    @cached_property
    def _begin(self) -> Snapshot:
        """The initial state of every run: a settled cluster that serves the operator's kinds."""
        start = self._start_with
        return run_virtual(self._take_snapshot, start.snapshot() if isinstance(start, Prepared) else start)

    async def _take_snapshot(self, start: Snapshot | None) -> Snapshot:
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

    async def _live(self, begin: Snapshot, ending: RunResult, compared: set[str] | None) -> None:
        async with AsyncExitStack() as stack:
            world = await self._outside_of(stack)
            cluster = await stack.enter_async_context(virtual_cluster(start=begin))
            names = self._components or (await self._start(cluster, stack, world),)
            await self._run_scenario(cluster, names, ending, world)
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

    async def _run_scenario(
        self, cluster: VirtualCluster, names: Sequence[str], ending: RunResult, world: list[Any]
    ) -> None:
        store = cluster.embedded.store
        store.watch(
            "", store.revision, lambda events, _: ending.touched.update(_resource_of(each.key) for each in events)
        )
        disturbance = FaultInjection(cluster, names, ending.plan, strict=False)
        ending.steps = disturbance.steps
        try:
            async with disturbance:
                ending.phase = "the scenario failed"
                await self._scenario(cluster, *world)
                ending.phase = "the cluster does not settle"
                await cluster.settle()
                await disturbance.over()
                await self._wait_for_quiescence(cluster, names)
        finally:
            ending.open = disturbance.open

    async def _wait_for_quiescence(self, cluster: VirtualCluster, names: Sequence[str]) -> None:
        """Wait until all pending retries and requeues have run and nothing is written any more."""
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
        return f"{error}. Faults cause delays: wait in the scenario for what it relies on, with `cluster.until`"
    if isinstance(error, InternalError) and "failed calling webhook" in str(error):
        return f"{error}. The webhooks of a crashed operator do not answer: retry in the scenario, with `cluster.until`"
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _resource_of(key: str) -> str:
    group, resource, *_ = key.split("/", 2)
    return f"{group}/{resource}"


def _outside(world: Any) -> str:
    state = world.state() if callable(getattr(world, "state", None)) else world
    return json.dumps({"kind": "outside", "state": state}, sort_keys=True, default=str)
