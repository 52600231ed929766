"""Mirrors user-managed Endpoints of Services without a selector to EndpointSlices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.controllers.endpoints import ENDPOINTS, LEADER, repacked
from setpoint.controllers.endpointslice.controller import SLICES, OwnSlices, write
from setpoint.controllers.endpointslice.endpoints import (
    MANAGED_BY,
    SERVICE_NAME,
    EndpointKey,
    PortsKey,
    endpoint_key,
    in_order,
    is_equivalent,
    is_owned_by,
    ports_key,
    slice_prefix,
)
from setpoint.controllers.endpointslice.planning import Plan
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.service_pods import LAST_CHANGE, SERVICES
from setpoint.meta.clock import Clock
from setpoint.meta.names import parse_ip
from setpoint.meta.objects import Obj
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
    from setpoint.kinds.typed import Service

_MANAGER = "endpointslicemirroring-controller.k8s.io"
_LEFT_OUT = (LAST_CHANGE, "kubectl.kubernetes.io/last-applied-configuration")
_Key = tuple[str, PortsKey]
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_INITIAL_BACKOFF, _MAX_BACKOFF = 1.0, 100.0


@dataclass(slots=True)
class Mirror:
    """The content of the slices that mirror one Endpoints object."""

    groups: dict[_Key, tuple[list[Obj], dict[EndpointKey, Obj]]] = field(default_factory=dict)
    """Ports and endpoints by address family and ports."""
    invalid: int = 0
    skipped: int = 0
    """The number of addresses that are not mirrored, including invalid ones."""


def mirror_of(endpoints: Obj, most: int) -> Mirror:
    """Convert the subsets, with at most `most` addresses of each."""
    mirror = Mirror()
    for subset in repacked(endpoints.get("subsets") or ()):
        ports = in_order([{**port, "name": port.get("name") or ""} for port in subset.get("ports") or ()])
        added = 0
        addresses = [(each, True) for each in subset.get("addresses") or ()]
        addresses += [(each, False) for each in subset.get("notReadyAddresses") or ()]
        for address, ready in addresses:
            if added >= most:
                break
            ip = parse_ip(address["ip"])
            if ip is None:
                mirror.invalid += 1
                continue
            key = f"IPv{ip.version}", ports_key(ports)
            endpoint = _endpoint(address, str(ip), ready)
            mirror.groups.setdefault(key, (ports, {}))[1][endpoint_key(endpoint)] = endpoint
            added += 1
        mirror.skipped += len(addresses) - added
    return mirror


def _endpoint(address: Obj, ip: str, ready: bool) -> Obj:
    made: Obj = {"addresses": [ip], "conditions": {"ready": ready}}
    for name in ("targetRef", "nodeName", "hostname"):
        if address.get(name):
            made[name] = address[name]
    return made


def _plan_mirror(endpoints: Obj, mirror: Mirror, slices: Sequence[Obj]) -> Plan:
    """Plan one slice for each group. Surplus slices are deleted or reused."""
    result = Plan()
    by_key: dict[_Key, list[Obj]] = {}
    for found in slices:
        by_key.setdefault((found["addressType"], ports_key(found.get("ports"))), []).append(found)
    for key, (ports, wanted) in mirror.groups.items():
        there = by_key.pop(key, [])
        first = there[0] if there else None
        result.delete += there[1:]
        if first is not None and _is_mirrored(endpoints, first, wanted):
            continue
        made = _slice(endpoints, key[0], ports, list(wanted.values()))
        if first is None:
            result.create.append(made)
        else:
            result.update.append(_in_place_of(first, made))
    for left in by_key.values():
        result.delete += left
    _recycle(result)
    return result


def _is_mirrored(endpoints: Obj, found: Obj, wanted: dict[EndpointKey, Obj]) -> bool:
    there = {endpoint_key(endpoint): endpoint for endpoint in found.get("endpoints") or ()}
    if there.keys() != wanted.keys() or not all(is_equivalent(wanted[key], there[key]) for key in there):
        return False
    made = _slice(endpoints, "", [], [])["metadata"]
    meta = found["metadata"]
    if (meta.get("labels") or {}) != made["labels"] or (meta.get("annotations") or {}) != made["annotations"]:
        return False
    return is_owned_by(found, endpoints)


def _slice(endpoints: Obj, family: str, ports: list[Obj], found: list[Obj]) -> Obj:
    meta = endpoints["metadata"]
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in _LEFT_OUT}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": slice_prefix(meta["name"]),
            "namespace": meta["namespace"],
            "labels": {**(meta.get("labels") or {}), SERVICE_NAME: meta["name"], MANAGED_BY: _MANAGER},
            "annotations": annotations,
            "ownerReferences": [controller_reference(endpoints)],
        },
        "addressType": family,
        "endpoints": found,
        "ports": ports,
    }


def _in_place_of(old: Obj, made: Obj) -> Obj:
    identity = {name: old["metadata"][name] for name in ("name", "uid", "resourceVersion")}
    return {**made, "metadata": {**made["metadata"], **identity}}


def _recycle(result: Plan) -> None:
    for made in tuple(result.create):
        to_delete = next((found for found in result.delete if found["addressType"] == made["addressType"]), None)
        if to_delete is not None:
            result.create.remove(made)
            result.delete.remove(to_delete)
            result.update.append(_in_place_of(to_delete, made))


def endpointslice_mirroring_controller(manager: Manager, options: ControllerOptions) -> Controller:
    account = "endpointslicemirroring-controller"
    mirroring = EndpointSliceMirroring(
        manager.client_for(account),
        manager.clock,
        manager.recorder("endpoint-slice-mirroring-controller", account),
        manager.informer(SERVICES),
        manager.informer(ENDPOINTS),
        manager.informer(SLICES),
        options.mirroring_max_endpoints_per_subset,
    )
    clock = manager.clock
    queue = RateLimitingQueue(clock, (ExponentialBackoff(_INITIAL_BACKOFF, _MAX_BACKOFF), Bucket(clock)))
    controller = Controller(
        "endpointslice-mirroring-controller",
        mirroring.reconcile,
        clock,
        queue=queue,
        workers=options.mirroring_concurrent_service_endpoint_syncs,
    )
    mirroring.watch(controller, options.mirroring_endpointslice_updates_batch_period)
    return controller


def _is_to_be_mirrored(endpoints: Obj | None) -> bool:
    """Return whether the Endpoints object itself permits mirroring."""
    if endpoints is None:
        return False
    meta = endpoints["metadata"]
    return (meta.get("labels") or {}).get(_SKIP) != "true" and LEADER not in (meta.get("annotations") or {})


def _has_selector(service: Service | None) -> bool:
    return service is not None and bool(service["spec"].get("selector"))


class EndpointSliceMirroring:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        services: Informer[Service],
        endpoints: Informer[Obj],
        slices: Informer[Obj],
        most: int,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._services = services
        self._endpoints = endpoints
        self._slices = OwnSlices(slices, _MANAGER, clock)
        self._most = most

    def watch(self, controller: Controller, batch_period: float) -> None:
        def service_changed(old: Service | None, new: Service | None) -> None:
            if old is None or new is None:
                if not _has_selector(new or old):
                    controller.enqueue(key_of(new or old or {}))
            elif _has_selector(old) != _has_selector(new):
                controller.enqueue(key_of(new))

        def endpoints_changed(old: Obj | None, new: Obj | None) -> None:
            if _is_to_be_mirrored(old) or _is_to_be_mirrored(new):
                controller.queue.add_after(key_of(new or old or {}), batch_period)

        self._services.add_handler(service_changed)
        self._endpoints.add_handler(endpoints_changed)
        self._slices.watch(controller, batch_period)

    async def reconcile(self, key: str) -> Result | None:
        endpoints, service = self._endpoints.get(key), self._services.get(key)
        slices = self._slices.of(key)
        if endpoints is None or not _is_to_be_mirrored(endpoints) or service is None or _has_selector(service):
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
        await write(self._client, SLICES, _plan_mirror(endpoints, mirror, slices), endpoints, key, self._slices.tracker)
        return None
