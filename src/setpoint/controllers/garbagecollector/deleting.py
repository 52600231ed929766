"""Decides whether an object is deleted, by reading it and its owners from the server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from setpoint.controllers.garbagecollector.absent_owners import AbsentOwners
from setpoint.controllers.garbagecollector.graph import FOREGROUND, ORPHAN, Graph
from setpoint.controllers.garbagecollector.identity import Identity, Node, owner_in
from setpoint.controllers.garbagecollector.live import Live, NeedsNamespace, UnknownKind
from setpoint.meta.errors import Conflict, NotFound
from setpoint.reconcile import Result

log = logging.getLogger("setpoint.controllers")

Obj = dict[str, Any]

_RETRY = Result(retry=True)


@dataclass(slots=True)
class Owners:
    existing: list[Obj] = field(default_factory=list)
    """References to owners that exist."""
    dangling: list[Obj] = field(default_factory=list)
    """References to owners that do not exist."""
    waiting: list[Obj] = field(default_factory=list)
    """References to owners that are being deleted and wait for their dependents."""


class Deleting:
    def __init__(self, graph: Graph, live: Live, absent_owners: AbsentOwners, enqueue: Callable[[str], None]) -> None:
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
                await self._live.drop_owners(identity, gone)
        elif owners.waiting and self._graph.dependents(identity.uid):
            await self._delete_in_foreground(node, identity, seen)
        else:
            log.info("garbage collector: deleting %s, whose owners are gone", identity)
            await self._live.delete(identity, seen, _propagation(seen))

    async def _await_dependents(self, node: Node, identity: Identity) -> None:
        blocking = self._graph.blocking(identity.uid)
        if not blocking:
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
