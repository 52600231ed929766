"""The states of Pods and nodes in a picture of the whole cluster: one small number each."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, Final

from setpoint.meta.objects import ObjView

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_CREATING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container waits although nothing has failed."""


class PodState(IntEnum):
    """The state of a Pod that is bound to a node. The numbers are a part of the protocol of the page."""

    READY = 1
    """The Pod runs and is ready."""
    STARTING = 2
    """Its containers are being started, or run and are not ready yet."""
    FAILING = 3
    """It has failed, a container has exited with an error, or waits because of one."""
    FINISHING = 4
    """Some of its containers have completed, others still run."""
    PENDING = 5
    """It is bound to the node, which has not begun to start it."""
    SUCCEEDED = 6
    TERMINATING = 7


class NodeState(IntEnum):
    """The state of a node. The numbers are a part of the protocol of the page."""

    READY = 1
    NOT_READY = 2
    UNKNOWN = 3
    """The node has not reported for too long, or has no Ready condition."""
    MISSING = 4
    """Pods are bound to it, and there is no such Node, or the user may not see it."""


def pod_state(pod: ObjView) -> PodState:
    """Return the state of a Pod that is bound to a node."""
    if pod["metadata"].get("deletionTimestamp"):
        return PodState.TERMINATING
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Running":
        for condition in status.get("conditions") or ():
            if condition.get("type") == "Ready":
                if condition.get("status") == "True":
                    return PodState.READY
                break
    elif phase == "Succeeded":
        return PodState.SUCCEEDED
    elif phase == "Failed":
        return PodState.FAILING
    containers = status.get("containerStatuses") or ()
    for container in (*(status.get("initContainerStatuses") or ()), *containers):
        if _has_failed(container.get("state") or {}):
            return PodState.FAILING
    if any((container.get("state") or {}).get("terminated") for container in containers):
        return PodState.FINISHING
    return PodState.STARTING if containers or phase == "Running" else PodState.PENDING


def _has_failed(state: dict[str, Any]) -> bool:
    """Return whether the state of a container is an error, or a wait because of one."""
    if waiting := state.get("waiting"):
        return (waiting.get("reason") or "") not in _CREATING
    terminated = state.get("terminated")
    return bool(terminated and terminated.get("exitCode"))


def node_state(node: ObjView) -> NodeState:
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            status = condition.get("status")
            if status == "True":
                return NodeState.READY
            return NodeState.NOT_READY if status == "False" else NodeState.UNKNOWN
    return NodeState.UNKNOWN


def why_unbound(pod: ObjView) -> str:
    """Return the reason for which a Pod has no node; empty if none is known."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return ""


_NUMBER: Final = re.compile(r"(\d{1,18})")


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return the sort key under which `node-2` comes before `node-10`."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in _NUMBER.split(name) if part)
