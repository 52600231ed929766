"""Reconciles the slices that mirror an Endpoints object."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.controllers.endpoints.controller import ENDPOINTS, LEADER
from setpoint.controllers.endpointslice.own_slices import SLICES, OwnSlices
from setpoint.controllers.endpointslice.planning import Plan
from setpoint.controllers.endpointslice.writing import write
from setpoint.controllers.endpointslice_mirroring.mirroring import MANAGER, mirror_of, plan_mirror
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.service_pods import SERVICES
from setpoint.meta.clock import Clock
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, RateLimitingQueue, Result, key_of
from setpoint.reconcile.rate_limiting import Bucket, ExponentialBackoff

Obj = dict[str, Any]

_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 100.0


def endpointslice_mirroring_controller(manager: Manager, options: ControllerOptions) -> Controller:
    account = "endpointslicemirroring-controller"
    mirroring = EndpointSliceMirroring(
        manager.client_for(account), manager.clock, manager.recorder("endpoint-slice-mirroring-controller", account),
        manager.informer(SERVICES), manager.informer(ENDPOINTS), manager.informer(SLICES),
        options.mirroring_max_endpoints_per_subset,
    )  # fmt: skip
    clock = manager.clock
    queue = RateLimitingQueue(clock, (ExponentialBackoff(_FIRST_RETRY, _LONGEST_RETRY), Bucket(clock)))
    controller = Controller(
        "endpointslice-mirroring-controller", mirroring.reconcile, clock, queue=queue,
        workers=options.mirroring_concurrent_service_endpoint_syncs,
    )  # fmt: skip
    mirroring.watch(controller, options.mirroring_endpointslice_updates_batch_period)
    return controller


def is_to_be_mirrored(endpoints: Obj | None) -> bool:
    """Return whether the Endpoints object itself permits mirroring."""
    if endpoints is None:
        return False
    meta = endpoints["metadata"]
    return (meta.get("labels") or {}).get(_SKIP) != "true" and LEADER not in (meta.get("annotations") or {})


def _has_selector(service: Obj | None) -> bool:
    return service is not None and bool(service["spec"].get("selector"))


class EndpointSliceMirroring:
    def __init__(
        self, client: Client, clock: Clock, recorder: EventRecorder, services: Informer, endpoints: Informer,
        slices: Informer, most: int,
    ) -> None:  # fmt: skip
        self._client = client
        self._recorder = recorder
        self._services = services
        self._endpoints = endpoints
        self._slices = OwnSlices(slices, MANAGER, clock)
        self._most = most

    def watch(self, controller: Controller, batch_period: float) -> None:
        def service_changed(old: Obj | None, new: Obj | None) -> None:
            if old is None or new is None:
                if not _has_selector(new or old):
                    controller.enqueue(key_of(new or old or {}))
            elif _has_selector(old) != _has_selector(new):
                controller.enqueue(key_of(new))

        def endpoints_changed(old: Obj | None, new: Obj | None) -> None:
            if is_to_be_mirrored(old) or is_to_be_mirrored(new):
                controller.queue.add_after(key_of(new or old or {}), batch_period)

        self._services.add_handler(service_changed)
        self._endpoints.add_handler(endpoints_changed)
        self._slices.watch(controller, batch_period)

    async def reconcile(self, key: str) -> Result | None:
        endpoints, service = self._endpoints.get(key), self._services.get(key)
        slices = self._slices.of(key)
        if endpoints is None or not is_to_be_mirrored(endpoints) or service is None or _has_selector(service):
            self._slices.forget(key)
            if slices:
                await write(self._client, SLICES, Plan(delete=slices), endpoints, key, self._slices.tracker)
            return None
        wait = self._slices.wait(key, slices)
        if wait is not None:
            return wait
        mirror = mirror_of(endpoints, self._most)
        if mirror.invalid:
            message = f"Skipped {mirror.invalid} invalid IP addresses when mirroring to EndpointSlices"
            self._recorder.warning(endpoints, "InvalidIPAddress", message)
        if mirror.skipped > mirror.invalid:
            message = (
                f"A max of {self._most} addresses can be mirrored to EndpointSlices per Endpoints subset. "
                f"{mirror.skipped} addresses were skipped"
            )
            self._recorder.warning(endpoints, "TooManyAddressesToMirror", message)
        await write(self._client, SLICES, plan_mirror(endpoints, mirror, slices), endpoints, key, self._slices.tracker)
        return None
