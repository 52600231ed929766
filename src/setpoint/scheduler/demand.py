"""The requirements of a Pod on a node, parsed once for all Pods with equal requirements.

Pods of one Deployment differ only in names and token volumes, which do not matter for scheduling: they share one Demand
and everything computed for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import orjson

from setpoint.kinds.core.pod_demand import HostPort, host_ports, is_fully_allocated, nonzero_requests, pod_requests
from setpoint.reconcile.keys import controller_of
from setpoint.scheduler.affinity import PodTerms, PreferredNodes, RequiredNodes
from setpoint.scheduler.node_table import PODS, NodeTable, amount

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.kinds.typed.containers import Container
    from setpoint.kinds.typed.metadata import OwnerReference
    from setpoint.kinds.typed.pod import Toleration
    from setpoint.kinds.typed.volumes import Volume

GroupKey = tuple[str, tuple[tuple[str, str], ...]]

_RELEVANT_VOLUMES = (
    "persistentVolumeClaim",
    "ephemeral",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "rbd",
    "iscsi",
    "csi",
    "image",
)


class Demand:
    def __init__(self, pod: Pod, table: NodeTable) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        self.pod = pod
        """A Pod with this demand; others with the same demand may differ in names, uids and times only."""
        self.namespace: str = meta["namespace"]
        self.labels: Mapping[str, str] = meta.get("labels") or {}
        self.spec = spec
        self.priority = int(spec.get("priority") or 0)
        self.tolerations: Sequence[Toleration] = spec.get("tolerations") or []
        self.group_key: GroupKey = (self.namespace, tuple(sorted(self.labels.items())))
        requests = pod_requests(pod)
        self.requests = {name: amount(name, text) for name, text in requests.items()}
        guessed = nonzero_requests(pod, requests)
        self.nonzero = (amount("cpu", guessed.get("cpu", "0")), amount("memory", guessed.get("memory", "0")))
        self.rows = [(table.row(name), number) for name, number in self.requests.items() if name != "pods" and number]
        """Rows of the node table and the amounts that the Pod requests there, without the Pod count."""
        self.usage = [*self.rows, (PODS, 1)]
        self.usage_by_row = dict(self.usage)
        self.ports: tuple[HostPort, ...] = host_ports(spec)
        self.volumes = [volume for volume in spec.get("volumes") or () if _is_relevant(volume)]
        self.claims = [
            f"{self.namespace}/{volume['persistentVolumeClaim']['claimName']}"
            for volume in self.volumes
            if "persistentVolumeClaim" in volume
        ]
        """Keys of the claims that the Pod mounts by name."""
        self.cache: dict[object, Any] = {}
        """Results that plugins computed for the demand, each under its own key."""

    @cached_property
    def required_nodes(self) -> RequiredNodes:
        return RequiredNodes(self.spec)

    @cached_property
    def preferred_nodes(self) -> PreferredNodes:
        affinity = ((self.spec.get("affinity") or {}).get("nodeAffinity")) or {}
        return PreferredNodes(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ())

    @cached_property
    def terms(self) -> PodTerms:
        return PodTerms(self.spec.get("affinity") or {}, self.namespace)

    @cached_property
    def owner(self) -> OwnerReference | None:
        return controller_of(self.pod)


class Demands:
    """Interns demands, so that equal ones are the same object."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: WeakValueDictionary[bytes, Demand] = WeakValueDictionary()

    def of(self, pod: Pod, before: tuple[Pod, Demand] | None = None) -> Demand:
        """Return the demand of a Pod. `before` is the Pod's former version and demand."""
        if before is not None and _has_same_demand(before[0], pod):
            return before[1]
        key = _key(pod)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Demand(pod, self._table)
        return found


def _has_same_demand(old: Pod, new: Pod) -> bool:
    """Return whether the demand is evidently unchanged; False means that the Pod must be parsed."""
    before, after = old["metadata"], new["metadata"]
    return (
        "generation" in after  # every change of the spec increments it
        and before.get("generation") == after["generation"]
        and before.get("uid") == after.get("uid")
        and before.get("labels") == after.get("labels")
        and before.get("ownerReferences") == after.get("ownerReferences")
        and is_fully_allocated(old)
        and is_fully_allocated(new)
    )


def _is_relevant(volume: Volume) -> bool:
    return any(kind in volume for kind in _RELEVANT_VOLUMES)


def _key(pod: Pod) -> bytes:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    volumes = [volume for volume in spec.get("volumes") or () if _is_relevant(volume)]
    owner = controller_of(pod)
    return orjson.dumps(
        [
            meta["namespace"],
            meta.get("labels"),
            owner and (owner.get("apiVersion"), owner.get("kind"), owner.get("name")),
            [spec.get(name) for name in _SPEC_FIELDS],
            [_of_container(container) for container in spec.get("containers") or ()],
            [_of_container(container) for container in spec.get("initContainers") or ()],
            volumes,
            # Claims of ephemeral volumes are named after the Pod.
            meta["name"] if any("ephemeral" in volume for volume in volumes) else None,
            None if is_fully_allocated(pod) else _granted(status),
        ],
        option=orjson.OPT_SORT_KEYS,
    )


_SPEC_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "overhead",
    "resources",
    "priority",
    "preemptionPolicy",
    "schedulerName",
)


def _of_container(container: Container) -> list[Any]:
    return [
        container.get("name"),
        container.get("image"),
        container.get("resources"),
        container.get("ports"),
        container.get("restartPolicy"),
    ]


def _granted(status: Mapping[str, Any]) -> list[Any]:
    """Return the allocated resources in the status, which count during a resize."""
    return [
        [entry.get("name"), entry.get("allocatedResources"), (entry.get("resources") or {}).get("requests")]
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
        if entry.get("allocatedResources") or entry.get("resources")
    ] + [
        status.get("allocatedResources"),
        status.get("resources"),
        [
            condition.get("reason")
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodResizePending"
        ],
    ]
