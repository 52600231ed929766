"""PodDisruptionBudgets: compute how many of the selected Pods may be disrupted now.

The API server decrements the status of a budget with each eviction; this controller recomputes it. If the number cannot
be determined, no disruption is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.pods import is_ready, phase
from setpoint.controllers.subresources import read_scale
from setpoint.kinds.numbers import scaled_value
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of, conditions_of, new_condition, with_condition
from setpoint.meta.errors import ApiError, Conflict
from setpoint.meta.goformat import label_selector
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import SelectorError, from_label_selector
from setpoint.meta.times import format_time, parse_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.manager import ControllerGroup

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.kinds.typed.metadata import OwnerReference

_DELETION_TIMEOUT = timedelta(minutes=2)
"""The time after which an evicted Pod that is still not being deleted counts as not evicted."""
_ALLOWED = "DisruptionAllowed"
Scale = tuple[str, int]
"""The uid of a controller and its replicas."""
_KINDS = {
    "ReplicationController": ("replicationcontrollers", ""),
    "ReplicaSet": ("replicasets", "apps"),
    "StatefulSet": ("statefulsets", "apps"),
    "Deployment": ("deployments", "apps"),
}
_TARGET = "DisruptionTarget"
_STALE_AFTER = 120.0
"""Seconds after which the DisruptionTarget condition of a Pod that was not deleted is cleared."""
_BUDGETS = builtin("poddisruptionbudgets", "policy")
_DEADLINE_MARGIN = 0.005
"""Added to a delay, because a deadline that falls on this very instant has not passed yet."""


def _needs_scale(budget: Obj) -> bool:
    """Return whether the budget depends on the desired number of Pods and not only on the existing ones."""
    spec = budget["spec"]
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def _desired_healthy(budget: Obj, expected: int) -> int:
    spec = budget["spec"]
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - scaled_value(spec["maxUnavailable"], expected, up=True))
    return scaled_value(spec.get("minAvailable", 0), expected, up=True)


class Disrupted(NamedTuple):
    pods: dict[str, str]
    """Evicted Pods whose deletion is not observed yet: the time of eviction by name."""
    overdue: list[Pod]
    recheck: datetime | None
    """The time at which the first of them becomes overdue; None if there is none."""


def _still_disrupted(budget: Obj, pods: Iterable[Pod], now: datetime) -> Disrupted:
    noted = (budget.get("status") or {}).get("disruptedPods") or {}
    left: dict[str, str] = {}
    overdue: list[Pod] = []
    ends: list[datetime] = []
    for pod in pods:
        since = noted.get(pod["metadata"]["name"])
        if since is None or "deletionTimestamp" in pod["metadata"]:
            continue
        end = parse_time(since) + _DELETION_TIMEOUT
        if end < now:
            overdue.append(pod)
        else:
            left[pod["metadata"]["name"]] = since
            ends.append(end)
    return Disrupted(left, overdue, min(ends, default=None))


def _healthy(pods: Iterable[Pod], disrupted: Mapping[str, str], now: datetime) -> int:
    def counts(pod: Pod) -> bool:
        since = disrupted.get(pod["metadata"]["name"])
        if "deletionTimestamp" in pod["metadata"] or (since and parse_time(since) + _DELETION_TIMEOUT > now):
            return False
        return is_ready(pod)

    return sum(map(counts, pods))


def _status_of(budget: Obj, pods: Sequence[Pod], expected: int, disrupted: dict[str, str], now: datetime) -> Obj:
    current, desired = _healthy(pods, disrupted, now), _desired_healthy(budget, expected)
    allowed = max(0, current - desired) if expected > 0 else 0
    generation = budget["metadata"].get("generation", 0)
    status: Obj = {
        "currentHealthy": current,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": generation,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    verdict = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    status["conditions"] = _conditions(budget, *verdict, "", generation, now)
    return status


def _failed_status(budget: Obj, message: str, now: datetime) -> Obj:
    """Return the status of a budget that cannot be computed, which allows no disruption."""
    old = budget.get("status") or {}
    generation = old.get("observedGeneration", 0)
    conditions = _conditions(budget, "False", "SyncFailed", message, generation, now)
    counts = {"currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
    return {**counts, **old, "disruptionsAllowed": 0, "conditions": conditions}


def _conditions(budget: Obj, status: str, reason: str, message: str, generation: int, now: datetime) -> list[ObjView]:
    new = new_condition(_ALLOWED, status, reason, message, now)
    if generation:
        new["observedGeneration"] = generation
    return with_condition(conditions_of(budget), new)


# -- expected Pods ----------------------------------------------------------------------------------------------------


class ExpectedPods:
    """Determines the expected number of Pods of a budget from the scale of their controllers."""

    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str], Informer[Obj]] = {
            (group, kind): manager.informer(builtin(plural, group)) for kind, (plural, group) in _KINDS.items()
        }

    async def count(self, pods: Iterable[Pod]) -> tuple[int, list[str]]:
        """Return the expected number, and the names of the Pods without a controller. Raise ApiError if it cannot be
        determined."""
        scales: dict[str, int] = {}
        unmanaged: list[str] = []
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                unmanaged.append(pod["metadata"]["name"])
            elif owner["uid"] not in scales:
                found = await self._scale(pod, owner)
                if found is None:
                    raise ApiError(f'found no controllers for pod "{pod["metadata"]["name"]}"')
                scales[found[0]] = found[1]
        return sum(scales.values()), unmanaged

    async def _scale(self, pod: Pod, owner: OwnerReference) -> Scale | None:
        namespace = pod["metadata"]["namespace"]
        found = self._cached(owner, namespace)
        if found is not None:
            # Use the Deployment instead of its ReplicaSets, which do not add up during a rollout.
            above = controller_of(found) if owner["kind"] == "ReplicaSet" else None
            if above is None or above["kind"] != "Deployment":
                return _replicas(found)
            deployment = self._cached(above, namespace)
            if deployment is not None:
                return _replicas(deployment)
        resource = await self._client.resource((owner["apiVersion"], owner["kind"]))
        scale = await read_scale(self._client, resource, owner["name"], namespace)
        if scale is None or scale["metadata"].get("uid") != owner["uid"]:
            return None
        return owner["uid"], (scale.get("spec") or {}).get("replicas", 0)

    def _cached(self, reference: OwnerReference, namespace: str) -> Obj | None:
        group = reference["apiVersion"].rpartition("/")[0]
        informer = self._known.get(("apps" if group == "extensions" else group, reference["kind"]))
        found = informer.get(f"{namespace}/{reference['name']}") if informer is not None else None
        return found if found is not None and found["metadata"]["uid"] == reference["uid"] else None


def _replicas(owner: Obj) -> Scale:
    return owner["metadata"]["uid"], owner["spec"].get("replicas", 1)


# -- stale conditions -------------------------------------------------------------------------------------------------


class StaleConditions:
    """Clears the DisruptionTarget condition of Pods that were not deleted within two minutes."""

    def __init__(self, client: Client, clock: Clock, pods: Informer[Pod]) -> None:
        self._client = client
        self._clock = clock
        self._pods = pods

    def stale_in(self, pod: Pod) -> float | None:
        """Return the seconds until the condition is stale, or None if the Pod has none that can become stale."""
        found = condition_of(pod, _TARGET)
        if found is None or found["status"] != "True" or found.get("reason") == "TerminationByKubelet":
            return None
        if "deletionTimestamp" in pod["metadata"] or phase(pod) in ("Succeeded", "Failed"):
            return None
        since = found.get("lastTransitionTime")
        return max(0.0, _STALE_AFTER - (self._clock.now() - parse_time(since)).total_seconds()) if since else 0.0

    async def reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        left = self.stale_in(pod) if pod is not None else None
        if pod is None or left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        cleared: Obj = {"type": _TARGET, "status": "False", "lastTransitionTime": format_time(self._clock.now())}
        if "generation" in pod["metadata"]:
            cleared["observedGeneration"] = pod["metadata"]["generation"]
        conditions = [cleared if each["type"] == _TARGET else each for each in pod["status"]["conditions"]]
        await self._client.update({**pod, "status": {**pod["status"], "conditions": conditions}}, subresource="status")
        return None


# -- controller -------------------------------------------------------------------------------------------------------


def disruption_controller(manager: Manager, options: ControllerOptions) -> ControllerGroup:
    name = "disruption-controller"
    client, budgets, pods = manager.client_for(name), manager.informer(_BUDGETS), manager.informer(PODS)
    recorder = manager.recorder("controllermanager", account=name)
    reconciler = Budgets(client, manager.clock, budgets, pods, ExpectedPods(manager, client), recorder)
    controller = Controller(name, reconciler.reconcile, manager.clock, workers=options.concurrent_disruption_syncs)
    stale = StaleConditions(client, manager.clock, pods)
    clearing = Controller(f"{name} (stale conditions)", stale.reconcile, manager.clock)
    reconciler.watch(controller)

    def pod_changed(old: Pod | None, new: Pod | None) -> None:
        left = stale.stale_in(new) if new is not None else None
        if new is not None and left is not None:
            clearing.queue.add_after(key_of(new), left)

    pods.add_handler(pod_changed)
    return ControllerGroup(controller, clearing)


class Budgets:
    """Recomputes the status of budgets when they or their Pods change."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        budgets: Informer[Obj],
        pods: Informer[Pod],
        expected: ExpectedPods,
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._clock = clock
        self._budgets = budgets
        self._pods = pods
        self._expected = expected
        self._recorder = recorder

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller) -> None:
        def budget_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
            keys: dict[str, None] = {}
            for pod in (old, new):
                keys.update(dict.fromkeys(self._of(pod) if pod is not None else ()))
            if new is not None and len(self._of(new)) > 1:
                self._warn_of_several(new)
            for key in keys:
                controller.enqueue(key)

        self._budgets.add_handler(budget_changed)
        self._pods.add_handler(pod_changed)

    def _of(self, pod: Pod) -> list[str]:
        labels = pod["metadata"].get("labels") or {}
        found = self._budgets.in_namespace(pod["metadata"]["namespace"])
        return [key_of(budget) for budget in found if _selects(budget, labels)]

    def _warn_of_several(self, pod: Pod) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        chosen = self._of(pod)[0].rpartition("/")[2]
        text = f'Pod "{namespace}"/"{name}" matches multiple PodDisruptionBudgets.  Chose "{chosen}" arbitrarily.'
        self._recorder.warning(pod, "MultiplePodDisruptionBudgets", text)

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        budget = self._budgets.get(key)
        if budget is None:
            return None
        try:
            return await self._refresh(budget)
        except Conflict:
            raise
        except ApiError as error:
            await self._write(budget, _failed_status(budget, str(error), self._clock.now()))
            return None

    async def _refresh(self, budget: Obj) -> Result | None:
        pods = self._selected(budget)
        expected = await self._count(budget, pods)
        now = self._clock.now()
        disrupted = _still_disrupted(budget, pods, now)
        meta = budget["metadata"]
        for pod in disrupted.overdue:
            # Upstream repeats the namespace here; keep the message searchable.
            text = f"Pod was expected by PDB {meta['namespace']}/{meta['namespace']} to be deleted but it wasn't"
            self._recorder.warning(pod, "NotDeleted", text)
        await self._write(budget, _status_of(budget, pods, expected, disrupted.pods, now))
        if disrupted.recheck is None:
            return None
        return Result(requeue_after=(disrupted.recheck - now).total_seconds() + _DEADLINE_MARGIN)

    def _selected(self, budget: Obj) -> list[Pod]:
        try:
            selector = from_label_selector(budget["spec"].get("selector"))
        except SelectorError as error:
            self._recorder.warning(budget, "NoPods", f"Failed to get pods: {error}")
            raise ApiError(str(error)) from None
        inside = self._pods.in_namespace(budget["metadata"]["namespace"])
        pods = [pod for pod in inside if selector.matches(pod["metadata"].get("labels") or {})]
        if not pods:
            self._recorder.normal(budget, "NoPods", "No matching pods found")
        return pods

    async def _count(self, budget: Obj, pods: list[Pod]) -> int:
        if not _needs_scale(budget):
            return len(pods)
        try:
            expected, unmanaged = await self._expected.count(pods)
        except ApiError as error:
            text = f"Failed to calculate the number of expected pods: {error}"
            self._recorder.warning(budget, "CalculateExpectedPodCountFailed", text)
            raise
        if unmanaged:
            selector = label_selector(budget["spec"].get("selector"))
            text = (
                f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a "
                "result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
                'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
            )
            self._recorder.warning(budget, "UnmanagedPods", text)
        return expected

    async def _write(self, budget: Obj, status: Obj) -> None:
        if status != (budget.get("status") or {}):
            await self._client.update({**budget, "status": status}, subresource="status")


def _selects(budget: Obj, labels: Mapping[str, str]) -> bool:
    try:
        return from_label_selector(budget["spec"].get("selector")).matches(labels)
    except SelectorError:
        return False
