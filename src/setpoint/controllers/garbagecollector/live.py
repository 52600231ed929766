"""The requests of the garbage collector."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from setpoint.client import Client, Resource, retry_on_conflict
from setpoint.controllers.garbagecollector.identity import Identity
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound, UnsupportedMediaType

Obj = dict[str, Any]

Change = Callable[[list[Obj]], list[Obj]]


class UnknownKind(Exception):
    """The server does not know the kind, or not yet. This says nothing about whether the object exists."""


class NeedsNamespace(Exception):
    """A cluster-scoped object refers to an owner of a namespaced kind."""


class Live:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def resource(self, identity: Identity) -> Resource:
        """Return the resource. Raise UnknownKind or NeedsNamespace."""
        try:
            found = await self._client.resource((identity.api_version, identity.kind))
        except NotFound:
            raise UnknownKind(f"unable to get REST mapping for {identity.api_version}/{identity.kind}.") from None
        if found.namespaced and not identity.namespace:
            raise NeedsNamespace(str(identity))
        return found

    async def metadata(self, identity: Identity) -> Obj:
        """Return the metadata of the object with this name, whatever its uid. Raise NotFound."""
        resource = await self.resource(identity)
        try:
            found = await self._client.get(resource, identity.name, identity.namespace, metadata_only=True)
        except NotFound as error:
            if not (error.details or {}).get("name"):
                # Not the object but its resource was not found, for example because the version is no longer served.
                raise UnknownKind(str(error)) from None
            raise
        meta: Obj = found["metadata"]
        return meta

    async def delete(self, identity: Identity, seen: Obj, propagation: str) -> None:
        """Delete the object as it was read. If it changed since but its owners did not, delete it all the same, because
        objects that are updated continuously could otherwise never be deleted. Raise NotFound or Conflict."""
        resource = await self.resource(identity)
        name, namespace, uid = identity.name, identity.namespace, identity.uid
        try:
            await self._client.delete(
                resource, name, namespace, propagation=propagation, uid=uid, resource_version=seen["resourceVersion"]
            )
        except Conflict:
            now = await self.metadata(identity)
            if now["uid"] != uid or now.get("ownerReferences") != seen.get("ownerReferences"):
                raise
            await self._client.delete(resource, name, namespace, propagation=propagation, uid=uid)

    async def drop_owners(self, identity: Identity, uids: Collection[str]) -> None:
        """Remove references to these owners from the object. Raise NotFound."""
        dropped: list[Obj] = [{"$patch": "delete", "uid": uid} for uid in uids]

        def without(references: list[Obj]) -> list[Obj]:
            return [reference for reference in references if reference["uid"] not in uids]

        await self._change_references(identity, dropped, without)

    async def unblock_owners(self, identity: Identity, references: Collection[Obj]) -> None:
        """Clear blockOwnerDeletion in the object's references."""
        blocking = [reference for reference in references if reference.get("blockOwnerDeletion")]
        changed = [{**reference, "blockOwnerDeletion": False} for reference in blocking]

        def unblocked(references: list[Obj]) -> list[Obj]:
            return [{**reference, "blockOwnerDeletion": False} for reference in references]

        await self._change_references(identity, changed, unblocked)

    async def _change_references(self, identity: Identity, merged: list[Obj], changed: Change) -> None:
        resource = await self.resource(identity)
        name, namespace = identity.name, identity.namespace
        change: Obj = {"metadata": {"uid": identity.uid, "ownerReferences": merged}}
        try:
            await self._client.patch(resource, name, change, namespace, kind="strategic")
        except UnsupportedMediaType:
            # Custom resources: replace the whole list, conditional on the version that was read.
            seen = await self.metadata(identity)
            references = changed(seen.get("ownerReferences") or [])
            version = seen["resourceVersion"]
            meta = {"uid": identity.uid, "resourceVersion": version, "ownerReferences": references or None}
            await self._client.patch(resource, name, {"metadata": meta}, namespace)

    async def drop_finalizer(self, identity: Identity, finalizer: str) -> None:
        resource = await self.resource(identity)

        async def attempt() -> None:
            try:
                seen = await self.metadata(identity)
            except NotFound:
                return
            finalizers = seen.get("finalizers") or []
            if seen["uid"] != identity.uid or finalizer not in finalizers:
                return
            left = [name for name in finalizers if name != finalizer]
            change = {"metadata": {"resourceVersion": seen["resourceVersion"], "finalizers": left or None}}
            await self._client.patch(resource, identity.name, change, identity.namespace)

        await retry_on_conflict(attempt, self._clock)
