"""Faults of the components of a copy: executes the fault plans of several components, and reports what happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.virtual.fault_injection import FaultInjection, Step
from setpoint.cluster.virtual.simulation import Simulation
from setpoint.meta.errors import BadRequest
from setpoint.view.fault_plan import BadPlan, Fault, Plan, plans_of_components
from setpoint.view.fault_report import FaultReport, InjectedFault, ReportedStep

_MAX_STEPS = 500
"""The number of steps of each component that a report has."""


def requested_faults(wanted: Mapping[str, Any]) -> dict[str, Plan]:
    """Return the fault plans by component that the body of a request asks for in `faults`. Raises BadRequest."""
    try:
        return plans_of_components(wanted.get("faults") or {})
    except BadPlan as error:
        raise BadRequest(f"faults: {error}") from None


def check_nodes(copy: ClusterCopy, plans: Mapping[str, Plan]) -> None:
    """Raise BadRequest if a fault concerns a node that the copy does not have."""
    for plan in plans.values():
        for fault in plan:
            if fault.node and f"core/nodes/{fault.node}" not in copy.objects:
                raise BadRequest(f"{fault}: there is no node {fault.node}")


class ComponentFaults:
    """The faults of one run of a simulation."""

    def __init__(self, running: Simulation, plans: Mapping[str, Plan]) -> None:
        self._running = running
        self._plans = plans
        self._injections = {
            component: FaultInjection(running, [component], plan, strict=False) for component, plan in plans.items()
        }

    @asynccontextmanager
    async def injected(self) -> AsyncIterator[None]:
        """Inject the faults inside the block. At its end, faults that last on are abandoned: the simulation has to end
        too."""
        async with AsyncExitStack() as stack:
            for injection in self._injections.values():
                await stack.enter_async_context(injection)
            try:
                yield
            finally:
                for injection in self._injections.values():
                    await injection.abandon()

    async def settle(self, within: float) -> bool:
        """Let time pass until all faults have ended and the loops are quiet, and return whether they became quiet
        within `within` seconds after the end of the last fault. Raises Interrupted, Livelock."""
        settled = await self._running.settle(within)
        while any(each.is_active for each in self._injections.values()):
            await self._running.wait_while(lambda: any(each.is_active for each in self._injections.values()))
            settled = await self._running.settle(within)
        return settled

    def report(self) -> FaultReport:
        """Return which faults occurred, and the steps of the components that had them."""
        report = FaultReport()
        for component, injection in self._injections.items():
            counts = {"write": injection.writes, "event": injection.events}
            report.faults += [
                _reported(component, fault, injection.steps, counts.get(fault.at, 0))
                for fault in self._plans[component]
            ]
            report.steps += [
                ReportedStep(
                    component, each.at, each.nth, round(each.when, 3), _action(component, each), each.fault, each.answer
                )
                for each in injection.steps[:_MAX_STEPS]
            ]
            report.more_steps += max(0, len(injection.steps) - _MAX_STEPS)
        return report


def _reported(component: str, fault: Fault, steps: list[Step], count: int) -> InjectedFault:
    at = 0.0 if fault.at == "seed" else None  # random faults begin at once
    what = ""
    for step in steps:
        if (step.at, step.nth) == (fault.at, fault.nth) and fault.kind in step.fault.split("+"):
            at, what = round(step.when, 3), _action(component, step)
            break
    return InjectedFault(component, str(fault), fault.at, fault.description, at, what, count)


def _action(component: str, step: Step) -> str:
    return step.what.removeprefix(f"{component}: ")
