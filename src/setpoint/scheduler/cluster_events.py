"""Cluster events, and the index of the events in which the plugins of all profiles are interested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.kinds.core.pod_demand import is_fully_allocated, pod_requests
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import compare

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

NODE = "Node"
ASSIGNED_POD = "AssignedPod"
"""A Pod that is bound to a node or nominated for one."""
TARGET_POD = "TargetPod"
"""The unscheduled Pod itself."""
CLAIM, VOLUME, STORAGE_CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"
CSI_NODE, CSI_DRIVER, CSI_CAPACITY, ATTACHMENT = "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment"


class Action(Flag):
    ADD = auto()
    DELETE = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABEL = auto()
    NODE_TAINT = auto()
    NODE_CONDITION = auto()
    NODE_ANNOTATION = auto()
    POD_LABEL = auto()
    POD_SCALE_DOWN = auto()
    POD_SCALE_UP = auto()
    POD_TOLERATION = auto()
    POD_GATES_ELIMINATED = auto()
    OTHER = auto()
    """A change that is none of the others."""


class ClusterEvent(NamedTuple):
    resource: str
    action: Action

    def label(self) -> str:
        """The label of the event in metrics."""
        return f"{self.resource}{_LABELS.get(self.action, 'Update')}"


_LABELS = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.NODE_LABEL: "UpdateNodeLabel",
    Action.NODE_TAINT: "UpdateNodeTaint",
    Action.NODE_CONDITION: "UpdateNodeCondition",
    Action.NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.POD_LABEL: "UpdatePodLabel",
    Action.POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.POD_SCALE_UP: "UpdatePodScaleUp",
    Action.POD_TOLERATION: "UpdatePodToleration",
    Action.POD_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
}


def node_changes(old: Node, new: Node) -> list[Action]:
    """Return the scheduling-relevant changes of a node."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    was, now = old.get("status") or {}, new.get("status") or {}
    found = []
    if before.get("unschedulable") and not after.get("unschedulable"):
        found.append(Action.NODE_TAINT)
    if was.get("allocatable") != now.get("allocatable"):
        found.append(Action.NODE_ALLOCATABLE)
    if old["metadata"].get("labels") != new["metadata"].get("labels"):
        found.append(Action.NODE_LABEL)
    if (before.get("taints") or []) != (after.get("taints") or []):
        found.append(Action.NODE_TAINT)
    if _conditions(was) != _conditions(now):
        found.append(Action.NODE_CONDITION)
    if old["metadata"].get("annotations") != new["metadata"].get("annotations"):
        found.append(Action.NODE_ANNOTATION)
    return list(dict.fromkeys(found))


def _conditions(status: Mapping[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}


def pod_changes(old: Pod, new: Pod) -> list[Action]:
    """Return the changes of a Pod; OTHER if it is none of the known ones."""
    before, after = old["spec"], new["spec"]
    found = []
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        found.append(Action.POD_LABEL)
    unchanged = before is after and is_fully_allocated(old) and is_fully_allocated(new)
    if not unchanged and _resources(old) != _resources(new):
        had, has = pod_requests(old), pod_requests(new)
        if any(name not in has or compare(amount, has[name]) > 0 for name, amount in had.items()):
            found.append(Action.POD_SCALE_DOWN)
        if any(name not in had or compare(amount, had[name]) > 0 for name, amount in has.items()):
            found.append(Action.POD_SCALE_UP)
    if before.get("schedulingGates") and not after.get("schedulingGates"):
        found.append(Action.POD_GATES_ELIMINATED)
    if len(before.get("tolerations") or ()) != len(after.get("tolerations") or ()):
        found.append(Action.POD_TOLERATION)
    return found or [Action.OTHER]


def _resources(pod: Pod) -> list[Any]:
    """Return all fields that the requests of a Pod depend on; most changes leave them alone."""
    spec, status = pod["spec"], {} if is_fully_allocated(pod) else pod["status"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [
        [container.get("resources") for container in containers],
        [(entry.get("allocatedResources"), entry.get("resources")) for entry in statuses],
        spec.get("resources"),
        status.get("resources"),
        status.get("allocatedResources"),
        [found.get("reason") for found in status.get("conditions") or () if found.get("type") == "PodResizePending"],
    ]


Hint = Callable[["Pod", Any, Any], bool]
"""Called with (unscheduled Pod, old object, new object); returns whether the event could make the Pod schedulable."""


class QueueingHints:
    def __init__(self) -> None:
        self._by_resource: dict[str, list[tuple[str, str, ClusterEvent, Hint | None]]] = {}
        self._known: dict[ClusterEvent, dict[tuple[str, str], list[Hint | None]]] = {}

    def register(self, profile: str, plugin: str, interests: Iterable[tuple[ClusterEvent, Hint | None]]) -> None:
        for event, hint in interests:
            self._by_resource.setdefault(event.resource, []).append((profile, plugin, event, hint))
        self._known.clear()

    def interested(self, event: ClusterEvent) -> dict[tuple[str, str], list[Hint | None]]:
        """Return the hints of the event by profile and plugin."""
        found = self._known.get(event)
        if found is None:
            found = self._known[event] = {}
            for profile, plugin, wanted, hint in self._by_resource.get(event.resource, ()):
                if wanted.action & event.action:
                    found.setdefault((profile, plugin), []).append(hint)
        return found

    def could_help(
        self,
        profile: str,
        plugins: Iterable[str],
        pod: Pod,
        event: ClusterEvent,
        old: ObjView | None,
        new: ObjView | None,
    ) -> bool:
        interested = self.interested(event)
        return any(
            hint is None or hint(pod, old, new) for plugin in plugins for hint in interested.get((profile, plugin), ())
        )
