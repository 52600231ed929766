"""Allocates a node's resources: admits Pods that were bound to it, and resizes running Pods in place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from setpoint.kinds.core.pod_demand import host_ports, pod_requests, ports_conflict
from setpoint.meta.node_fit import NO_EXECUTE, required_nodes, untolerated
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import compare, parse
from setpoint.node.container_lifecycle import ContainerStopper
from setpoint.node.container_state import EPHEMERAL, INIT, ContainerState, resources_of
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import format_epoch
from setpoint.node.runtime.interface import Image

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.pod_worker import PodWorker

_RESIZE_PENDING, _RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_OS_LABEL = "kubernetes.io/os"
_RETRY = 10.0
"""Seconds until a deferred resize is tried again."""


def admission_failure(pod: Pod, node: NodeState) -> tuple[str, str] | None:
    """Return the reason and message of a rejection, or None if the node admits the Pod. A node without a Node object
    admits every Pod."""
    own = node.object
    if own is None:
        return None
    spec = pod["spec"]
    system = (own["metadata"].get("labels") or {}).get(_OS_LABEL) or "linux"
    if (pod["metadata"].get("labels") or {}).get(_OS_LABEL, system) != system:
        text = f"Failed to admit pod as the `{_OS_LABEL}` label doesn't match node label"
        return "PodOSSelectorNodeLabelDoesNotMatch", text
    if (spec.get("os") or {}).get("name", system) != system:
        return "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"
    allocatable = (own.get("status") or {}).get("allocatable") or {}
    problem = _insufficient_resource(pod, node, allocatable)
    if problem is not None:
        return problem
    if (spec.get("nodeSelector") or spec.get("affinity")) and not required_nodes(spec)(own):
        return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    requested = host_ports(spec)
    if requested and any(
        ports_conflict(one, other) for one in requested for used_ports in node.ports.values() for other in used_ports
    ):
        return "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    taints = own["spec"].get("taints")
    if taints and untolerated(taints, spec.get("tolerations") or (), (NO_EXECUTE,)) is not None:
        return "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    return None


def _insufficient_resource(pod: Pod, node: NodeState, allocatable: Mapping[str, str]) -> tuple[str, str] | None:
    limit = int(allocatable.get("pods") or 110)
    if len(node.pods) + 1 > limit:
        return _out_of("pods", 1, len(node.pods), limit)
    requested = requested_resources(pod)
    for resource, amount in requested.items():
        if not amount or resource not in allocatable:
            continue
        quantity = parse(allocatable[resource])
        capacity = quantity.milli_value() if resource == "cpu" else quantity.value()
        used = node.used_resources.get(resource, 0)
        if used + amount > capacity:
            return _out_of(resource, amount, used, capacity)
    return None


def requested_resources(pod: Pod) -> Mapping[str, int]:
    """Return the requested amounts by resource: CPU in thousandths, everything else in whole units."""
    if not any(each.get("resources") for each in pod["spec"].get("containers") or ()) and not pod["spec"].get(
        "initContainers"
    ):
        return {}
    return _shared(tuple(pod_requests(pod).items()))


@lru_cache(maxsize=1024)
def _shared(requests: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    """Return the same object for Pods with equal requests; nothing changes it."""
    return {name: parse(amount).milli_value() if name == "cpu" else parse(amount).value() for name, amount in requests}


def _out_of(resource: str, requested: int, used: int, capacity: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    return f"OutOf{resource}", text


class PodResizer:
    """Applies changed resources of a Pod to its running containers."""

    __slots__ = ("_worker",)

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker

    def progress(self, now: float) -> bool:
        """Start, postpone or finish a resize. Return whether the status must be reported before anything else is
        done."""
        worker = self._worker
        changed = [
            container
            for container in worker.containers
            if container.kind != EPHEMERAL and resources_of(container.spec) != container.allocated
        ]
        if not changed:
            return self._finish(now)
        problem = self._rejection()
        if problem is not None:
            return self._set_pending(*problem, now)
        for container in changed:
            if container.running and container.termination is None and _needs_restart(container):
                ContainerStopper(worker).stop(
                    container, now, f"Container {container.name} resize requires restart", None
                )
                container.replaced = True
            elif container.running:
                self._update_resources(container)
            container.allocated = resources_of(container.spec)
        if not worker.initialized:
            return False  # no container runs yet whose resources would have to change
        worker.allocate_resources(again=True)
        worker.event("Normal", "ResizeStarted", f"Pod resize started: {self._summary()}")
        worker.pod_state.resize_conditions = [self._condition(_RESIZE_IN_PROGRESS, "", "", now)]
        self._delete_condition(_RESIZE_PENDING)
        return True

    def _finish(self, now: float) -> bool:
        """Remove the resize conditions once the allocated resources are those of the spec, and record an event."""
        worker = self._worker
        conditions = [each for each in worker.pod_state.resize_conditions if "$patch" not in each]
        if not conditions and not any(self._reported(kind) for kind in (_RESIZE_PENDING, _RESIZE_IN_PROGRESS)):
            worker.pod_state.resize_conditions = ()
            worker.may_need_resize = False
            return False
        if any(container.termination is not None for container in worker.containers):
            return False  # the resize completes when the container runs again
        for container in worker.containers:
            if not self._resources_updated(container, now):
                return False
        if any(each["type"] == _RESIZE_IN_PROGRESS for each in conditions):
            worker.event("Normal", "ResizeCompleted", f"Pod resize completed: {self._summary()}")
        worker.pod_state.resize_conditions = []
        self._delete_condition(_RESIZE_PENDING)
        self._delete_condition(_RESIZE_IN_PROGRESS)
        return False

    def _update_resources(self, container: ContainerState) -> None:
        worker, record = self._worker, container.record
        assert record is not None
        config = worker.container_config(container, Image(record.image, record.image_id, 0))
        container.updating_resources = worker.dependencies.runtime.update_resources(worker.uid, config)

    def _resources_updated(self, container: ContainerState, now: float) -> bool:
        """Return whether no change of the container's resources is in progress. One that failed is repeated."""
        worker, updating = self._worker, container.updating_resources
        if updating is None or not container.running:
            container.updating_resources = None
            return True
        if container.update_retry_at:
            if now < container.update_retry_at:
                worker.schedule(container.update_retry_at)
                return False
            container.update_retry_at = 0.0
            self._update_resources(container)
            updating = container.updating_resources
            assert updating is not None
        error = updating.result(now)
        if error is None:
            worker.schedule(updating.ready_at)
        elif error:
            worker.event("Warning", "ResizeError", f"Pod resize error: {self._summary(error)}")
            container.update_retry_at = now + _RETRY
            worker.schedule(container.update_retry_at)
        else:
            container.updating_resources = None
        return error == ""

    def _rejection(self) -> tuple[str, str] | None:
        """Return why the resize is not possible, as Infeasible or Deferred with a message; None if it is possible."""
        worker = self._worker
        node = worker.node
        allocatable = ((node.object or {}).get("status") or {}).get("allocatable") or {}
        allocated_resources = worker.allocated_resources
        for resource, amount in requested_resources(worker.pod).items():
            if resource not in allocatable:
                continue
            quantity = parse(allocatable[resource])
            capacity = quantity.milli_value() if resource == "cpu" else quantity.value()
            if amount > capacity:
                text = f"Node didn't have enough capacity: {resource}, requested: {amount}, capacity: {capacity}"
                return "Infeasible", text
            used = node.used_resources.get(resource, 0) - allocated_resources.get(resource, 0)
            if used + amount > capacity:
                return "Deferred", (
                    f"Node didn't have enough resource: {resource}, requested: {amount}, used: {used}, "
                    f"capacity: {capacity}"
                )
        return None

    def _set_pending(self, reason: str, message: str, now: float) -> bool:
        worker = self._worker
        if reason == "Deferred":
            worker.schedule(now + _RETRY)
        known = next(
            (
                each
                for each in worker.pod_state.resize_conditions
                if each["type"] == _RESIZE_PENDING and "$patch" not in each
            ),
            None,
        )
        made = self._condition(_RESIZE_PENDING, reason, message, now)
        if known is not None and (known["reason"], known["observedGeneration"]) == (reason, made["observedGeneration"]):
            return False
        worker.pod_state.resize_conditions = [made]
        worker.event("Warning", f"Resize{reason}", f"Pod resize {reason}: {self._summary(message)}")
        return False

    def _condition(self, kind: str, reason: str, message: str, now: float) -> Obj:
        made: Obj = {"type": kind, "status": "True", "lastTransitionTime": format_epoch(now)}
        made["observedGeneration"] = self._worker.pod["metadata"].get("generation", 0)
        if reason:
            made |= {"reason": reason, "message": message}
        return made

    def _reported(self, kind: str) -> bool:
        return any(each["type"] == kind for each in self._worker.reported.get("conditions") or ())

    def _delete_condition(self, kind: str) -> None:
        if self._reported(kind):
            self._worker.pod_state.resize_conditions = [
                *self._worker.pod_state.resize_conditions,
                {"type": kind, "$patch": "delete"},
            ]

    def _summary(self, error: str = "") -> str:
        pod = self._worker.pod
        summary: Obj = {}
        spec: ObjView = pod["spec"]
        for field in ("initContainers", "containers"):
            containers = spec.get(field)
            if containers:
                summary[field] = [
                    {"name": each["name"], "resources": each.get("resources") or {}} for each in containers
                ]
        summary["generation"] = pod["metadata"].get("generation", 0)
        if error:
            summary["error"] = error
        return json.dumps(summary, separators=(",", ":"))


def _needs_restart(container: ContainerState) -> bool:
    """Return whether a changed resource has the resize policy RestartContainer."""
    if container.kind == INIT:
        return False
    policies = {each["resourceName"]: each["restartPolicy"] for each in container.spec.get("resizePolicy") or ()}
    for which in ("requests", "limits"):
        old, new = container.allocated.get(which) or {}, resources_of(container.spec).get(which) or {}
        for resource in {**old, **new}:
            if policies.get(resource) == "RestartContainer" and compare(old.get(resource, "0"), new.get(resource, "0")):
                return True
    return False
