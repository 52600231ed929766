"""What a Pod asks of a node, read once for all Pods that ask the same.

Pods of one Deployment differ in names and in the volume their token is in, and in nothing that the scheduler looks at:
they share one Demand, and with it all that was computed for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import orjson

from setpoint.kinds.core.host_ports import HostPort, host_ports
from setpoint.kinds.core.pod_totals import pod_requests
from setpoint.reconcile.keys import controller_of
from setpoint.scheduler.affinity_terms import PodTerms
from setpoint.scheduler.node_selection import PreferredNodes, RequiredNodes
from setpoint.scheduler.node_table import PODS, NodeTable, amount
from setpoint.scheduler.requests import is_given_as_asked, nonzero_requests

Obj = dict[str, Any]
GroupKey = tuple[str, tuple[tuple[str, str], ...]]

_TELLING_VOLUMES = (
    "persistentVolumeClaim", "ephemeral", "gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi", "csi", "image",
)  # fmt: skip


class Demand:
    def __init__(self, pod: Obj, table: NodeTable) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        self.pod = pod
        """One of those that ask this; of the others only names, uids and times may differ."""
        self.namespace: str = meta["namespace"]
        self.labels: Mapping[str, str] = meta.get("labels") or {}
        self.spec: Obj = spec
        self.priority = int(spec.get("priority") or 0)
        self.tolerations: list[Obj] = spec.get("tolerations") or []
        self.group_key: GroupKey = (self.namespace, tuple(sorted(self.labels.items())))
        requests = pod_requests(pod)
        self.requests = {name: amount(name, text) for name, text in requests.items()}
        guessed = nonzero_requests(pod, requests)
        self.nonzero = (amount("cpu", guessed.get("cpu", "0")), amount("memory", guessed.get("memory", "0")))
        self.rows = [(table.row(name), number) for name, number in self.requests.items() if name != "pods" and number]
        """Where in the node table it takes how much; that it is one Pod is not among it."""
        self.taken = [*self.rows, (PODS, 1)]
        self.taken_of = dict(self.taken)
        self.ports: tuple[HostPort, ...] = host_ports(spec)
        self.volumes: list[Obj] = [volume for volume in spec.get("volumes") or () if _is_telling(volume)]
        self.claims = [
            f"{self.namespace}/{volume['persistentVolumeClaim']['claimName']}"
            for volume in self.volumes
            if "persistentVolumeClaim" in volume
        ]
        """The keys of the claims that it mounts by name."""
        self.cache: dict[object, Any] = {}
        """What plugins have computed for it, each under a key of its own."""

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
    def owner(self) -> Obj | None:
        return controller_of(self.pod)


class Demands:
    """Every demand that some Pod has, once."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: WeakValueDictionary[bytes, Demand] = WeakValueDictionary()

    def of(self, pod: Obj, before: tuple[Obj, Demand] | None = None) -> Demand:
        """`before`: the same Pod as it was, and what it asked then."""
        if before is not None and _asks_the_same(before[0], pod):
            return before[1]
        key = _key(pod)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Demand(pod, self._table)
        return found


def _asks_the_same(old: Obj, new: Obj) -> bool:
    """Seen at a glance: no means that it must be read."""
    before, after = old["metadata"], new["metadata"]
    return (
        "generation" in after  # every change of the spec raises it
        and before.get("generation") == after["generation"]
        and before.get("uid") == after.get("uid")
        and before.get("labels") == after.get("labels")
        and before.get("ownerReferences") == after.get("ownerReferences")
        and is_given_as_asked(old)
        and is_given_as_asked(new)
    )


def _is_telling(volume: Obj) -> bool:
    return any(kind in volume for kind in _TELLING_VOLUMES)


def _key(pod: Obj) -> bytes:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    volumes = [volume for volume in spec.get("volumes") or () if _is_telling(volume)]
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
            None if is_given_as_asked(pod) else _granted(status),
        ],
        option=orjson.OPT_SORT_KEYS,
    )


_SPEC_FIELDS = (
    "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "resources", "priority",
    "preemptionPolicy", "schedulerName",
)  # fmt: skip


def _of_container(container: Obj) -> list[Any]:
    return [
        container.get("name"), container.get("image"), container.get("resources"), container.get("ports"),
        container.get("restartPolicy"),
    ]  # fmt: skip


def _granted(status: Mapping[str, Any]) -> list[Any]:
    """What the node says it has given, which counts while a Pod is being resized."""
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
