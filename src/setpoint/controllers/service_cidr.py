"""Marks ServiceCIDRs as ready, and protects them from deletion while addresses of theirs are in use."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import condition_of, new_condition
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.names import parse_ip
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_CIDRS, _ADDRESSES = builtin("servicecidrs", "networking.k8s.io"), builtin("ipaddresses", "networking.k8s.io")
_NAME = "service-cidr-controller"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
_MANAGED_BY, _MANAGER = "ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"
_ALLOCATOR_GRACE = 10.0
"""Seconds until every allocator has observed that a range is being deleted."""
_WORKERS = 5
_IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"


def service_cidr_controller(manager: Manager, _: ControllerOptions) -> Controller:
    account = "service-cidrs-controller"
    cidrs = ServiceCidrs(
        manager.client_for(account),
        manager.clock,
        manager.recorder(_NAME, account),
        manager.informer(_CIDRS),
        manager.informer(_ADDRESSES),
    )
    controller = Controller(_NAME, cidrs.reconcile, manager.clock, workers=_WORKERS)
    cidrs.watch(controller)
    return controller


def _networks_of(cidr: Obj) -> list[Network]:
    return [ip_network(text, strict=False) for text in (cidr.get("spec") or {}).get("cidrs") or ()]


def holds(network: Network, address: Address) -> bool:
    """Return whether the address can be allocated from the network, which excludes the first and, for IPv4, the
    last."""
    if address.version != network.version or address not in network or address == network.network_address:
        return False
    return not (network.version == 4 and address == network.broadcast_address)


def _covers(network: Network, other: Network) -> bool:
    return network.version == other.version and network.prefixlen <= other.prefixlen and network.overlaps(other)


def can_be_deleted(cidr: Obj, cidrs: Iterable[Obj], addresses: Iterable[Address]) -> bool:
    """Return whether every address allocated from the range is also covered by another range."""
    others = [each for each in cidrs if each["metadata"]["name"] != cidr["metadata"]["name"]]
    mine = _networks_of(cidr)
    around = [network for each in others for network in _networks_of(each)]
    if all(any(_covers(network, own) for network in around) for own in mine):
        return True
    return not any(
        any(holds(own, address) for own in mine) and not any(holds(network, address) for network in around)
        for address in addresses
    )


def _address_of(obj: Obj) -> Address | None:
    if (obj["metadata"].get("labels") or {}).get(_MANAGED_BY) != _MANAGER:
        return None
    return parse_ip(obj["metadata"]["name"])


class ServiceCidrs:
    def __init__(
        self, client: Client, clock: Clock, recorder: EventRecorder, cidrs: Informer[Obj], addresses: Informer[Obj]
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._cidrs = cidrs
        self._addresses = addresses

    def watch(self, controller: Controller) -> None:
        def cidr_changed(old: Obj | None, new: Obj | None) -> None:
            controller.enqueue(key_of(new or old or {}))
            if old is None or new is None:
                ranges = _networks_of(new or old or {})
                for key, other in self._cidrs.items.items():
                    if any(
                        one.overlaps(two) for one in ranges for two in _networks_of(other) if one.version == two.version
                    ):
                        controller.enqueue(key)

        def address_changed(old: Obj | None, new: Obj | None) -> None:
            address = _address_of(new or old or {}) if old is None or new is None else None
            if address is not None:
                for key, cidr in self._cidrs.items.items():
                    # Only ranges that are being deleted wait for addresses.
                    if "deletionTimestamp" in cidr["metadata"]:
                        if any(holds(network, address) for network in _networks_of(cidr)):
                            controller.enqueue(key)

        self._cidrs.add_handler(cidr_changed)
        self._addresses.add_handler(address_changed)

    async def reconcile(self, name: str) -> Result | None:
        cidr = self._cidrs.get(name)
        if cidr is None:
            return None
        meta = cidr["metadata"]
        if "deletionTimestamp" in meta:
            return await self._finalize(cidr)
        if FINALIZER not in (meta.get("finalizers") or ()):
            change = {"metadata": {"finalizers": [FINALIZER], "uid": meta["uid"]}}
            with suppress(NotFound):
                await self._client.patch(_CIDRS, name, change, kind="strategic")
        try:
            await self._set_ready(cidr, "True", "", "Kubernetes Service CIDR is ready")
        except ApiError:
            message = "The ServiceCIDR Status can not be set to Ready=True"
            self._recorder.warning(cidr, "KubernetesServiceCIDRError", message)
            raise
        return None

    async def _finalize(self, cidr: Obj) -> Result | None:
        meta = cidr["metadata"]
        addresses = [found for obj in self._addresses.items.values() if (found := _address_of(obj)) is not None]
        if not can_be_deleted(cidr, self._cidrs.items.values(), addresses):
            await self._set_ready(cidr, "False", "Terminating", _IN_USE)
            return None
        left = _ALLOCATOR_GRACE - (self._clock.now() - parse_time(meta["deletionTimestamp"])).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        if FINALIZER in (meta.get("finalizers") or ()):
            change = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER], "uid": meta["uid"]}}
            with suppress(NotFound):
                await self._client.patch(_CIDRS, meta["name"], change, kind="strategic")
        return None

    async def _set_ready(self, cidr: Obj, status: str, reason: str, message: str) -> None:
        wanted = {"type": "Ready", "status": status, "reason": reason, "message": message}
        current = condition_of(cidr, "Ready") or {}
        if all((current.get(field) or "") == value for field, value in wanted.items()):
            return
        made = {
            "apiVersion": cidr["apiVersion"],
            "kind": cidr["kind"],
            "metadata": {"name": cidr["metadata"]["name"]},
            "status": {"conditions": [new_condition("Ready", status, reason, message, self._clock.now())]},
        }
        await self._client.apply(made, field_manager=_NAME, force=True, subresource="status")
