"""Reconciles the EndpointSlices of Services: finds its own slices, executes plans, and tracks what it wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.client.interface import ResourceRef
from setpoint.client.resources import builtin
from setpoint.controllers.endpointslice.endpoints import MANAGED_BY, SERVICE_NAME, families_of
from setpoint.controllers.endpointslice.planning import Plan, plan, reuse
from setpoint.controllers.endpointslice.topology import (
    Topology,
    hint_close,
    remove_hints,
    topology_mode,
    traffic_distribution,
)
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS, is_namespace_terminating
from setpoint.controllers.service_pods import SERVICES, ServicePods, TriggerTimes, has_endpoints, with_trigger_time
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import is_true
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.node_labels import ZONE
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import (
    Controller,
    EventRecorder,
    Informer,
    Manager,
    RateLimitingQueue,
    Result,
    key_of,
)
from setpoint.reconcile.workqueue import Bucket, ExponentialBackoff

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod, Service

log = logging.getLogger("setpoint.controllers")

_GONE = -1
SLICES = builtin("endpointslices", "discovery.k8s.io")
_LONGEST_WAIT = 30.0
"""Seconds after which a write that was not observed is assumed to have been deleted before it was observed."""
_BY_SERVICE = "service"
_NODES = builtin("nodes")
_MANAGER = "endpointslice-controller.k8s.io"
_AFTER_FOREIGN_CHANGE = 1.0
_INITIAL_BACKOFF, _MAX_BACKOFF = 1.0, 1000.0


class SliceTracker:
    """Holds the generation written last, or a marker for a deletion, by Service key and slice uid."""

    def __init__(self) -> None:
        self._written: dict[str, dict[str, int]] = {}

    def wrote(self, service: str, written: Obj) -> None:
        meta = written["metadata"]
        self._written.setdefault(service, {})[meta["uid"]] = meta.get("generation", 0)

    def deleted(self, service: str, gone: Obj) -> None:
        self._written.setdefault(service, {})[gone["metadata"]["uid"]] = _GONE

    def is_stale(self, service: str, slices: Iterable[Obj]) -> bool:
        """Return whether `slices`, which are those of the cache, lack a write."""
        written = self._written.get(service)
        if not written:
            return False
        there = {found["metadata"]["uid"]: found["metadata"].get("generation", 0) for found in slices}
        for uid, generation in [*written.items()]:
            if generation == _GONE:
                if uid in there:
                    return True
                del written[uid]  # the watch event came before the answer
            elif there.get(uid, _GONE) < generation:
                return True
        return False

    def is_foreign_change(self, service: str, seen: Obj) -> bool:
        """Return whether another client changed the slice."""
        meta = seen["metadata"]
        known = self._written.get(service, {}).get(meta["uid"])
        return known is None or meta.get("generation", 0) > known

    def deletion_observed(self, service: str, gone: Obj) -> bool:
        """Record an observed deletion. Return whether it was expected."""
        known = self._written.get(service, {}).pop(gone["metadata"]["uid"], None)
        return known == _GONE

    def forget(self, service: str) -> None:
        self._written.pop(service, None)


# -- own slices -------------------------------------------------------------------------------------------------------


def _service_key(found: Obj) -> str:
    """Return the key of the slice's Service, or an empty string if it has none."""
    name = (found["metadata"].get("labels") or {}).get(SERVICE_NAME)
    return f"{found['metadata']['namespace']}/{name}" if name else ""


class OwnSlices:
    """The slices that one controller manages: finds them by Service and detects changes made by others."""

    def __init__(self, slices: Informer[Obj], manager: str, clock: Clock) -> None:
        """Create the index. `manager` is the value of the managed-by label."""
        self._slices = slices
        self._manager = manager
        self._clock = clock
        self.tracker = SliceTracker()
        self._waiting: dict[str, float] = {}
        """Services that must not be reconciled before the cache has caught up, with the time since when they wait."""
        slices.add_index(_BY_SERVICE, lambda found: (_service_key(found),))

    def of(self, service: str) -> list[Obj]:
        return [
            found
            for found in self._slices.by_index(_BY_SERVICE, service)
            if self._is_ours(found) and "deletionTimestamp" not in found["metadata"]
        ]

    def wait(self, service: str, slices: list[Obj]) -> Result | None:
        """Return a requeue while the cache does not show what was written, otherwise None. The Service is enqueued as
        soon as it does."""
        if self.tracker.is_stale(service, slices):
            now = self._clock.monotonic()
            if now - self._waiting.setdefault(service, now) < _LONGEST_WAIT:
                return Result(requeue_after=_LONGEST_WAIT)
            self.tracker.forget(service)
        self._waiting.pop(service, None)
        return None

    def forget(self, service: str) -> None:
        self.tracker.forget(service)
        self._waiting.pop(service, None)

    def watch(self, controller: Controller, delay: float) -> None:
        """Enqueue a Service whose slices were changed by another client after `delay`, so that further changes
        coalesce."""

        def changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._changed_by_others(old, new):
                controller.queue.add_after(key, delay)
            key = _service_key(new or old or {})
            if key in self._waiting and not self.tracker.is_stale(key, self.of(key)):
                controller.enqueue(key)

        self._slices.add_handler(changed)

    def _is_ours(self, found: Obj) -> bool:
        return (found["metadata"].get("labels") or {}).get(MANAGED_BY) == self._manager

    def _changed_by_others(self, old: Obj | None, new: Obj | None) -> list[str]:
        if new is None:
            if old is None or not self._is_ours(old):
                return []
            key = _service_key(old)
            return [] if self.tracker.deletion_observed(key, old) or not key else [key]
        after = _service_key(new)
        if old is not None:
            before = _service_key(old)
            if before != after:
                return [key for key in (after, before) if key]
            if self._is_ours(old) != self._is_ours(new):
                return [after] if after else []
        return [after] if after and self._is_ours(new) and self.tracker.is_foreign_change(after, new) else []


# -- executing a plan -------------------------------------------------------------------------------------------------


def _stamp(result: Plan, since: str) -> None:
    """Annotate the planned slices with the trigger time; see `TriggerTimes`."""
    result.create = [_stamped(made, since) for made in result.create]
    result.update = [_stamped(changed, since) for changed in result.update]


async def write(
    client: Client, resource: ResourceRef, result: Plan, owner: ObjView | None, key: str, tracker: SliceTracker
) -> None:
    """Write the plan and record each write in the tracker. Stop at the first failure. Create nothing for an owner that
    is being deleted."""
    if owner is not None and "deletionTimestamp" not in owner["metadata"]:
        for made in result.create:
            try:
                tracker.wrote(key, await client.create(made))
            except ApiError as error:
                if is_namespace_terminating(error):
                    return
                raise
    for changed in result.update:
        tracker.wrote(key, await client.update(changed))
    for surplus in result.delete:
        meta = surplus["metadata"]
        try:
            await client.delete(resource, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            continue
        tracker.deleted(key, surplus)


def _stamped(found: Obj, since: str) -> Obj:
    meta = found["metadata"]
    return {**found, "metadata": {**meta, "annotations": with_trigger_time(meta.get("annotations"), since)}}


# -- controller -------------------------------------------------------------------------------------------------------


def endpointslice_controller(manager: Manager, options: ControllerOptions) -> Controller:
    name = "endpointslice-controller"
    slices = EndpointSlices(
        manager.client_for(name),
        manager.clock,
        manager.informer(SERVICES),
        manager.informer(PODS),
        manager.informer(_NODES),
        manager.informer(SLICES),
        manager.recorder("endpoint-slice-controller", name),
        options.max_endpoints_per_slice,
    )
    clock = manager.clock
    queue = RateLimitingQueue(clock, (ExponentialBackoff(_INITIAL_BACKOFF, _MAX_BACKOFF), Bucket(clock)))
    workers = options.concurrent_service_endpoint_syncs
    controller = Controller(name, slices.reconcile, clock, workers=workers, queue=queue)
    slices.watch(controller, options.endpointslice_updates_batch_period)
    return controller


class EndpointSlices:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        services: Informer[Service],
        pods: Informer[Pod],
        nodes: Informer[Node],
        slices: Informer[Obj],
        recorder: EventRecorder,
        most: int,
    ) -> None:
        self._client = client
        self._services = services
        self._pods = pods
        self._nodes = nodes
        self._slices = OwnSlices(slices, _MANAGER, clock)
        self._recorder = recorder
        self._most = most
        self._service_pods = ServicePods(services, pods)
        self._times = TriggerTimes()
        self._topology = Topology()

    # -- event handlers ---------------------------------------------------------------------------------------------

    def watch(self, controller: Controller, batch_period: float) -> None:
        def service_changed(old: Service | None, new: Service | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
            for key in self._service_pods.affected_services(old, new):
                controller.queue.add_after(key, batch_period)

        def node_changed(old: Node | None, new: Node | None) -> None:
            if old is None or new is None or _as_topology(old) != _as_topology(new):
                for key in self._topology.update_nodes(self._nodes.items.values()):
                    controller.enqueue(key)

        self._services.add_handler(service_changed)
        self._pods.add_handler(pod_changed)
        self._slices.watch(controller, max(_AFTER_FOREIGN_CHANGE, batch_period))
        self._nodes.add_handler(node_changed)

    # -- reconcile --------------------------------------------------------------------------------------------------

    async def reconcile(self, key: str) -> Result | None:
        service = self._services.get(key)
        if service is None:
            self._times.forget(key)
            self._slices.forget(key)
            self._topology.forget(key)
            return None
        if not has_endpoints(service):
            return None
        slices = self._slices.of(key)
        wait = self._slices.wait(key, slices)
        if wait is not None:
            return wait
        pods = self._service_pods.pods_of(service)
        since = self._times.since(key, service, pods)
        problems: list[str] = []
        families = families_of(service)
        for family in families:
            of_family = [found for found in slices if found["addressType"] == family]
            result = plan(service, pods, self._nodes.get, of_family, family, self._most, _MANAGER)
            problems += result.problems
            notes = self._hint(result, service, key, family)
            reuse(result, service)
            problems += await self._write(result, service, key, since)
            for note in notes:
                record = self._recorder.warning if note.warning else self._recorder.normal
                record(service, note.reason, note.message)
        stray = Plan(delete=[found for found in slices if found["addressType"] not in families])
        for found in stray.delete:
            self._topology.forget(key, found["addressType"])
        problems += await self._write(stray, service, key, since)
        if problems:
            problem = problems[0] if len(problems) == 1 else f"[{', '.join(dict.fromkeys(problems))}]"
            message = f"Error updating Endpoint Slices for Service {key}: {problem}"
            self._recorder.warning(service, "FailedToUpdateEndpointSlices", message)
            log.info("updating the EndpointSlices of Service %s is retried: %s", key, problem)
            return Result(retry=True)
        return None

    def _hint(self, result: Plan, service: Service, key: str, family: str) -> list[Any]:
        if topology_mode(service):
            return self._topology.hint(result, key, family)
        notes = self._topology.removed(key, family)
        distribution = traffic_distribution(service)
        if distribution:
            hint_close(result, distribution)
        else:
            remove_hints(result)
        return notes

    async def _write(self, result: Plan, service: Service, key: str, since: str) -> list[str]:
        _stamp(result, since)
        try:
            await write(self._client, SLICES, result, service, key, self._slices.tracker)
        except ApiError as error:
            return [str(error)]
        return []


def _as_topology(node: Node) -> tuple[bool, str]:
    return is_true(node, "Ready"), (node["metadata"].get("labels") or {}).get(ZONE) or ""
