"""Reconciles the Endpoints of Services."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.endpoints.subsets import subsets_of, truncated
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS, is_namespace_terminating
from setpoint.controllers.service_pods import HEADLESS, SERVICES, ServicePods, has_endpoints, is_headless
from setpoint.controllers.trigger_times import TriggerTimes, with_trigger_time
from setpoint.meta.errors import ApiError, NotFound
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of, split_key

Obj = dict[str, Any]

ENDPOINTS = builtin("endpoints")
NAME = "endpoint-controller"
_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
LEADER = "control-plane.alpha.kubernetes.io/leader"


def endpoints_controller(manager: Manager, options: ControllerOptions) -> Controller:
    endpoints = ServiceEndpoints(
        manager.client_for(NAME), manager.informer(SERVICES), manager.informer(PODS), manager.informer(ENDPOINTS),
        manager.recorder(NAME),
    )  # fmt: skip
    workers = options.concurrent_service_endpoint_syncs
    controller = Controller("endpoints-controller", endpoints.reconcile, manager.clock, workers=workers)
    endpoints.watch(controller, options.endpoint_updates_batch_period)
    return controller


class ServiceEndpoints:
    def __init__(
        self, client: Client, services: Informer, pods: Informer, endpoints: Informer, recorder: EventRecorder
    ) -> None:
        self._client = client
        self._services = services
        self._pods = pods
        self._endpoints = endpoints
        self._recorder = recorder
        self._service_pods = ServicePods(services, pods)
        self._times = TriggerTimes()
        self._written: dict[str, int] = {}
        """The revision the cache must have reached before the Endpoints of a Service can be trusted, by key of the
        Service."""

    def watch(self, controller: Controller, batch_period: float) -> None:
        def service_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._service_pods.affected_services(old, new):
                controller.queue.add_after(key, batch_period)

        def endpoints_changed(old: Obj | None, new: Obj | None) -> None:
            # Existing Endpoints may be left over from Services that were deleted while the controller was down. Leader
            # election records never have a Service.
            if new is None:
                controller.enqueue(key_of(old or {}))
            elif old is None and not self._endpoints.synced.is_set():
                if LEADER not in (new["metadata"].get("annotations") or {}):
                    controller.enqueue(key_of(new))

        self._services.add_handler(service_changed)
        self._pods.add_handler(pod_changed)
        self._endpoints.add_handler(endpoints_changed)

    async def reconcile(self, key: str) -> Result | None:
        service = self._services.get(key)
        if service is None:
            namespace, name = split_key(key)
            with suppress(NotFound):
                await self._client.delete(ENDPOINTS, name, namespace)
            self._times.forget(key)
            self._written.pop(key, None)
            return None
        if not has_endpoints(service):
            return None
        pods = self._service_pods.pods_of(service)
        since = self._times.since(key, service, pods)
        if int(self._endpoints.resource_version or 0) < self._written.get(key, 0):
            return Result(retry=True)
        current = self._endpoints.get(key)
        wanted = wanted_endpoints(service, subsets_of(service, pods), current, since)
        if current is not None and is_equivalent(current, wanted):
            return None
        await self._write(service, current, wanted, key)
        return None

    async def _write(self, service: Obj, current: Obj | None, wanted: Obj, key: str) -> None:
        try:
            if current is None:
                made = await self._client.create(wanted)
            else:
                made = await self._client.update(wanted)
        except ApiError as error:
            if current is None:
                if is_namespace_terminating(error):
                    return
                message = f"Failed to create endpoint for service {key}: {error}"
                self._recorder.warning(wanted, "FailedToCreateEndpoint", message)
            else:
                self._recorder.warning(wanted, "FailedToUpdateEndpoint", f"Failed to update endpoint {key}: {error}")
            raise
        self._written[key] = int(made["metadata"]["resourceVersion"])


def wanted_endpoints(service: Obj, subsets: list[Obj], current: Obj | None, since: str) -> Obj:
    meta = service["metadata"]
    labels = {**(meta.get("labels") or {}), _MANAGED_BY: NAME}
    labels.pop(HEADLESS, None)
    if is_headless(service):
        labels[HEADLESS] = ""
    base: Obj = current or {"apiVersion": "v1", "kind": "Endpoints", "metadata": {}}
    annotations = with_trigger_time(base["metadata"].get("annotations"), since)
    annotations.pop(_OVER_CAPACITY, None)
    fitting = truncated(subsets)
    if fitting is not subsets:
        annotations[_OVER_CAPACITY] = "truncated"
    names = {"name": meta["name"], "namespace": meta["namespace"], "labels": labels, "annotations": annotations}
    return {**base, "metadata": {**base["metadata"], **names}, "subsets": fitting}


def is_equivalent(current: Obj, wanted: Obj) -> bool:
    """Return whether two Endpoints are equal except for the trigger time."""
    before, after = current["metadata"], wanted["metadata"]
    if (before.get("labels") or {}) != after["labels"]:
        return False
    if (before.get("annotations") or {}).get(_OVER_CAPACITY) != after["annotations"].get(_OVER_CAPACITY):
        return False
    subsets: list[Obj] = wanted["subsets"]
    return [_bare(subset) for subset in current.get("subsets") or ()] == subsets


def _bare(subset: Obj) -> Obj:
    """Remove the Pod revisions that older releases recorded."""
    bare: Obj = {name: part for name, part in subset.items() if part}
    for part in ("addresses", "notReadyAddresses"):
        if part in bare:
            bare[part] = [_without_revision(address) for address in bare[part]]
    return bare


def _without_revision(address: Obj) -> Obj:
    target = address.get("targetRef")
    if not target or "resourceVersion" not in target:
        return address
    return {**address, "targetRef": {key: value for key, value in target.items() if key != "resourceVersion"}}
