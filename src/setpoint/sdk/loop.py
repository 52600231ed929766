"""A controller at work, on the machinery that the built-in controllers run on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic

from setpoint.client import Client
from setpoint.meta.errors import Conflict, NotFound
from setpoint.reconcile import Controller as Loop
from setpoint.reconcile import EventRecorder, Informer, Manager, RateLimitingQueue, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.rate_limiting import Bucket, ExponentialBackoff
from setpoint.sdk.context import Context
from setpoint.sdk.controller import Controller, Reconcile, Refers, Watch
from setpoint.sdk.kind import Kind, Object, Spec, Status
from setpoint.sdk.metrics import Measurements
from setpoint.sdk.own_metrics import LoopMetrics

Obj = dict[str, Any]
_FINE = 1000


class InFlight:
    """How many reconciles run, all controllers together; and whether more may begin."""

    def __init__(self) -> None:
        self._running = 0
        self._closed = False
        self._none = asyncio.Event()
        self._none.set()

    def begin(self) -> bool:
        if self._closed:
            return False
        self._running += 1
        self._none.clear()
        return True

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._none.set()

    async def drain(self) -> None:
        """None begins any more; returns when the last is over."""
        self._closed = True
        await self._none.wait()


class Running(Generic[Spec, Status]):
    """A controller with its informers, on a manager."""

    def __init__(
        self,
        wanted: Controller[Spec, Status],
        manager: Manager,
        measurements: Measurements,
        in_flight: InFlight,
        *,
        namespace: str = "",
        dry_run: bool = False,
    ) -> None:
        self._wanted = wanted
        self._client: Client = manager.client_for(wanted.name)
        self._clock = manager.clock
        self._ids = manager.ids
        self._log = logging.getLogger(f"setpoint.operator.{wanted.name}")
        self._dry_run = dry_run
        self._measurements = measurements
        self._in_flight = in_flight
        self._recorder: EventRecorder = manager.recorder(wanted.name)
        self._namespace = wanted.namespace or namespace
        self._informer: Informer = manager.informer(
            wanted.kind.ref, namespace=self._namespace, label_selector=wanted.selector
        )
        self._owned = self._following(manager, wanted.owns)
        self._seen = {**self._following(manager, tuple(each.kind for each in wanted.watches)), **self._owned}
        limits = (ExponentialBackoff(*wanted.retry), Bucket(manager.clock))
        queue = RateLimitingQueue(manager.clock, limits)
        self.loop = Loop(wanted.name, self._look, manager.clock, workers=wanted.workers, queue=queue)
        self._metrics = LoopMetrics(wanted.name, wanted.workers)
        manager.add(self.loop)
        manager.add_metrics(self._metrics.families)
        self._listen()

    def _following(self, manager: Manager, kinds: tuple[Kind[Any, Any], ...]) -> Mapping[tuple[str, str], Informer]:
        return {kind.ref: manager.informer(kind.ref, namespace=self._namespace) for kind in kinds}

    def _listen(self) -> None:
        wanted, loop = self._wanted, self.loop

        def changed(old: Obj | None, new: Obj | None) -> None:
            if new is None:
                return
            # Whatever else is of no interest: that our finalizer is on it now is what the first look waits for.
            if wanted.when(old, new) or (old is not None and _finalizers(old) != _finalizers(new)):
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
            related = _related(watch, loop) if isinstance(watch, Watch) else self._referring(watch)
            self._seen[watch.kind.ref].add_handler(related)
        for informer in self._seen.values():
            informer.on_relist(self._look_at_all)

    def _look_at_all(self) -> None:
        """A child may have come and gone without our hearing of it: nobody but its owner knows that it is missing."""
        for key in self._informer.items:
            self.loop.enqueue(key)

    def _referring(self, refers: Refers) -> Callable[[Obj | None, Obj | None], None]:
        kind, index = self._wanted.kind, f"refers to {refers.kind.ref}"

        def keys(raw: Obj) -> list[str]:
            obj = Object(kind, raw)
            try:
                names = refers.names(obj)
            except Exception as error:
                # An object that cannot be read refers to nothing; its reconcile will say what is wrong with it.
                self._log.debug("%s: what it refers to cannot be told: %s", key_of(raw), error)
                return []
            within = f"{obj.namespace}/" if obj.namespace and refers.kind.namespaced else ""
            return [name if "/" in name else f"{within}{name}" for name in names if name]

        self._informer.add_index(index, keys)

        def changed(old: Obj | None, new: Obj | None) -> None:
            obj = new or old
            if obj is not None and refers.when(old, new):
                for referring in self._informer.by_index(index, key_of(obj)):
                    self.loop.enqueue(key_of(referring))

        return changed

    # -- one look -----------------------------------------------------------------------------------------------------

    async def _look(self, key: str) -> Result | None:
        if not self._in_flight.begin():
            return None
        began, outcome = self._clock.monotonic(), "failed"
        self._metrics.active += 1
        try:
            result = await self._in_time(key)
            outcome = _shown(result)
            if result is None and self._wanted.resync and self._informer.get(key) is not None:
                jitter = 1 + 0.1 * self._ids.below(_FINE) / _FINE
                return Result(requeue_after=self._wanted.resync * jitter)
            return result
        finally:
            took = self._clock.monotonic() - began
            self._metrics.active -= 1
            self._metrics.seconds.observe(took)
            self._in_flight.end()
            self._log.debug("%s %s: %s after %.0f ms", self._wanted.kind.kind, key, outcome, took * 1000)

    async def _in_time(self, key: str) -> Result | None:
        timeout = self._wanted.timeout
        if not timeout:
            return await self._reconcile(key)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._reconcile(key)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"not done within {timeout:g} s") from None
            raise

    async def _reconcile(self, key: str) -> Result | None:
        raw = self._informer.get(key)
        if raw is None:
            return None
        wanted = self._wanted
        obj = Object(wanted.kind, raw)
        context = Context(
            obj, self._client, self._clock, self._recorder, self._owned, wanted.name, seen=self._seen,
            measurements=self._measurements, dry_run=self._dry_run,
        )  # fmt: skip
        if obj.deleting:
            return await self._finalized(context, obj)
        if wanted.finalizer and wanted.finalizer not in _finalizers(raw):
            await self._set_finalizers(obj, [*_finalizers(raw), wanted.finalizer])
            if not self._dry_run:
                return None  # the change brings us back
        return await self._run(context, obj, self._reconcile_and_prune)

    async def _reconcile_and_prune(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> Result | None:
        result = await self._wanted.reconcile(context, obj)
        if result is None or not result.retry:
            await context.prune()
        return result

    async def _run(self, context: Context[Spec, Status], obj: Object[Spec, Status], step: Reconcile) -> Result | None:
        """Run one step and write the status that it set, also when it fails; but not when it is cancelled, because a
        shutdown does not wait for the server."""
        try:
            result = await step(context, obj)
        except Exception:
            await self._write_status(context, obj)
            raise
        await self._write_status(context, obj)
        return result

    async def _finalized(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> Result | None:
        finalizer, finalize = self._wanted.finalizer, self._wanted.finalize
        if finalize is None or finalizer not in _finalizers(obj.raw):
            return None
        result = await self._run(context, obj, finalize)
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


def _shown(result: Result | None) -> str:
    if result is not None and result.retry:
        return "to be tried again"
    if result is not None and result.requeue_after is not None:
        return f"done, next look in {result.requeue_after:g} s,"
    return "done"


def _related(watch: Watch, loop: Loop) -> Callable[[Obj | None, Obj | None], None]:
    def changed(old: Obj | None, new: Obj | None) -> None:
        if watch.when(old, new):
            for obj in (old, new):
                for key in watch.keys(obj) if obj is not None else ():
                    loop.enqueue(key)

    return changed
