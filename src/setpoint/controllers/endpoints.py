"""Endpoints: the Pods of each Service with a selector in one object, for clients that do not use EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import PODS, is_namespace_terminating
from setpoint.controllers.pods import is_ready
from setpoint.controllers.service_pods import (
    HEADLESS,
    SERVICES,
    ServicePods,
    TriggerTimes,
    addresses_of,
    can_serve,
    has_endpoints,
    has_hostname,
    is_headless,
    target_port,
    target_reference,
    with_trigger_time,
)
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of, split_key

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod, Service

_FNV_OFFSET, _FNV_PRIME, _FNV_MASK = (
    0x6C62272E07BB014262B821756295C58D,
    0x0000000001000000000000000000013B,
    (1 << 128) - 1,
)
_Port = tuple[str, int, str, str | None] | None
"""Name, number, protocol and application protocol; None means no port."""
_Address = tuple[str, str]
"""IP and uid of the target: Pods on the host network share an IP."""
CAPACITY = 1000
ENDPOINTS = builtin("endpoints")
_NAME = "endpoint-controller"
_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
LEADER = "control-plane.alpha.kubernetes.io/leader"


# -- order of ports and subsets ---------------------------------------------------------------------------------------
# Upstream sorts them by a hash of the printed Go values. Only the stability of the order matters, but controllers of
# two versions or implementations must agree on it, or each would revert what the other wrote. Values are therefore
# printed as upstream does and hashed alike (FNV-1a, 128 bits).


def _fnv128a(text: str) -> bytes:
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _FNV_MASK
    return value.to_bytes(16, "big")


@lru_cache(4096)
def in_slices(name: str, protocol: str, number: int, application: str | None) -> bytes:
    """Return the sort key of a port of a slice."""
    return _fnv128a(
        f"(v1.EndpointPort){{Name:(*string){name} Protocol:(*v1.Protocol){protocol} Port:(*int32){number} "
        f"AppProtocol:{_pointer(application)}}}"
    )


def _by_hash(port: Mapping[str, Any]) -> bytes:
    return _fnv128a("(v1.EndpointPort)" + _port(port))


def _subset_by_hash(subset: Mapping[str, Any]) -> bytes:
    printed = " ".join(
        (
            f"Addresses:{_many('v1.EndpointAddress', subset.get('addresses'), _address)}",
            f"NotReadyAddresses:{_many('v1.EndpointAddress', subset.get('notReadyAddresses'), _address)}",
            f"Ports:{_many('v1.EndpointPort', subset.get('ports'), _port)}",
        )
    )
    return _fnv128a(f"(v1.EndpointSubset){{{printed}}}")


def _many(kind: str, values: Iterable[Obj] | None, one: Any) -> str:
    printed = "[" + " ".join(one(value) for value in values) + "]" if values else "<nil>"
    return f"([]{kind}){printed}"


def _port(port: Mapping[str, Any]) -> str:
    return (
        f"{{Name:(string){port.get('name') or ''} Port:(int32){port['port']} "
        f"Protocol:(v1.Protocol){port.get('protocol') or ''} AppProtocol:{_pointer(port.get('appProtocol'))}}}"
    )


def _address(address: Mapping[str, Any]) -> str:
    return (
        f"{{IP:(string){address['ip']} Hostname:(string){address.get('hostname') or ''} "
        f"NodeName:{_pointer(address.get('nodeName'))} "
        f"TargetRef:(*v1.ObjectReference){_target(address.get('targetRef'))}}}"
    )


def _target(target: Mapping[str, Any] | None) -> str:
    if target is None:
        return "<nil>"
    fields = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    names = ("Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath")
    printed = (
        f"{name}:({'types.UID' if name == 'UID' else 'string'}){target.get(field) or ''}"
        for name, field in zip(names, fields, strict=True)
    )
    return "{" + " ".join(printed) + "}"


def _pointer(text: str | None) -> str:
    return "(*string)" + ("<nil>" if text is None else text)


def subsets_of(service: Service, pods: Iterable[Pod]) -> list[Obj]:
    spec = service["spec"]
    unready_too = bool(spec.get("publishNotReadyAddresses"))
    addresses: dict[_Address, Obj] = {}
    offers: dict[_Port, dict[_Address, bool]] = {}
    for pod in pods:
        if not can_serve(pod, terminating=unready_too):
            continue
        address = _address_of(service, pod)
        if address is None:
            continue
        key = (address["ip"], address["targetRef"]["uid"])
        addresses[key] = address
        for port in _ports_of(service, pod):
            offers.setdefault(port, {})[key] = unready_too or is_ready(pod)
    return _packed(addresses, offers)


def repacked(subsets: Iterable[Obj]) -> list[Obj]:
    """Return the subsets in the canonical form that this controller writes."""
    addresses: dict[_Address, Obj] = {}
    offers: dict[_Port, dict[_Address, bool]] = {}
    for subset in subsets:
        ports: list[_Port] = [
            (port.get("name") or "", port["port"], port.get("protocol") or "TCP", port.get("appProtocol"))
            for port in subset.get("ports") or ()
        ]
        for part, ready in (("addresses", True), ("notReadyAddresses", False)):
            for address in subset.get(part) or ():
                key = (address["ip"], (address.get("targetRef") or {}).get("uid") or "")
                addresses.setdefault(key, address)
                for port in ports or [None]:
                    at = offers.setdefault(port, {})
                    # An address that is listed as both ready and not ready counts as not ready.
                    at[key] = at.get(key, True) and ready
    return _packed(addresses, offers)


def _packed(addresses: dict[_Address, Obj], offers: dict[_Port, dict[_Address, bool]]) -> list[Obj]:
    groups: dict[tuple[tuple[_Address, bool], ...], list[Obj]] = {}
    for port, at in offers.items():
        ports = groups.setdefault(tuple(sorted(at.items())), [])
        if port is not None:
            name, number, protocol, application = port
            made: Obj = {"name": name} if name else {}
            made |= {"port": number, "protocol": protocol}
            ports.append(made if application is None else {**made, "appProtocol": application})
    subsets = []
    for at_once, ports in groups.items():
        parts = {
            "addresses": [addresses[key] for key, ready in at_once if ready],
            "notReadyAddresses": [addresses[key] for key, ready in at_once if not ready],
            "ports": sorted(ports, key=_by_hash),
        }
        subsets.append({name: part for name, part in parts.items() if part})
    return sorted(subsets, key=_subset_by_hash) if len(subsets) > 1 else subsets


def _ports_of(service: Service, pod: Pod) -> list[_Port]:
    ports = service["spec"].get("ports") or ()
    if not ports:
        return [None] if is_headless(service) else []
    found: list[_Port] = []
    for port in ports:
        number = target_port(pod, port)
        if number is not None:
            found.append((port.get("name") or "", number, port.get("protocol", "TCP"), port.get("appProtocol")))
    return found


def _address_of(service: Service, pod: Pod) -> Obj | None:
    found = addresses_of(pod, _family(service, pod))
    if not found:
        return None
    made: Obj = {"ip": found[0], "nodeName": pod["spec"].get("nodeName") or "", "targetRef": target_reference(pod)}
    if has_hostname(pod, service):
        made["hostname"] = pod["spec"]["hostname"]
    return made


def _family(service: Service, pod: Pod) -> str:
    """Return the address family: Endpoints support only the first one of the Service."""
    families = service["spec"].get("ipFamilies")
    if families:
        return str(families[0])
    address = (pod.get("status") or {}).get("podIP") if is_headless(service) else service["spec"]["clusterIP"]
    return "IPv6" if ":" in (address or "") else "IPv4"


def truncated(subsets: list[Obj]) -> list[Obj]:
    """Truncate to what fits into one object: ready addresses first, proportionally from each subset."""
    ready = sum(len(subset.get("addresses") or ()) for subset in subsets)
    unready = sum(len(subset.get("notReadyAddresses") or ()) for subset in subsets)
    if ready + unready <= CAPACITY:
        return subsets
    cut = "addresses" if ready > CAPACITY else "notReadyAddresses"
    total, most = (ready, CAPACITY) if ready > CAPACITY else (unready, CAPACITY - ready)
    left, result = most, []
    for subset in subsets:
        held = subset.get(cut) or []
        share = min(ceil(len(held) / total * most), left)
        kept = {**subset, cut: held[:share]}
        left -= len(kept[cut])
        if cut == "addresses":
            kept.pop("notReadyAddresses", None)
        result.append({name: part for name, part in kept.items() if part})
    return result


def endpoints_controller(manager: Manager, options: ControllerOptions) -> Controller:
    endpoints = ServiceEndpoints(
        manager.client_for(_NAME),
        manager.informer(SERVICES),
        manager.informer(PODS),
        manager.informer(ENDPOINTS),
        manager.recorder(_NAME),
    )
    workers = options.concurrent_service_endpoint_syncs
    controller = Controller("endpoints-controller", endpoints.reconcile, manager.clock, workers=workers)
    endpoints.watch(controller, options.endpoint_updates_batch_period)
    return controller


class ServiceEndpoints:
    def __init__(
        self,
        client: Client,
        services: Informer[Service],
        pods: Informer[Pod],
        endpoints: Informer[Obj],
        recorder: EventRecorder,
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
        def service_changed(old: Service | None, new: Service | None) -> None:
            controller.enqueue(key_of(new or old or {}))

        def pod_changed(old: Pod | None, new: Pod | None) -> None:
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

    async def _write(self, service: Service, current: Obj | None, wanted: Obj, key: str) -> None:
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


def wanted_endpoints(service: Service, subsets: list[Obj], current: Obj | None, since: str) -> Obj:
    meta = service["metadata"]
    labels = {**(meta.get("labels") or {}), _MANAGED_BY: _NAME}
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
    return [_without_empty_fields(subset) for subset in current.get("subsets") or ()] == subsets


def _without_empty_fields(subset: Obj) -> Obj:
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
