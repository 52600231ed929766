"""The control loop of one controller, built on `setpoint.reconcile` like the built-in controllers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic

from setpoint.client import Client
from setpoint.meta.errors import Conflict, NotFound
from setpoint.meta.exposition import Family, Histogram, gauge, histogram
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller as Loop
from setpoint.reconcile import EventRecorder, Informer, Manager, RateLimitingQueue, Result, key_of
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.metrics import queue_name
from setpoint.reconcile.workqueue import Bucket, ExponentialBackoff
from setpoint.sdk.context import Context
from setpoint.sdk.controller import Controller, Reconcile, Refers, Watch
from setpoint.sdk.kind import Kind, Object, Spec, Status
from setpoint.sdk.metrics import SECONDS, Measurements

_JITTER_STEPS = 1000


class InFlight:
    """Counts the running reconciles of all controllers, and can stop new ones from starting."""

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
        """Start no more reconciles, and return when the last one has finished."""
        self._closed = True
        await self._none.wait()


class _LoopMetrics:
    """The metrics of one controller, with controller-runtime's names; `reconcile` measures the queues."""

    def __init__(self, name: str, workers: int) -> None:
        self._labels = {"controller": queue_name(name)}
        self._workers = workers
        self.active = 0
        self.seconds = Histogram(SECONDS)

    def families(self) -> list[Family]:
        labels = self._labels
        return [
            histogram("controller_runtime_reconcile_time_seconds", "How long it took.", [(labels, self.seconds)]),
            gauge("controller_runtime_max_concurrent_reconciles", "Workers there are.", [(labels, self._workers)]),
            gauge("controller_runtime_active_workers", "Workers that are busy.", [(labels, self.active)]),
        ]


class Running(Generic[Spec, Status]):
    """A controller with its informers, registered with a manager."""

    def __init__(
        self,
        controller: Controller[Spec, Status],
        manager: Manager,
        measurements: Measurements,
        in_flight: InFlight,
        *,
        namespace: str = "",
        dry_run: bool = False,
    ) -> None:
        self._controller = controller
        self._client: Client = manager.client_for(controller.name)
        self._clock = manager.clock
        self._ids = manager.ids
        self._log = logging.getLogger(f"setpoint.operator.{controller.name}")
        self._dry_run = dry_run
        self._measurements = measurements
        self._in_flight = in_flight
        self._recorder: EventRecorder = manager.recorder(controller.name)
        self._namespace = controller.namespace or namespace
        self._informer: Informer[Obj] = manager.informer(
            controller.kind.ref, namespace=self._namespace, label_selector=controller.selector
        )
        self._owned = self._informers(manager, controller.owns)
        self._seen = {**self._informers(manager, tuple(each.kind for each in controller.watches)), **self._owned}
        limits = (ExponentialBackoff(*controller.retry), Bucket(manager.clock))
        queue = RateLimitingQueue(manager.clock, limits)
        self.loop = Loop(controller.name, self._process, manager.clock, workers=controller.workers, queue=queue)
        self._metrics = _LoopMetrics(controller.name, controller.workers)
        manager.add(self.loop)
        manager.add_metrics(self._metrics.families)
        self._add_handlers()

    def _informers(
        self, manager: Manager, kinds: tuple[Kind[Any, Any], ...]
    ) -> Mapping[tuple[str, str], Informer[Obj]]:
        return {kind.ref: manager.informer(kind.ref, namespace=self._namespace) for kind in kinds}

    def _add_handlers(self) -> None:
        controller, loop = self._controller, self.loop

        def changed(old: Obj | None, new: Obj | None) -> None:
            if new is None:
                return
            # The finalizer counts whatever `when` says: the first reconcile waits for it.
            if controller.when(old, new) or (old is not None and _finalizers(old) != _finalizers(new)):
                loop.enqueue(key_of(new))

        def child_changed(old: Obj | None, new: Obj | None) -> None:
            for obj in (old, new):
                owner = controller_of(obj) if obj is not None else None
                if obj is not None and owner is not None and owner["kind"] == controller.kind.kind:
                    namespace = obj["metadata"].get("namespace") if controller.kind.namespaced else ""
                    loop.enqueue(f"{namespace}/{owner['name']}" if namespace else owner["name"])

        self._informer.add_handler(changed)
        for informer in self._owned.values():
            informer.add_handler(child_changed)
        for watch in controller.watches:
            related = _enqueue_related(watch, loop) if isinstance(watch, Watch) else self._enqueue_referring(watch)
            self._seen[watch.kind.ref].add_handler(related)
        for informer in self._seen.values():
            informer.on_relist(self._enqueue_all)

    def _enqueue_all(self) -> None:
        """Enqueue all objects after a relist: a child may have been created and deleted unobserved, and only its
        owner's reconcile detects that it is missing."""
        for key in self._informer.items:
            self.loop.enqueue(key)

    def _enqueue_referring(self, refers: Refers) -> Callable[[Obj | None, Obj | None], None]:
        kind, index = self._controller.kind, f"refers to {refers.kind.ref}"

        def keys(raw: Obj) -> list[str]:
            obj = Object(kind, raw)
            try:
                names = refers.names(obj)
            except Exception as error:
                # An invalid object refers to nothing; its reconcile reports what is wrong with it.
                self._log.debug("%s: cannot determine its references: %s", key_of(raw), error)
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

    # -- one reconcile -------------------------------------------------------------------------------------------------

    async def _process(self, key: str) -> Result | None:
        if not self._in_flight.begin():
            return None
        began, outcome = self._clock.monotonic(), "failed"
        self._metrics.active += 1
        try:
            result = await self._reconcile_with_timeout(key)
            outcome = _describe_outcome(result)
            if result is None and self._controller.resync and self._informer.get(key) is not None:
                jitter = 1 + 0.1 * self._ids.below(_JITTER_STEPS) / _JITTER_STEPS
                return Result(requeue_after=self._controller.resync * jitter)
            return result
        finally:
            took = self._clock.monotonic() - began
            self._metrics.active -= 1
            self._metrics.seconds.observe(took)
            self._in_flight.end()
            self._log.debug("%s %s: %s after %.0f ms", self._controller.kind.kind, key, outcome, took * 1000)

    async def _reconcile_with_timeout(self, key: str) -> Result | None:
        timeout = self._controller.timeout
        if not timeout:
            return await self._reconcile(key)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._reconcile(key)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"the reconcile did not finish within {timeout:g} s") from None
            raise

    async def _reconcile(self, key: str) -> Result | None:
        raw = self._informer.get(key)
        if raw is None:
            return None
        controller = self._controller
        obj = Object(controller.kind, raw)
        context = Context(
            obj,
            self._client,
            self._clock,
            self._recorder,
            self._owned,
            controller.name,
            seen=self._seen,
            measurements=self._measurements,
            dry_run=self._dry_run,
        )
        if obj.deleting:
            return await self._finalize(context, obj)
        if controller.finalizer and controller.finalizer not in _finalizers(raw):
            await self._set_finalizers(obj, [*_finalizers(raw), controller.finalizer])
            if not self._dry_run:
                return None  # the change enqueues the key again
        return await self._run(context, obj, self._reconcile_and_prune)

    async def _reconcile_and_prune(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> Result | None:
        result = await self._controller.reconcile(context, obj)
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

    async def _finalize(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> Result | None:
        finalizer, finalize = self._controller.finalizer, self._controller.finalize
        if finalize is None or finalizer not in _finalizers(obj.raw):
            return None
        result = await self._run(context, obj, finalize)
        if result is not None:
            return result
        await self._set_finalizers(obj, [each for each in _finalizers(obj.raw) if each != finalizer])
        return None

    async def _set_finalizers(self, obj: Object[Spec, Status], finalizers: list[str]) -> None:
        # The patch includes the revision that was read, because two writers must not change the list at once.
        meta = {"finalizers": finalizers, "resourceVersion": obj.raw["metadata"]["resourceVersion"]}
        try:
            await self._client.patch(self._controller.kind.ref, obj.name, {"metadata": meta}, obj.namespace)
        except NotFound:
            return

    async def _write_status(self, context: Context[Spec, Status], obj: Object[Spec, Status]) -> None:
        if not (patch := context.pending_status()):
            return
        try:
            await self._client.patch(
                self._controller.kind.ref,
                obj.name,
                {"status": patch, "metadata": {"uid": obj.uid}},
                obj.namespace,
                subresource="status",
            )
        except (NotFound, Conflict):
            return  # the object is deleted or replaced; its own event triggers the next reconcile


def _finalizers(raw: Obj) -> list[str]:
    return raw["metadata"].get("finalizers") or []


def _describe_outcome(result: Result | None) -> str:
    if result is not None and result.retry:
        return "requeued with backoff"
    if result is not None and result.requeue_after is not None:
        return f"done, requeued after {result.requeue_after:g} s,"
    return "done"


def _enqueue_related(watch: Watch, loop: Loop) -> Callable[[Obj | None, Obj | None], None]:
    def changed(old: Obj | None, new: Obj | None) -> None:
        if watch.when(old, new):
            for obj in (old, new):
                for key in watch.keys(obj) if obj is not None else ():
                    loop.enqueue(key)

    return changed
