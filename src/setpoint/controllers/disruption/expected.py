"""The expected number of Pods of a budget, from the scale of their controllers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.scaling import read_scale
from setpoint.meta.errors import ApiError
from setpoint.reconcile import Informer, Manager
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]
Scale = tuple[str, int]
"""The uid of a controller and its replicas."""

_KINDS = {
    "ReplicationController": ("replicationcontrollers", ""),
    "ReplicaSet": ("replicasets", "apps"),
    "StatefulSet": ("statefulsets", "apps"),
    "Deployment": ("deployments", "apps"),
}


class ExpectedPods:
    def __init__(self, manager: Manager, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str], Informer] = {
            (group, kind): manager.informer(builtin(plural, group)) for kind, (plural, group) in _KINDS.items()
        }

    async def count(self, pods: Iterable[Obj]) -> tuple[int, list[str]]:
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

    async def _scale(self, pod: Obj, owner: Obj) -> Scale | None:
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

    def _cached(self, reference: Obj, namespace: str) -> Obj | None:
        group = reference["apiVersion"].rpartition("/")[0]
        informer = self._known.get(("apps" if group == "extensions" else group, reference["kind"]))
        found = informer.get(f"{namespace}/{reference['name']}") if informer is not None else None
        return found if found is not None and found["metadata"]["uid"] == reference["uid"] else None


def _replicas(owner: Obj) -> Scale:
    return owner["metadata"]["uid"], owner["spec"].get("replicas", 1)
