"""Decides whether an object is deleted or orphaned, by reading it and its owners from the server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from setpoint.client import Client, Resource, retry_on_conflict
from setpoint.controllers.garbagecollector.graph import (
    FOREGROUND,
    ORPHAN,
    AbsentOwners,
    Graph,
    Identity,
    Node,
    owner_in,
)
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, NotFound, UnsupportedMediaType
from setpoint.meta.objects import Obj
from setpoint.reconcile import Result
from setpoint.reconcile.run import because

log = logging.getLogger("setpoint.controllers")


Change = Callable[[list[Obj]], list[Obj]]
_MAX_CONCURRENT = 50
_RETRY = Result(retry=True)


class UnknownKind(Exception):
    """The server does not know the kind, or not yet. This says nothing about whether the object exists."""


class NeedsNamespace(Exception):
    """A cluster-scoped object refers to an owner of a namespaced kind."""


class ServerObjects:
    """The requests of the garbage collector."""

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


class Orphaning:
    """Orphans the dependents of deleted owners."""

    def __init__(self, graph: Graph, live: ServerObjects) -> None:
        self._graph = graph
        self._live = live

    async def reconcile(self, uid: str) -> Result | None:
        """Remove the references from all dependents, then the finalizer from the owner, so that dependents never look
        abandoned."""
        owner = self._graph.get(uid)
        if owner is None:
            return None
        dependents = [dependent.identity for dependent in self._graph.dependents(uid)]
        for start in range(0, len(dependents), _MAX_CONCURRENT):
            some = dependents[start : start + _MAX_CONCURRENT]
            outcomes = await asyncio.gather(*(self._release(one, uid) for one in some), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        try:
            await self._live.drop_finalizer(owner.identity, ORPHAN)
        except (UnknownKind, NeedsNamespace):
            return Result(retry=True)
        return None

    async def _release(self, dependent: Identity, uid: str) -> None:
        with suppress(NotFound):  # deleted dependents need not be released
            await self._live.drop_owners(dependent, [uid])


@dataclass(slots=True)
class Owners:
    """The owner references of an object, by the state of the owner."""

    existing: list[Obj] = field(default_factory=list)
    """References to owners that exist."""
    dangling: list[Obj] = field(default_factory=list)
    """References to owners that do not exist."""
    waiting: list[Obj] = field(default_factory=list)
    """References to owners that are being deleted and wait for their dependents."""


class Deleting:
    """Decides whether an object is deleted, by reading it and its owners from the server."""

    def __init__(
        self, graph: Graph, live: ServerObjects, absent_owners: AbsentOwners, enqueue: Callable[[str], None]
    ) -> None:
        self._graph = graph
        self._live = live
        self._absent_owners = absent_owners
        self._enqueue = enqueue

    async def reconcile(self, uid: str) -> Result | None:
        node = self._graph.get(uid)
        if node is None or (node.being_deleted and not node.deleting_dependents):
            # It is being deleted already; its dependents are reconciled when it is gone.
            return None
        identity = node.identity
        try:
            await self._attempt(node, identity)
        except NotFound:
            self._graph.absent(identity)
            return None
        except NeedsNamespace as error:
            # A retry cannot fix this, and it is no reason to delete anything.
            log.info("garbage collector: %s has an invalid owner reference: %s", identity, error)
            return None
        except UnknownKind as error:
            log.debug("garbage collector: %s: %s", identity, error)
            return _RETRY
        # Retry a virtual node until it is observed or known to be absent.
        return _RETRY if node.virtual and self._graph.get(uid) is node else None

    async def _attempt(self, node: Node, identity: Identity) -> None:
        """Reconcile the object. Raise NotFound if it does not exist."""
        seen = await self._live.metadata(identity)
        if seen["uid"] != identity.uid:
            raise NotFound(f"{identity} has gone; another one has its name")
        if node.deleting_dependents:
            await self._await_dependents(node, identity)
            return
        references: list[Obj] = seen.get("ownerReferences") or []
        if not references:
            return
        owners = await self._classified(identity, references)
        if owners.existing:
            gone = [reference["uid"] for reference in (*owners.dangling, *owners.waiting)]
            if gone:
                # Unblock the waiting owners: this object stays, so they would wait forever.
                because("some of its owners are gone")
                await self._live.drop_owners(identity, gone)
        elif owners.waiting and self._graph.dependents(identity.uid):
            await self._delete_in_foreground(node, identity, seen)
        else:
            log.info("garbage collector: deleting %s, whose owners are gone", identity)
            because(f"its owner {references[0].get('kind', '').lower()}/{references[0].get('name')} is gone")
            await self._live.delete(identity, seen, _propagation(seen))

    async def _await_dependents(self, node: Node, identity: Identity) -> None:
        blocking = self._graph.blocking(identity.uid)
        if not blocking:
            because("its dependents are gone")
            await self._live.drop_finalizer(identity, FOREGROUND)
        for dependent in blocking:
            if not dependent.deleting_dependents:
                self._enqueue(dependent.identity.uid)

    async def _delete_in_foreground(self, node: Node, identity: Identity, seen: Obj) -> None:
        if any(dependent.deleting_dependents for dependent in self._graph.dependents(identity.uid)):
            # Dependents may block each other in a cycle: break it here.
            await self._live.unblock_owners(identity, node.owners)
            now = await self._live.metadata(identity)
            if _uids(now) != _uids(seen):
                raise Conflict(f"the owners of {identity} have changed")
            seen = now
        because("its owner is being deleted, in the foreground")
        await self._live.delete(identity, seen, "Foreground")

    async def _classified(self, dependent: Identity, references: Iterable[Obj]) -> Owners:
        found = Owners()
        for reference in references:
            owner = await self._owner(dependent, reference)
            if owner is None:
                found.dangling.append(reference)
            elif "deletionTimestamp" in owner and FOREGROUND in (owner.get("finalizers") or ()):
                found.waiting.append(reference)
            else:
                found.existing.append(reference)
        return found

    async def _owner(self, dependent: Identity, reference: Obj) -> Obj | None:
        """Return the metadata of an existing owner, or None."""
        outside, beside = owner_in("", reference), owner_in(dependent.namespace, reference)
        if outside in self._absent_owners or beside in self._absent_owners:
            return None
        resource = await self._live.resource(beside)
        try:
            owner = await self._live.metadata(beside)
        except NotFound:
            owner = {"uid": None}
        if owner["uid"] != reference["uid"]:
            self._absent_owners.add(beside if resource.namespaced else outside)
            return None
        return owner


def _uids(meta: Obj) -> list[str]:
    return [reference["uid"] for reference in meta.get("ownerReferences") or ()]


def _propagation(meta: Obj) -> str:
    """Return the propagation policy that was requested with the deletion."""
    finalizers = meta.get("finalizers") or ()
    return "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
