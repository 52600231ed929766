"""The context of a reconcile, and status conditions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Generic

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import new_condition
from setpoint.meta.conditions import with_condition as conditions_with
from setpoint.meta.errors import AlreadyExists, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.patch.merge_patch import merge_patch_between
from setpoint.reconcile import EventRecorder, Informer
from setpoint.reconcile.run import because
from setpoint.sdk import models
from setpoint.sdk.kind import Kind, Object, Spec, Status
from setpoint.sdk.metrics import Counter, Gauge, Histogram, Measurements


def with_condition(
    conditions: Iterable[ObjView],
    type: str,
    status: bool | None,
    reason: str,
    message: str = "",
    *,
    now: datetime,
    generation: int = 0,
) -> list[Obj]:
    """Return the conditions with this one added or replaced; a status of None means Unknown.

    The transition time changes only when the status changes.
    """
    word = "Unknown" if status is None else "True" if status else "False"
    new = new_condition(type, word, reason, message, now)
    if generation:
        new["observedGeneration"] = generation
    return [dict(each) for each in conditions_with(conditions, new)]


Child = Mapping[str, Any]


class Context(Generic[Spec, Status]):
    """The client, caches and status of one reconcile of one object. The status is written once, at the end, if it
    changed."""

    def __init__(
        self,
        obj: Object[Spec, Status],
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        owned: Mapping[tuple[str, str], Informer[Obj]],
        name: str,
        *,
        seen: Mapping[tuple[str, str], Informer[Obj]] | None = None,
        measurements: Measurements | None = None,
        dry_run: bool = False,
    ) -> None:
        self.client = client
        """The client, for reads and writes of any resource that the context has no method for."""
        self.clock = clock
        self.log = logging.getLogger(f"setpoint.operator.{name}")
        self.dry_run = dry_run
        """Whether writes through the client are dry runs. The reconcile must then skip side effects outside the
        cluster."""
        self._object = obj
        self._recorder = recorder
        self._owned = owned
        self._seen = seen if seen is not None else owned
        self._measurements = measurements or Measurements()
        self._name = name
        self._declared: set[tuple[str, str, str]] = set()
        """Identities of the children that this reconcile applied or made once."""
        self._prunes = False
        """Whether `prune` deletes anything: true after `apply`, unless a call had `prune=False`."""
        self._keeps_undeclared = False
        self._status: Obj = dict(obj.raw.get("status") or {})
        self._revision: str = obj.raw["metadata"].get("resourceVersion", "")
        self._noted: Obj = obj.raw.get("status") or {}

    def because(self, reason: str) -> None:
        """Set the reason of the next writes of this reconcile, in one short sentence: `the backup is due`.

        A Setpoint API server records it with each write, beside the changes that triggered the reconcile, and
        `setpoint why` shows it. Other servers ignore it."""
        because(reason)

    # -- children -----------------------------------------------------------------------------------------------------

    def children(self, kind: Kind[Any, Any]) -> list[Obj]:
        """Return the objects of `kind` whose controller is this object, from the cache.

        `kind` is one that the Controller owns. The cache may lag behind this reconcile's own writes: what `apply` just
        returned is newer. The objects are shared with all readers and must not be changed."""
        return self._owned[kind.ref].controlled_by(self._object.uid)

    def seen(self, kind: Kind[Any, Any], name: str, namespace: str = "") -> Obj | None:
        """Return one object of a kind that the Controller owns, watches or refers to, from the cache; None if it is
        not there. Makes no request. `namespace` defaults to this object's own. As for `children`, the cache may lag,
        and the object must not be changed."""
        within = (namespace or self._object.namespace) if kind.namespaced else ""
        return self._seen[kind.ref].get(f"{within}/{name}" if within else name)

    async def apply(self, *children: Child, prune: bool = True) -> list[Obj]:
        """Create or update the children by server-side apply, and return them as the server stored them, in order.

        Fields that a child does not mention belong to others and stay. Each child is owned by this object and is
        deleted with it. A child that is as described already is not written.

        A reconcile may call this as often as it likes. When it has returned without an error, the children that an
        earlier reconcile applied and this one did not are deleted, once, over all calls (see `prune`). `prune=False`
        in any call keeps them for this time: for a reconcile that returns before it has applied everything."""
        for child in children:
            await self._may_own(child)
        applied = [
            await self.client.apply(self._adopted(child), field_manager=self._name, force=True) for child in children
        ]
        self._declared.update(map(_identity, applied))
        self._prunes = True
        self._keeps_undeclared = self._keeps_undeclared or not prune
        return applied

    async def prune(self) -> None:
        """Delete the children that were applied before and that this reconcile neither applied nor made once.

        The controller calls this after a reconcile that succeeded. Nothing is deleted if the reconcile never called
        `apply` (`apply()` without children declares that there are to be none), or called it with `prune=False`. Only
        kinds that the Controller owns are considered, and only objects that `apply` wrote."""
        if not self._prunes or self._keeps_undeclared:
            return
        for informer in self._owned.values():
            for child in informer.controlled_by(self._object.uid):
                meta = child["metadata"]
                if _identity(child) in self._declared or meta.get("deletionTimestamp") or not self._has_applied(child):
                    continue
                try:
                    await self.client.delete(
                        (child["apiVersion"], child["kind"]), meta["name"], meta.get("namespace", ""), uid=meta["uid"]
                    )
                except NotFound:
                    continue

    async def make_once(self, child: Child, *, owned: bool = True) -> Obj:
        """Create the child unless an object of this name is there already, and return what is there.

        For what is chosen once, such as a password: an existing object is returned as it is, no matter who made it, and
        neither changed nor pruned later. The child is owned by this object and deleted with it unless `owned` is
        false."""
        resource = await self.client.resource((child["apiVersion"], child["kind"]))
        if owned:
            await self._may_own(child)
            child = self._adopted(child)
        meta = child["metadata"]
        within = (meta.get("namespace") or self._object.namespace) if resource.namespaced else ""
        try:
            # Read from the server, because the cache may be older than the object.
            found = await self.client.get(resource, meta["name"], within)
        except NotFound:
            try:
                found = await self.client.create(dict(child), namespace=within, field_manager=self._name)
            except AlreadyExists:  # another writer was faster, or the answer to an earlier attempt was lost
                found = await self.client.get(resource, meta["name"], within)
        self._declared.add(_identity(found))
        return found

    async def _may_own(self, child: Child) -> None:
        """Raise ValueError if this object cannot own the child.

        A namespaced object can own only objects of its namespace: the garbage collector would take the owner of any
        other child for deleted, and delete the child.
        """
        own = self._object.namespace
        if not own:
            return
        resource = await self.client.resource((child["apiVersion"], child["kind"]))
        if not resource.namespaced:
            raise ValueError(f"{self._object!r} is in a namespace and cannot own a {child['kind']}, which is in none")
        if child.get("metadata", {}).get("namespace", own) != own:
            raise ValueError(f"{self._object!r} cannot own a {child['kind']} in another namespace")

    def _adopted(self, child: Child) -> Obj:
        owner = self._object.raw
        reference = {
            "apiVersion": self._object.kind.api_version,
            "kind": self._object.kind.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        meta = {**child.get("metadata", {}), "ownerReferences": [reference]}
        if self._object.namespace:
            meta.setdefault("namespace", self._object.namespace)
        return {**child, "metadata": meta}

    def _has_applied(self, child: Obj) -> bool:
        entries = child["metadata"].get("managedFields") or ()
        return any(each["operation"] == "Apply" and each.get("manager") == self._name for each in entries)

    # -- status and events ---------------------------------------------------------------------------------------------

    @property
    def status(self) -> Obj:
        """The status as it will be written."""
        return self._status

    def set_status(self, status: Status | Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Set the whole status from a model, or some of its fields. Conditions that are not among them stay."""
        if status is not None:
            self._status = {"conditions": self._status.get("conditions", []), **models.write(status)}
        self._status |= models.write(fields)

    def condition(self, type: str, status: bool | None, reason: str, message: str = "") -> None:
        """Set a condition: `ctx.condition("Ready", True, "AllRunning", "3 of 3 replicas are ready")`; None means
        Unknown."""
        self._status["conditions"] = with_condition(
            self._status.get("conditions") or (),
            type,
            status,
            reason,
            message,
            now=self.clock.now(),
            generation=self._object.generation,
        )

    def pending_status(self) -> Obj:
        """Return the changes of the status that are not written yet, as a merge patch; empty if there are none."""
        return merge_patch_between(self._noted, self._status)

    async def save_status(self) -> None:
        """Write the status that was set so far, if it changed.

        This happens automatically at the end; call it for what must be stored before a side effect. Raise Conflict if
        the object is no longer at the revision that was read: the status may then rest on stale data, and nothing is
        written.
        """
        if not (patch := self.pending_status()):
            return
        meta = {"uid": self._object.uid, "resourceVersion": self._revision}
        kind, name, namespace = self._object.kind, self._object.name, self._object.namespace
        written = await self.client.patch(
            kind.ref, name, {"status": patch, "metadata": meta}, namespace, subresource="status"
        )
        self._revision = written["metadata"]["resourceVersion"]
        self._noted = dict(self._status)

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an Event about the object, which `kubectl describe` shows."""
        about = {"apiVersion": self._object.kind.api_version, "kind": self._object.kind.kind, **self._object.raw}
        (self._recorder.warning if warning else self._recorder.normal)(about, reason, message)

    # -- metrics -------------------------------------------------------------------------------------------------------

    def count(self, metric: Counter, by: float = 1.0, **labels: str) -> None:
        """Increment a counter: `ctx.count(BREWED, tea="green")`."""
        self._measurements.count(metric, by, labels)

    def gauge(self, metric: Gauge, value: float, **labels: str) -> None:
        self._measurements.set(metric, value, labels)

    def observe(self, metric: Histogram, value: float, **labels: str) -> None:
        self._measurements.observe(metric, value, labels)


def _identity(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]
