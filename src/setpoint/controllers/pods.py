"""Pods as controllers see them: active, ready and available ones, those of a node, those that use a claim, changes that
may be coalesced, the order of deletion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import inf, log2
from typing import TYPE_CHECKING, Any

from setpoint.meta.conditions import changed_condition
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time
from setpoint.reconcile import Informer, Result
from setpoint.reconcile.keys import controller_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolumeClaim, Pod
    from setpoint.kinds.typed.volumes import Volume


_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MIN_COALESCED_SIZE = 100
_DELAY_PER_POD = 100e-6
_MAX_DELAY = 0.25
_BY_NODE = "node"
PODS_BY_CLAIM = "claim"
"""The name of the index of Pods by the keys of their claims."""


def phase(pod: Pod) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: Pod) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and phase(pod) not in ("Succeeded", "Failed")


def is_terminating(pod: Pod) -> bool:
    return "deletionTimestamp" in pod["metadata"] and phase(pod) not in ("Succeeded", "Failed")


def is_ready(pod: Pod) -> bool:
    return ready_condition(pod) is not None


def ready_condition(pod: Pod) -> Mapping[str, Any] | None:
    """Return the Ready condition if it is true, or None."""
    for found in (pod.get("status") or {}).get("conditions") or ():
        if found["type"] == "Ready":
            return found if found.get("status") == "True" else None
    return None


def _available_in(pod: Pod, min_ready_seconds: int, now: datetime) -> float | None:
    """Return the seconds until the Pod is available: zero or less if it is, None while it is not ready."""
    ready = ready_condition(pod)
    return None if ready is None else available_from(ready, min_ready_seconds, now)


def available_from(ready: Mapping[str, Any], min_ready_seconds: int, now: datetime) -> float:
    """Return the seconds until a Pod with this Ready condition is available."""
    if not min_ready_seconds:
        return 0.0
    since = ready.get("lastTransitionTime")
    if not since:
        return inf
    return min_ready_seconds - (now - parse_time(since)).total_seconds()


def deletion_order(pods: Iterable[Pod], related: Iterable[Pod], now: datetime) -> list[Pod]:
    """Sort Pods in the order in which they are deleted when scaling down.

    First come Pods in an early phase, with a low deletion cost, on a node with many `related` Pods, and young ones.
    Ages are compared by powers of two, so that age alone does not always select the same Pod.
    """
    pods_per_node = Counter(pod["spec"].get("nodeName", "") for pod in related if is_active(pod))

    def rank(pod: Pod) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName", "")
        ready = ready_condition(pod)
        is_up = ready is not None
        ready_age = _age_class(ready.get("lastTransitionTime", ""), now) if ready is not None else -1
        return (
            bool(node),
            _PHASES.get(phase(pod), 0),
            is_up,
            _deletion_cost(pod),
            -pods_per_node[node],
            ready_age,
            -most_restarts(pod),
            _age_class(pod["metadata"].get("creationTimestamp", ""), now),
            pod["metadata"]["uid"],
        )

    return sorted(pods, key=rank)


def _age_class(stamp: str, now: datetime) -> int:
    if not stamp:
        return -1
    age = (now - parse_time(stamp)).total_seconds()
    return int(log2(age * 1e9)) if age > 0 else -1


def _deletion_cost(pod: Pod) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(_DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def most_restarts(pod: Pod) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((status.get("restartCount", 0) for status in statuses), default=0)


# -- availability -----------------------------------------------------------------------------------------------------


def requeue_when_available(pods: Iterable[Pod], min_ready_seconds: int, now: datetime) -> Result | None:
    """Return a requeue for the moment when the next Pod becomes available, or None if none will."""
    if not min_ready_seconds:
        return None
    waits = (_available_in(pod, min_ready_seconds, now) for pod in pods)
    delays = [wait for wait in waits if wait is not None and 0 < wait < inf]
    return Result(requeue_after=min(delays)) if delays else None


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    wait = _available_in(pod, min_ready_seconds, now)
    return wait is not None and wait <= 0


# -- changes ----------------------------------------------------------------------------------------------------------


def coalescing_delay(old: Pod | None, new: Pod | None, size: int) -> float:
    """Return the seconds by which to delay the reconcile of a Pod change, so that changes coalesce.

    Two thousand Pods that become ready one by one would each cause a reconcile that counts all of them. A change that
    only affects a number in a status can wait for others. `size` is the owner's number of desired Pods; small owners
    are never delayed.
    """
    if size < _MIN_COALESCED_SIZE or old is None or new is None:
        return 0.0
    before, after = old["metadata"], new["metadata"]
    if (
        is_active(old) != is_active(new)
        or before.get("labels") != after.get("labels")
        or controller_of(old) != controller_of(new)
    ):
        return 0.0
    return min(_MAX_DELAY, size * _DELAY_PER_POD)


def disruption_target(pod: Pod, reason: str, message: str, now: datetime) -> ObjView | None:
    """Return the condition that marks a Pod as about to be disrupted, or None if the Pod has it already."""
    wanted: Obj = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    if pod["metadata"].get("generation"):
        wanted["observedGeneration"] = pod["metadata"]["generation"]
    return changed_condition(pod, wanted, now)


# -- index ------------------------------------------------------------------------------------------------------------


def _node_of(pod: Pod) -> tuple[str, ...]:
    name = pod["spec"].get("nodeName")
    return (name,) if name else ()


class PodsByNode:
    """An index of Pods by the node that they are bound to."""

    def __init__(self, pods: Informer[Pod]) -> None:
        self._pods = pods
        pods.add_index(_BY_NODE, _node_of)

    def on(self, node: str) -> list[Pod]:
        return self._pods.by_index(_BY_NODE, node)


def index_pods_by_claim(pods: Informer[Pod]) -> None:
    pods.add_index(PODS_BY_CLAIM, lambda pod: [f"{pod['metadata']['namespace']}/{name}" for name in claims_of(pod)])


def claims_of(pod: Pod) -> Iterator[str]:
    """Yield the names of all claims that the Pod's volumes refer to."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield ephemeral_claim_name(pod, volume)


def ephemeral_claim_name(pod: Pod, volume: Volume) -> str:
    return f"{pod['metadata']['name']}-{volume['name']}"


def is_made_for(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim belongs to an ephemeral volume of this Pod, and does not merely have its name."""
    owner = controller_of(claim)
    return owner is not None and owner["uid"] == pod["metadata"]["uid"]


def uses(pod: Pod, claim: PersistentVolumeClaim, *, ephemeral: bool = True) -> bool:
    """Return whether the Pod uses the claim. With `ephemeral`, claims of its ephemeral volumes count too."""
    name = claim["metadata"]["name"]
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            if volume["persistentVolumeClaim"]["claimName"] == name:
                return True
        elif ephemeral and "ephemeral" in volume and ephemeral_claim_name(pod, volume) == name:
            if is_made_for(pod, claim):
                return True
    return False


def has_released_volumes(pod: Pod) -> bool:
    """Return whether the Pod is finished, or is being deleted and has no running containers."""
    if phase(pod) in ("Succeeded", "Failed"):
        return True
    status: ObjView = pod.get("status") or {}
    return "deletionTimestamp" in pod["metadata"] and not any(
        "running" in (found.get("state") or {}) or not found.get("state")
        for part in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for found in status.get(part) or ()
    )


def pods_and_wanted(existing: int, wanted: int) -> str:
    """Return the reason why Pods are created or deleted: `2 Pods exist, 3 are wanted`."""
    exist = "1 Pod exists" if existing == 1 else f"{existing} Pods exist"
    return f"{exist}, {wanted} {'is' if wanted == 1 else 'are'} wanted"
