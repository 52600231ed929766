"""Predicts the effects of a change: it is made to a copy of a cluster in virtual time, and every loop reacts to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import orjson

from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.virtual.comparison import compared, moved_pods
from setpoint.cluster.virtual.component_faults import ComponentFaults, check_nodes
from setpoint.cluster.virtual.conditions import is_retrying, owner_of, ready_endpoints, slice_endpoints
from setpoint.cluster.virtual.fault_injection import TOUCHED
from setpoint.cluster.virtual.simulation import (
    FIRST_LOOK,
    QUIET,
    Livelock,
    SimulatedWrite,
    Simulation,
    simulation,
)
from setpoint.cluster.virtual.stored_state import kind_of, state_differences
from setpoint.meta.objects import Obj
from setpoint.meta.times import unix_milliseconds
from setpoint.node.pace import REAL, Pace
from setpoint.view.actors import actor_of
from setpoint.view.changes import FieldChange, changes, summary
from setpoint.view.fault_plan import Plan
from setpoint.view.plan import EndpointDip, Interruption, ObjectChange, PlannedEvent, PlanResult

_SLICES, _BUDGETS = "discovery.k8s.io/endpointslices/", "policy/poddisruptionbudgets/"
_CRON_JOBS, _PODS = "batch/cronjobs/", "core/pods/"
_ADMINISTRATOR = "kubernetes-admin"
_QUIET_KINDS = ("Endpoints", "EndpointSlice")
"""Kinds that follow others, and are not events of their own."""
_REPORTED_STATUS = ("Node", "Namespace", "PersistentVolumeClaim")
"""Kinds of which changes of the status are events."""


async def plan(
    copy: ClusterCopy,
    change: Callable[[Simulation], Awaitable[Sequence[str]]],
    *,
    until: float | None = None,
    within: float = 3600.0,
    stopped: Collection[str] = (),
    pace: Pace = REAL,
    interrupted: Callable[[], bool] = lambda: False,
    keep: Callable[[ClusterCopy], None] | None = None,
    faults: Mapping[str, Plan] = MappingProxyType({}),
) -> PlanResult:
    """Run the simulation; requires a virtual loop.

    `change` makes the change and returns the messages of what was refused. The simulation ends when the loops are
    quiet, or after `until` seconds. `stopped` names nodes that the change stops. `keep` is called with the state at
    the end. `faults` are injected into components from the change on; a simulation that ends when the loops are quiet
    then runs once more without them, to compare the ends. Raises Interrupted, BadRequest."""
    copy = copy.isolated()
    check_nodes(copy, faults)
    prediction = _Prediction(copy, change, until, within, stopped, pace, interrupted)
    if not faults:
        return (await prediction.run(keep=keep)).result
    without = await prediction.run() if until is None else None
    found = await prediction.run(faults, keep)
    result, report = found.result, found.result.faults
    if without is not None and report is not None and without.result.settled and result.settled:
        text = state_differences(without.end(), found.end(), (without.ended, found.ended))
        report.differences = text.splitlines()
        report.seconds_without = without.result.seconds
    return result


class _Run(NamedTuple):
    result: PlanResult
    end: Callable[[], dict[str, bytes]] = dict
    """Function that returns the objects at the end by key, without CronJobs and what they start, which depend on the
    time; none if the simulation did not get there."""
    ended: int = 0
    """The virtual time of the end, in milliseconds since the epoch."""


class _Prediction(NamedTuple):
    """A change to predict; the arguments are those of `plan`."""

    copy: ClusterCopy
    change: Callable[[Simulation], Awaitable[Sequence[str]]]
    until: float | None
    within: float
    stopped: Collection[str]
    pace: Pace
    interrupted: Callable[[], bool]

    async def run(
        self, plans: Mapping[str, Plan] = MappingProxyType({}), keep: Callable[[ClusterCopy], None] | None = None
    ) -> _Run:
        """Run the simulation once, with the faults of these plans. Raises Interrupted."""
        copy, result = self.copy, PlanResult(left_out=[*self.copy.left_out])
        async with simulation(copy, pace=self.pace, interrupted=self.interrupted, linked=bool(plans)) as running:
            try:
                await running.settle(FIRST_LOOK, QUIET)
            except Livelock as error:
                result.settled = False
                result.refused.append(f"the copy is not at rest: {error}")
                return _Run(result)
            result.first_look = events_of(running.loop_writes(), 0.0)
            running.writes.clear()
            before, begin, began = running.state(), running.elapsed, unix_milliseconds(running.clock.now())
            known = {*(each[:3] for each in running.unfinished()), *running.retrying()}
            faults = ComponentFaults(running, plans)
            async with faults.injected():
                try:
                    result.refused += await self.change(running)
                    if self.until is None:
                        result.settled = await faults.settle(self.within)
                    else:
                        await running.advance(max(self.until - (running.elapsed - begin), 0.0))
                except Livelock as error:
                    result.settled = False
                    result.refused.append(str(error))
            if plans:
                result.faults = faults.report()
            after, ended = running.state(), unix_milliseconds(running.clock.now())
            writes = [each for each in running.writes if not running.is_scheduled(each)]
            result.seconds = max((each.at for each in writes if not each.is_retry), default=begin) - begin
            result.changes = differences(before, after, running.belongs_to_cron_job, (began, ended))
            result.events = events_of(writes, begin)
            result.interruptions = [*_service_gaps(before, writes, begin), *_budget_gaps(before, writes, begin)]
            result.dips = _endpoint_dips(before, writes, begin)
            result.moved = moved_pods(before, after)
            result.compared = compared(before, after, result.moved, result.dips)
            result.passed = running.elapsed - begin
            if keep is not None:
                keep(replace(running.copy(), toleration_seconds=copy.toleration_seconds))
            for each in running.unfinished():
                if each[:3] in known:
                    result.earlier.append(each)
                elif each.node in self.stopped:
                    result.expected.append(each)
                else:
                    result.problems.append(each)

            def end() -> dict[str, bytes]:
                return {
                    key: value
                    for key, value in after.items()
                    if not (key.startswith(_CRON_JOBS) or running.belongs_to_cron_job(key, orjson.loads(value)))
                }

            return _Run(result, end, ended)


# -- differences ------------------------------------------------------------------------------------------------------


def differences(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    ignored: Callable[[str, Obj], bool] = lambda key, obj: False,
    times: tuple[int, int] = (0, 0),
) -> list[ObjectChange]:
    """Return the objects that differ, without times and other routine. `ignored` says which objects to leave out, and
    `times` are those of the states in milliseconds since the epoch, if they are known."""
    found = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        old_obj: Obj | None = None if old is None else orjson.loads(old)
        new_obj: Obj | None = None if new is None else orjson.loads(new)
        obj = new_obj or old_obj or {}
        if ignored(key, obj):
            continue
        action = "created" if old_obj is None else "deleted"
        fields: list[FieldChange] = []
        if old_obj is not None and new_obj is not None:
            action = "changed"
            if old_obj["metadata"].get("uid") != new_obj["metadata"].get("uid"):
                action = "replaced"
            fields = [each for each in changes(old_obj, new_obj) if not (_is_routine(each) or _is_bookkeeping(each))]
            if key.startswith(_PODS) and is_retrying(old or b"", times[0]) and is_retrying(new or b"", times[1]):
                fields = [each for each in fields if each.path[0] != "status"]
            if not fields or (key.startswith(_CRON_JOBS) and all(each.path[0] == "status" for each in fields)):
                continue
        meta = obj["metadata"]
        kind = kind_of(key, obj)
        found.append(ObjectChange(action, kind, meta.get("namespace", ""), meta["name"], owner_of(obj), fields))
    return found


_ROUTINE = (
    "observedGeneration",
    "deployment.kubernetes.io/revision",
    "endpoints.kubernetes.io/last-change-trigger-time",
)


def _is_routine(change: FieldChange) -> bool:
    last = change.path[-1]
    return (
        change.path[:2] == ("status", "images")
        or last in _ROUTINE
        or (change.path[0] == "status" and last.endswith(("Time", "At")))
    )


# -- events -----------------------------------------------------------------------------------------------------------


def events_of(writes: Iterable[SimulatedWrite], begin: float) -> list[PlannedEvent]:
    """Return the writes as events in their order, without those that only report progress. `begin` is the time of the
    change."""
    found = (_event(write, begin) for write in writes)
    return [event for event in found if event is not None]


def _event(write: SimulatedWrite, begin: float) -> PlannedEvent | None:
    if write.is_retry:
        return None
    old = None if write.before is None else orjson.loads(write.before)
    new = None if write.now is None else orjson.loads(write.now)
    obj: Obj = new or old or {}
    kind, meta = kind_of(write.key, obj), obj["metadata"]
    if kind in _QUIET_KINDS:
        return None
    action, text = "created" if old is None else "deleted", ""
    if old is not None and new is not None:
        action = "changed"
        changed = changes(old, new)
        text = _pod_progress(old, new) if kind == "Pod" else ""
        if not text:
            desired = [each for each in changed if each.path[0] != "status" and not _is_bookkeeping(each)]
            if kind in _REPORTED_STATUS:
                desired = [each for each in changed if not _is_bookkeeping(each) and not _is_routine(each)]
            elif kind == "Job":
                desired += [each for each in changed if each.path[:2] == ("status", "conditions")]
            if kind == "Pod" or not desired:
                return None
            text = summary(desired)
    cause = write.cause
    actor = "you" if cause.user == _ADMINISTRATOR else actor_of(cause)
    at = round(write.at - begin, 3)
    return PlannedEvent(at, actor, action, kind, meta.get("namespace", ""), meta["name"], owner_of(obj), text)


def _is_bookkeeping(change: FieldChange) -> bool:
    path = change.path
    return (
        path[:2] == ("metadata", "annotations")
        and len(path) > 2
        and path[2].startswith(
            ("deployment.kubernetes.io/", "endpoints.kubernetes.io/", "kubectl.kubernetes.io/last-applied", TOUCHED)
        )
    )


def _pod_progress(old: Obj, new: Obj) -> str:
    """Return the step in the life of a Pod; empty for a write that is none."""
    if new["spec"].get("nodeName") != old["spec"].get("nodeName"):
        return f"scheduled to {new['spec'].get('nodeName')}"
    if new["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
        return "being deleted"
    statuses = [
        {each["type"]: each.get("status") for each in (pod.get("status") or {}).get("conditions") or ()}.get("Ready")
        for pod in (old, new)
    ]
    if statuses[1] == "True" and statuses[0] != "True":
        return "ready"
    phases = [(pod.get("status") or {}).get("phase") for pod in (old, new)]
    if phases[0] != phases[1] and phases[1] in ("Failed", "Succeeded") and not new["metadata"].get("deletionTimestamp"):
        return "completed" if phases[1] == "Succeeded" else "failed"
    if statuses[0] == "True" and statuses[1] != "True" and not new["metadata"].get("deletionTimestamp"):
        return "not ready"
    return ""


# -- interruptions ----------------------------------------------------------------------------------------------------


def _service_gaps(before: Mapping[str, bytes], writes: Iterable[SimulatedWrite], begin: float) -> list[Interruption]:
    """Return when Services that had ready endpoints had none."""
    counts: Counter[str] = Counter(ready_endpoints(before))
    watched = {name for name, count in counts.items() if count}
    open_since: dict[str, float] = {}
    found: list[Interruption] = []
    for write in writes:
        if not write.key.startswith(_SLICES):
            continue
        for value, sign in ((write.before, -1), (write.now, 1)):
            if value is not None:
                service, count = slice_endpoints(orjson.loads(value))
                counts[service] += sign * count
        at = write.at - begin
        for service in watched:
            if counts[service] <= 0:
                open_since.setdefault(service, at)
            elif service in open_since:
                found.append(_interruption("Service", service, open_since.pop(service), at))
    found += [_interruption("Service", service, since, None) for service, since in open_since.items()]
    return [each for each in found if each.seconds != 0]


def _endpoint_dips(before: Mapping[str, bytes], writes: Iterable[SimulatedWrite], begin: float) -> list[EndpointDip]:
    """Return when Services had fewer ready endpoints than at the beginning, from the first such moment to the last."""
    first = ready_endpoints(before)
    counts: Counter[str] = Counter(first)
    found: dict[str, EndpointDip] = {}
    for write in writes:
        if not write.key.startswith(_SLICES):
            continue
        for value, sign in ((write.before, -1), (write.now, 1)):
            if value is not None:
                service, count = slice_endpoints(orjson.loads(value))
                counts[service] += sign * count
        at = round(write.at - begin, 3)
        for service, usual in first.items():
            dip, now = found.get(service), counts[service]
            if now < usual:
                namespace, _, name = service.partition("/")
                dip = dip or EndpointDip(namespace, name, usual, now, at, None)
                found[service] = dip._replace(least=min(dip.least, now), until=None)
            elif dip is not None and dip.until is None:
                found[service] = dip._replace(until=at)
    return [dip for dip in found.values() if dip.until != dip.since]


def _budget_gaps(before: Mapping[str, bytes], writes: Iterable[SimulatedWrite], begin: float) -> list[Interruption]:
    """Return when disruption budgets that were kept were violated."""
    open_since: dict[str, float] = {}
    found: list[Interruption] = []
    for write in writes:
        if not write.key.startswith(_BUDGETS) or write.key not in before or write.now is None:
            continue
        status = orjson.loads(write.now).get("status") or {}
        name, at = write.key[len(_BUDGETS) :], write.at - begin
        if status.get("currentHealthy", 0) < status.get("desiredHealthy", 0):
            open_since.setdefault(name, at)
        elif name in open_since:
            found.append(_interruption("PodDisruptionBudget", name, open_since.pop(name), at))
    found += [_interruption("PodDisruptionBudget", name, since, None) for name, since in open_since.items()]
    return [each for each in found if each.seconds != 0]


def _interruption(kind: str, name: str, since: float, until: float | None) -> Interruption:
    namespace, _, name = name.partition("/")
    return Interruption(kind, namespace, name, round(since, 3), None if until is None else round(until - since, 3))
