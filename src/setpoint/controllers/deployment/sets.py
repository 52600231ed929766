"""Creates, scales and deletes the ReplicaSets of a Deployment and records the Events that users expect."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.deployment.revisions import annotations_of, for_new_set, revision, sizes
from setpoint.controllers.deployment.sizes import Scaling, size, size_of_new
from setpoint.controllers.deployment.template import HASH_LABEL, same_template, set_name
from setpoint.controllers.hashing import template_hash
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.reconcile import EventRecorder
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

REPLICA_SETS = builtin("replicasets", "apps")
_ALL = 2**31 - 1


class HashTaken(Exception):
    """A different ReplicaSet has the name that the hash yields: the collision count must be increased."""


class CreationFailed(Exception):
    """A ReplicaSet could not be created; the message is for the status."""

    def __init__(self, message: str, cause: ApiError) -> None:
        super().__init__(message)
        self.cause = cause


class DeploymentSets:
    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(self, deployment: Obj, old: list[Obj], number: int) -> tuple[Obj, bool]:
        """Return the set of the current template and whether it was just created. Raise HashTaken or CreationFailed."""
        made = _new_set(deployment, old, number)
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        try:
            created = await self._client.create(made)
        except AlreadyExists:
            # From an earlier reconcile that the cache does not show yet, or a hash collision.
            there = await self._client.get(REPLICA_SETS, name, namespace)
            owner = controller_of(there)
            if owner is None or owner["uid"] != deployment["metadata"]["uid"]:
                raise HashTaken(name) from None
            if not same_template(there["spec"]["template"], deployment["spec"]["template"]):
                raise HashTaken(name) from None
            return there, False
        except ApiError as error:
            if is_namespace_terminating(error):
                raise
            message = f'Failed to create new replica set "{name}": {error}'
            self._recorder.warning(deployment, "ReplicaSetCreateError", message)
            raise CreationFailed(message, error) from error
        if size(created):
            self._record_scaling(deployment, name, 0, size(created))
        return created, True

    async def sync_metadata(self, deployment: Obj, new: Obj, number: int) -> Obj:
        """Copy annotations and minReadySeconds from the Deployment, which need no rollout."""
        wanted = for_new_set(deployment, annotations_of(new), number)
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        if wanted == annotations_of(new) and min_ready == new["spec"].get("minReadySeconds", 0):
            return new
        changed = {
            **new,
            "metadata": {**new["metadata"], "annotations": wanted},
            "spec": {**new["spec"], "minReadySeconds": min_ready},
        }
        return await self._client.update(changed)

    async def scale(self, deployment: Obj, scaling: Scaling) -> None:
        found, to = scaling
        before = size(found)
        noted = {**annotations_of(found), **sizes(deployment)}
        if to == before and noted == annotations_of(found):
            return
        changed = {
            **found,
            "metadata": {**found["metadata"], "annotations": noted},
            "spec": {**found["spec"], "replicas": to},
        }
        # An update, not a patch: it must fail if the set was changed meanwhile.
        await self._client.update(changed)
        if to != before:
            self._record_scaling(deployment, found["metadata"]["name"], before, to)

    async def prune_history(self, deployment: Obj, old: Iterable[Obj]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit")
        kept = [found for found in old if "deletionTimestamp" not in found["metadata"]]
        if limit is None or limit == _ALL or len(kept) <= limit:
            return
        for found in sorted(kept, key=revision)[: len(kept) - limit]:
            meta, status = found["metadata"], found.get("status") or {}
            settled = status.get("observedGeneration", 0) >= meta["generation"]
            if size(found) or status.get("replicas", 0) or not settled:
                continue
            with suppress(NotFound):
                await self._client.delete(REPLICA_SETS, meta["name"], meta["namespace"], uid=meta["uid"])

    def _record_scaling(self, deployment: Obj, name: str, before: int, after: int) -> None:
        direction = "up" if after > before else "down"
        text = f"Scaled {direction} replica set {name} from {before} to {after}"
        self._recorder.normal(deployment, "ScalingReplicaSet", text)


def _new_set(deployment: Obj, old: list[Obj], number: int) -> Obj:
    spec, meta = deployment["spec"], deployment["metadata"]
    template = spec["template"]
    digest = template_hash(template, (deployment.get("status") or {}).get("collisionCount"))
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
    selector = spec["selector"]
    made_spec = {
        "replicas": size_of_new(deployment, old, 0),
        "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}},
        "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
    }
    if spec.get("minReadySeconds"):
        made_spec["minReadySeconds"] = spec["minReadySeconds"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": set_name(meta["name"], digest),
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**for_new_set(deployment, {}, number), **sizes(deployment)},
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": made_spec,
    }
