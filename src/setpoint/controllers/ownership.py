"""Adopts matching orphans and releases objects that no longer match."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.interface import ResourceRef
from setpoint.meta.errors import Conflict, Invalid, NotFound
from setpoint.meta.selectors import Selector
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]


def controller_reference(owner: Obj) -> Obj:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class Claim:
    """Claims the objects of one resource for one owner; created for each reconcile."""

    def __init__(
        self,
        client: Client,
        owner_resource: ResourceRef,
        owner: Obj,
        resource: ResourceRef,
        selector: Selector,
        finalizer: str = "",
    ) -> None:
        """Create a claim. `finalizer` is added to adopted objects and removed from released ones."""
        self._client = client
        self._owner_resource = owner_resource
        self._owner = owner
        self._resource = resource
        self._selector = selector
        self._finalizer = finalizer
        self._may_adopt: bool | None = None

    async def claimed(self, candidates: Iterable[Obj]) -> list[Obj]:
        """Adopt and release, then return the candidates that belong to the owner."""
        return [obj for obj in candidates if self._is_ours(obj) or await self._claim(obj)]

    def _is_ours(self, obj: Obj) -> bool:
        """Return whether the object is owned and matches already, which is the common case and needs no request."""
        manager = controller_of(obj)
        return (
            manager is not None
            and manager["uid"] == self._owner["metadata"]["uid"]
            and self._selector.matches(obj["metadata"].get("labels") or {})
        )

    async def _claim(self, obj: Obj) -> bool:
        matches = self._selector.matches(obj["metadata"].get("labels") or {})
        manager = controller_of(obj)
        if manager is not None:
            if manager["uid"] != self._owner["metadata"]["uid"]:
                return False
            if matches:
                return True
            if "deletionTimestamp" not in self._owner["metadata"]:
                await self._release(obj)
            return False
        if not matches or "deletionTimestamp" in self._owner["metadata"] or "deletionTimestamp" in obj["metadata"]:
            return False
        return await self._adopt(obj)

    async def _adopt(self, obj: Obj) -> bool:
        if self._may_adopt is None:
            # The cache may be stale: an owner that is being deleted must not adopt anything.
            meta = self._owner["metadata"]
            fresh = await self._client.get(self._owner_resource, meta["name"], meta.get("namespace") or "")
            self._may_adopt = fresh["metadata"]["uid"] == meta["uid"] and "deletionTimestamp" not in fresh["metadata"]
        if not self._may_adopt:
            return False
        try:
            await self._patch(obj, controller_reference(self._owner), "finalizers")
        except NotFound:
            return False
        return True

    async def _release(self, obj: Obj) -> None:
        # Deleted, or owned by another: released either way.
        with suppress(NotFound, Invalid, Conflict):
            gone = {"$patch": "delete", "uid": self._owner["metadata"]["uid"]}
            await self._patch(obj, gone, "$deleteFromPrimitiveList/finalizers")

    async def _patch(self, obj: Obj, reference: Obj, finalizers: str) -> None:
        meta = obj["metadata"]
        change: Obj = {"metadata": {"ownerReferences": [reference], "uid": meta["uid"]}}
        if self._finalizer:
            change["metadata"][finalizers] = [self._finalizer]
        await self._client.patch(self._resource, meta["name"], change, meta.get("namespace") or "", kind="strategic")
