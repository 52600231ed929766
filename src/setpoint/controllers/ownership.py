"""Finds the owners of objects, adopts matching orphans and releases objects that no longer match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from setpoint.client import Client
from setpoint.client.interface import ResourceRef
from setpoint.meta.errors import Conflict, Invalid, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import Selector, from_label_selector
from setpoint.reconcile import Informer, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

T = TypeVar("T", bound=ObjView)


def controller_reference(owner: ObjView) -> Obj:
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
        owner: ObjView,
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

    async def claimed(self, candidates: Iterable[T]) -> list[T]:
        """Adopt and release, then return the candidates that belong to the owner."""
        return [obj for obj in candidates if self._is_ours(obj) or await self._claim(obj)]

    def _is_ours(self, obj: ObjView) -> bool:
        """Return whether the object is owned and matches already, which is the common case and needs no request."""
        manager = controller_of(obj)
        return (
            manager is not None
            and manager["uid"] == self._owner["metadata"]["uid"]
            and self._selector.matches(obj["metadata"].get("labels") or {})
        )

    async def _claim(self, obj: ObjView) -> bool:
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

    async def _adopt(self, obj: ObjView) -> bool:
        if self._may_adopt is None:
            # The cache may be stale: an owner that is being deleted must not adopt anything.
            meta = self._owner["metadata"]
            fresh = await self._client.get(self._owner_resource, meta["name"], meta.get("namespace") or "")
            self._may_adopt = fresh["metadata"]["uid"] == meta["uid"] and "deletionTimestamp" not in fresh["metadata"]
        if not self._may_adopt:
            return False
        because("it matches the selector and has no controller")
        try:
            await self._patch(obj, controller_reference(self._owner), "finalizers")
        except NotFound:
            return False
        finally:
            because("")
        return True

    async def _release(self, obj: ObjView) -> None:
        # Deleted, or owned by another: released either way.
        with suppress(NotFound, Invalid, Conflict):
            gone = {"$patch": "delete", "uid": self._owner["metadata"]["uid"]}
            because("its labels do not match the selector any more")
            await self._patch(obj, gone, "$deleteFromPrimitiveList/finalizers")
        because("")

    async def _patch(self, obj: ObjView, reference: Obj, finalizers: str) -> None:
        meta = obj["metadata"]
        change: Obj = {"metadata": {"ownerReferences": [reference], "uid": meta["uid"]}}
        if self._finalizer:
            change["metadata"][finalizers] = [self._finalizer]
        await self._client.patch(self._resource, meta["name"], change, meta.get("namespace") or "", kind="strategic")


# -- owners of Pods ---------------------------------------------------------------------------------------------------


def selector_of(owner: ObjView) -> Selector:
    return from_label_selector(owner["spec"]["selector"])


class PodOwners:
    """Finds the owners of one kind that a Pod has, had, or could have."""

    def __init__(self, kind: str, owners: Informer[Any], selector: Callable[[Any], Selector] = selector_of) -> None:
        self._kind = kind
        self._owners = owners
        self._selector = selector

    def key(self, pod: Pod | None) -> str | None:
        """Return the key of the Pod's owner, or None if it has none of this kind."""
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or owner["kind"] != self._kind:
            return None
        key = f"{pod['metadata']['namespace']}/{owner['name']}"
        found = self._owners.get(key)
        return key if found is not None and found["metadata"]["uid"] == owner["uid"] else None

    def affected(self, old: Pod | None, new: Pod | None) -> list[str]:
        """Return the keys of the owners to reconcile: the current and former owner, or for an orphan those that could
        adopt it."""
        before, after = self.key(old), self.key(new)
        keys = [key for key in dict.fromkeys((before, after)) if key is not None]
        if keys or new is None or "deletionTimestamp" in new["metadata"] or controller_of(new) is not None:
            return keys
        labels = new["metadata"].get("labels") or {}
        if old is None or controller_of(old) is not None or labels != (old["metadata"].get("labels") or {}):
            return self._could_adopt(new["metadata"]["namespace"], labels)
        return []

    def _could_adopt(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        if not labels:
            return []
        found = self._owners.in_namespace(namespace)
        return [key_of(owner) for owner in found if self._selector(owner).matches(labels)]
