"""Builds the Node, CSINode and Lease objects of nodes, and defines what a node reports. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from setpoint.kinds.core.resources import is_extended
from setpoint.meta.clock import Clock
from setpoint.meta.node_labels import HOSTNAME, ZONE
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_micro, format_time
from setpoint.node.node_state import NodeState
from setpoint.node.options import NodeTemplate, VolumeDriver

LEASE_NAMESPACE = "kube-node-lease"
STATUS_REPORT_PERIOD, STATUS_UPDATE_PERIOD = 300.0, 10.0
"""Seconds between periodic status reports, and between checks for changes that are reported sooner."""
IMAGES_UPDATE_PERIOD = 20.0
"""Seconds between checks for new images, which are reported within two periods. A kubelet lists the images of its node
every 30 seconds and reports changes every 10, so it needs up to 40 seconds too."""
MANAGED_ATTACH_ANNOTATION = "volumes.kubernetes.io/controller-managed-attach-detach"
"""An annotation of Nodes: the attach/detach controller attaches volumes, not the kubelet."""

CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
START_EVENTS = ("NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady")

Endpoint = tuple[str, int]
"""Address and port of the kubelet API of a node."""


class NodeEvent(NamedTuple):
    """An Event about a Node."""

    reason: str
    message: str
    warning: bool = False


class NodeReporter(Protocol):
    """Provides what is reported of a node. No call suspends: what must be measured was measured before."""

    def node(self, node: NodeState, number: int, endpoint: Endpoint | None) -> Obj:
        """Return the Node for the registration. `number` is the node's position in its fleet."""
        ...

    def labels(self, node: NodeState) -> dict[str, str]:
        """Return the labels that are restored on a Node that exists already."""
        ...

    def status(self, node: NodeState, current: ObjView, endpoint: Endpoint | None) -> Obj:
        """Return the status, to be merged into `current`, which is the present status."""
        ...

    def start_events(self) -> tuple[str, ...]:
        """Return the reasons of the Events about conditions that are recorded when the node starts."""
        ...

    def transitions(self, node: NodeState, before: ObjView, after: ObjView) -> Iterable[NodeEvent]:
        """Return the Events for a status that was reported: `before` it, and as it is now."""
        ...


class SimulatedNodeReporter:
    """Reports simulated nodes: all conditions are good, and the template determines the capacity."""

    def __init__(self, template: NodeTemplate, versions: tuple[str, str], clock: Clock) -> None:
        self._template = template
        self._versions = versions
        self._clock = clock

    def node(self, node: NodeState, number: int, endpoint: Endpoint | None) -> Obj:
        return node_object(node.name, number, self._template, self.status(node, {}, endpoint))

    def labels(self, node: NodeState) -> dict[str, str]:
        labels = default_labels(node.name)
        if not node.adopted:
            labels |= {key: value for key, value in self._template.labels.items() if key in labels}
        return labels

    def status(self, node: NodeState, current: ObjView, endpoint: Endpoint | None) -> Obj:
        declared = current.get("capacity") or {}
        if not node.adopted:
            # A kubelet keeps extended resources that others added to the capacity; it measures all other resources
            # itself.
            declared = extended_resources(declared)
        return node_status(
            node.name,
            node.address,
            node.boot_count,
            {**self._template.capacity, **declared},
            node.reported_images(),
            self._versions,
            current,
            self._clock.now(),
            endpoint,
        )

    def start_events(self) -> tuple[str, ...]:
        return START_EVENTS

    def transitions(self, node: NodeState, before: ObjView, after: ObjView) -> Iterable[NodeEvent]:
        return ()


class CopiedNodeReporter:
    """Reports the nodes of a copied cluster: their conditions are good, and everything else stays as it was copied."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def node(self, node: NodeState, number: int, endpoint: Endpoint | None) -> Obj:
        raise AssertionError("the nodes of a copied cluster are registered already")

    def labels(self, node: NodeState) -> dict[str, str]:
        return {}

    def status(self, node: NodeState, current: ObjView, endpoint: Endpoint | None) -> Obj:
        conditions = {found["type"]: found for found in current.get("conditions") or ()}
        known = [each for each in CONDITIONS if each[0] in conditions or each[0] == "Ready"]
        status: Obj = {"conditions": node_conditions(self._clock.now(), conditions, known)}
        if not current.get("capacity"):
            status["capacity"] = status["allocatable"] = dict(NodeTemplate().capacity)
        return status

    def start_events(self) -> tuple[str, ...]:
        return ()

    def transitions(self, node: NodeState, before: ObjView, after: ObjView) -> Iterable[NodeEvent]:
        return ()


def default_labels(name: str, architecture: str = "amd64") -> dict[str, str]:
    """Return the labels that a kubelet sets on its Node, also on one that another client created."""
    labels: dict[str, str] = {}
    for prefix in ("beta.kubernetes.io", "kubernetes.io"):
        labels |= {f"{prefix}/arch": architecture, f"{prefix}/os": "linux"}
    labels[HOSTNAME] = name
    return labels


def node_object(name: str, number: int, template: NodeTemplate, status: Obj, architecture: str = "amd64") -> Obj:
    """Return the Node for the registration; `number` determines its zone."""
    labels = default_labels(name, architecture)
    labels |= {key: name for driver in template.drivers for key in driver.topology_keys}
    if template.zones:
        labels[ZONE] = template.zones[number % len(template.zones)]
    annotations = {MANAGED_ATTACH_ANNOTATION: "true"}
    if template.drivers:
        ids = ",".join(f'"{driver.name}":"{name}"' for driver in template.drivers)
        annotations["csi.volume.kubernetes.io/nodeid"] = f"{{{ids}}}"
    metadata: Obj = {
        "name": name,
        "labels": {**labels, **template.labels},
        "annotations": {**annotations, **template.annotations},
    }
    made: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
    if template.taints:
        made["spec"] = {"taints": [dict(taint) for taint in template.taints]}
    return made


def extended_resources(amounts: Mapping[str, str]) -> dict[str, str]:
    """Return the extended resources among the amounts."""
    return {name: amount for name, amount in amounts.items() if is_extended(name)}


def allocatable_outdated(status: Mapping[str, Any]) -> bool:
    """Return whether the extended resources in capacity and allocatable differ."""
    return extended_resources(status.get("capacity") or {}) != extended_resources(status.get("allocatable") or {})


def node_status(
    name: str,
    address: str,
    boot: int,
    capacity: Mapping[str, str],
    images: list[Obj],
    versions: tuple[str, str],
    current: Mapping[str, Any],
    now: datetime,
    endpoint: Endpoint | None = None,
) -> Obj:
    """Return the status of a node. `current` is the present status, `versions` are those of the kubelet and of the
    runtime. All nodes of a fleet share `endpoint`, if there is one; its address is then the hostname of each."""
    conditions = {found["type"]: found for found in current.get("conditions") or ()}
    machine = sha256(name.encode()).hexdigest()
    hostname, port = endpoint or (name, 10250)
    return {
        "capacity": dict(capacity),
        # The status is merged into the Node: to remove a resource, the patch must set it to null.
        "allocatable": {**dict.fromkeys(extended_resources(current.get("allocatable") or {})), **capacity},
        "conditions": node_conditions(now, conditions, CONDITIONS),
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": hostname}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": machine[:32],
            "systemUUID": _uuid(machine),
            "bootID": _uuid(sha256(f"{name} {boot}".encode()).hexdigest()),
            "kernelVersion": "6.8.0-simulated",
            "osImage": "Setpoint simulated node",
            "containerRuntimeVersion": f"simulated://{versions[1]}",
            "kubeletVersion": versions[0],
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        **({"images": images} if images else {}),
    }


def _uuid(digest: str) -> str:
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def node_conditions(
    now: datetime, current: Mapping[str, ObjView], wanted: Iterable[tuple[str, str, str, str]]
) -> list[Obj]:
    """Return conditions from type, status, reason and message. Transition times are taken from `current`, which is by
    type, if the status is the same."""
    stamp = format_time(now)
    made = []
    for kind, status, reason, message in wanted:
        before = current.get(kind) or {}
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        made.append(
            {
                "type": kind,
                "status": status,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": since or stamp,
                "reason": reason,
                "message": message,
            }
        )
    return made


def csi_node(node: ObjView, drivers: Iterable[VolumeDriver]) -> Obj:
    """Return the CSINode of a node on which these drivers have registered."""
    name = node["metadata"]["name"]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "ownerReferences": [_owner(node)]},
        "spec": {"drivers": [driver.registered(name) for driver in drivers]},
    }


def updated_csi_node(found: Obj, fresh: Obj) -> Obj:
    """Return an existing CSINode with missing drivers added, and the present Node as its owner."""
    listed = (found.get("spec") or {}).get("drivers") or []
    names = {driver["name"] for driver in listed}
    missing = [driver for driver in fresh["spec"]["drivers"] if driver["name"] not in names]
    metadata = {**found["metadata"], "ownerReferences": fresh["metadata"]["ownerReferences"]}
    return {**found, "metadata": metadata, "spec": {**(found.get("spec") or {}), "drivers": [*listed, *missing]}}


def _owner(node: ObjView) -> Obj:
    return {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}


def lease_object(node: ObjView, seconds: int, now: datetime) -> Obj:
    name = node["metadata"]["name"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [_owner(node)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": format_micro(now)},
    }
