"""An operator's loop for one kind, on the machinery that the built-in controllers run on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from setpoint.client import Client
from setpoint.meta.errors import Conflict, NotFound
from setpoint.reconcile import Controller as Loop
from setpoint.reconcile import EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.sdk.context import Context
from setpoint.sdk.kind import Kind, Object, Spec, Status

Obj = dict[str, Any]
Reconcile = Callable[[Context[Any, Any], Object[Any, Any]], Awaitable[Result | None]]
Predicate = Callable[[Obj | None, Obj | None], bool]
"""(None, new): appeared; (old, new): changed; (old, None): gone. Whether that is worth a look."""


@dataclass(frozen=True)
class Watch:
    """Another kind whose changes concern objects of the controller's: `keys(obj)` says which, as `namespace/name`."""

    kind: Kind[Any, Any]
    keys: Callable[[Obj], Sequence[str]]
    when: Predicate = lambda old, new: True


@dataclass(frozen=True)
class Controller(Generic[Spec, Status]):
    """What is reconciled, and with what. A value: `Operator` makes a loop of it."""

    kind: Kind[Spec, Status]
    reconcile: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]]
    """Brings the world closer to what the object asks for. Level-based: it looks at what is, not at what happened.
    Whatever it raises means: try again later."""
    owns: tuple[Kind[Any, Any], ...] = ()
    """Kinds of its children: a change of a child is a reason to look at its owner."""
    watches: tuple[Watch, ...] = ()
    when: Predicate = lambda old, new: True
    finalizer: str = ""
    """Put on every object before its first reconcile, so that it stays until `finalize` is done."""
    finalize: Callable[[Context[Spec, Status], Object[Spec, Status]], Awaitable[Result | None]] | None = None
    """What has to happen outside before an object may go. A Result means: not yet."""
    workers: int = 4
    namespace: str = ""
    """Only there; empty: everywhere."""

    @property
    def name(self) -> str:
        return f"{self.kind.kind.lower()}-operator"


class Running(Generic[Spec, Status]):
    """A controller with its informers, on a manager."""

    def __init__(self, wanted: Controller[Spec, Status], manager: Manager) -> None:
        if bool(wanted.finalizer) != bool(wanted.finalize):
            raise ValueError("a finalizer, and what is done to finalize: one without the other makes no sense")
        self._wanted = wanted
        self._client: Client = manager.client_for(wanted.name)
        self._clock = manager.clock
        self._recorder: EventRecorder = manager.recorder(wanted.name)
        self._informer: Informer = manager.informer(wanted.kind.ref, namespace=wanted.namespace)
        self._owned: Mapping[tuple[str, str], Informer] = {
            kind.ref: manager.informer(kind.ref, namespace=wanted.namespace) for kind in wanted.owns
        }
        self.loop = Loop(wanted.name, self._reconcile, manager.clock, workers=wanted.workers)
        manager.add(self.loop)
        self._listen(manager)

    def _listen(self, manager: Manager) -> None:
        wanted, loop = self._wanted, self.loop

        def changed(old: Obj | None, new: Obj | None) -> None:
            if new is not None and wanted.when(old, new):
                loop.enqueue(key_of(new))

        def child_changed(old: Obj | None, new: Obj | None) -> None:
            for obj in (old, new):
                owner = controller_of(obj) if obj is not None else None
                if obj is not None and owner is not None and owner["kind"] == wanted.kind.kind:
                    namespace = obj["metadata"].get("namespace") if wanted.kind.namespaced else ""
                    loop.enqueue(f"{namespace}/{owner['name']}" if namespace else owner["name"])

        self._informer.add_handler(changed)
        for informer in self._owned.values():
            informer.add_handler(child_changed)
        for watch in wanted.watches:
            manager.informer(watch.kind.ref, namespace=wanted.namespace).add_handler(_related(watch, loop))

    async def _reconcile(self, key: str) -> Result | None:
        raw = self._informer.get(key)
        if raw is None:
            return None
        obj = Object(self._wanted.kind, raw)
        context = Context(obj, self._client, self._clock, self._recorder, self._owned, self._wanted.name)
        if obj.deleting:
            return await self._finalized(context, obj)
        if self._wanted.finalizer and self._wanted.finalizer not in _finalizers(raw):
            await self._set_finalizers(obj, [*_finalizers(raw), self._wanted.finalizer])
            return None  # the change brings us back
        try:
            return await self._wanted.reconcile(context, obj)
        finally:
            await self._write_status(context, obj)

    async def _finalized(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> Result | None:
        finalizer, finalize = self._wanted.finalizer, self._wanted.finalize
        if finalize is None or finalizer not in _finalizers(obj.raw):
            return None
        try:
            result = await finalize(context, obj)
        finally:
            await self._write_status(context, obj)
        if result is not None:
            return result
        await self._set_finalizers(obj, [each for each in _finalizers(obj.raw) if each != finalizer])
        return None

    async def _set_finalizers(self, obj: Object[Spec, Status], finalizers: list[str]) -> None:
        # With the revision that was looked at: a list cannot be changed by two at once.
        meta = {"finalizers": finalizers, "resourceVersion": obj.raw["metadata"]["resourceVersion"]}
        try:
            await self._client.patch(self._wanted.kind.ref, obj.name, {"metadata": meta}, obj.namespace)
        except NotFound:
            return

    async def _write_status(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> None:
        if not (patch := context.status_news()):
            return
        try:
            await self._client.patch(
                self._wanted.kind.ref,
                obj.name,
                {"status": patch, "metadata": {"uid": obj.uid}},
                obj.namespace,
                subresource="status",
            )
        except (NotFound, Conflict):
            return  # gone, or another by now: whatever there is will be looked at


def _finalizers(raw: Obj) -> list[str]:
    return raw["metadata"].get("finalizers") or []


def _related(watch: Watch, loop: Loop) -> Callable[[Obj | None, Obj | None], None]:
    def changed(old: Obj | None, new: Obj | None) -> None:
        if watch.when(old, new):
            for obj in (old, new):
                for key in watch.keys(obj) if obj is not None else ():
                    loop.enqueue(key)

    return changed
