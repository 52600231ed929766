"""Assigns addresses of a pool to Services of type LoadBalancer, in the place of a cloud provider.

The status of a Service holds its addresses; this controller mirrors them, and adds those that are being written. The
agents of real nodes announce an address if the Service has the condition `ADDRESS_FROM_POOL`, which only this
controller sets: addresses that another load balancer has assigned are left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import ADDRESS_FROM_POOL, condition_of, new_condition
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.names import parse_ip
from setpoint.meta.node_labels import EXCLUDE_FROM_LOAD_BALANCERS
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, Result, key_of
from setpoint.reconcile.workqueue import ExponentialBackoff, RateLimitingQueue

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Service

FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
_SERVICES, _NODES = builtin("services"), builtin("nodes")
_ACCOUNT: Final = "service-controller"
_MIN_RETRY, _MAX_RETRY = 5.0, 300.0
_VERSIONS: Final = {"IPv4": 4, "IPv6": 6}


class NoAddress(Exception):
    """A Service cannot get an address; the message is a sentence."""


class AddressPool:
    """Ranges of addresses, and which Service holds which address."""

    def __init__(self, text: str) -> None:
        """Parse ranges separated by commas, such as `10.0.0.240/28,10.0.1.5-10.0.1.9`. Raise ValueError."""
        self._ranges: list[tuple[int, int, int]] = []
        """The version, and the first and last address of each range."""
        self._holders: dict[str, str] = {}
        """The key of the Service that holds an address."""
        self._held: dict[str, set[str]] = {}
        for part in filter(None, (each.strip() for each in text.split(","))):
            self._ranges.append(_parse_range(part))

    def __contains__(self, address: str) -> bool:
        found = parse_ip(address)
        return found is not None and any(
            found.version == version and first <= int(found) <= last for version, first, last in self._ranges
        )

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def has(self, version: int) -> bool:
        """Return whether there are addresses of this version, free or not."""
        return any(each == version for each, _, _ in self._ranges)

    def holder(self, address: str) -> str | None:
        return self._holders.get(address)

    def free(self, version: int) -> str | None:
        """Return the lowest free address of the first range that has one; None if all are held."""
        for each, first, last in self._ranges:
            if each == version:
                for number in range(first, min(last, first + len(self._holders)) + 1):
                    address = str(ip_address(number.to_bytes(4 if version == 4 else 16)))
                    if address not in self._holders:
                        return address
        return None

    def hold(self, key: str, addresses: set[str]) -> bool:
        """Let a Service hold these addresses and no others; those of other Services are skipped. Return whether it
        released an address."""
        before = self._held.pop(key, set())
        for address in before - addresses:
            del self._holders[address]
        held = {address for address in addresses if self._holders.setdefault(address, key) == key}
        if held:
            self._held[key] = held
        return bool(before - addresses)


def _parse_range(text: str) -> tuple[int, int, int]:
    first, dash, last = (part.strip() for part in text.partition("-"))
    try:
        if dash:
            begin, end = ip_address(first), ip_address(last)
        else:
            network = ip_network(text)
            begin, end = network[0], network[-1]
    except ValueError as error:
        raise ValueError(f"{text}: {error}" if dash else str(error)) from None
    if begin.version != end.version or int(begin) > int(end):
        raise ValueError(f"{text}: the first address of a range must not be greater than the last one")
    if any(each.is_multicast or each.is_loopback or each.is_unspecified for each in (begin, end)):
        raise ValueError(f"{text}: must be addresses at which clients reach the nodes")
    return begin.version, int(begin), int(end)


def service_load_balancer_controller(manager: Manager, options: ControllerOptions) -> Controller:
    balancers = ServiceLoadBalancers(
        manager.client_for(_ACCOUNT),
        manager.clock,
        manager.recorder("service-controller", _ACCOUNT),
        manager.informer(_SERVICES),
        manager.informer(_NODES),
        AddressPool(options.load_balancer_pool),
    )
    queue = RateLimitingQueue(manager.clock, (ExponentialBackoff(_MIN_RETRY, _MAX_RETRY),))
    controller = Controller("service-lb-controller", balancers.reconcile, manager.clock, queue=queue)
    balancers.watch(controller)
    return controller


class ServiceLoadBalancers:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        services: Informer[Service],
        nodes: Informer[Node],
        pool: AddressPool,
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._services = services
        self._nodes = nodes
        self._pool = pool
        self._pending: dict[str, tuple[str, set[str]]] = {}
        """The uid and the addresses of Services whose cached status does not show the addresses yet."""
        self._waiting: set[str] = set()
        """Keys of Services that got no address."""

    def watch(self, controller: Controller) -> None:
        """Enqueue the Services that change. Without a pool, those that got an address from a former one are cleaned up
        when they no longer need it."""

        def changed(old: Service | None, new: Service | None) -> None:
            key = key_of(new or old or {})
            if self._observe(key, new):
                for each in self._waiting:
                    controller.enqueue(each)
            if new is None:
                self._waiting.discard(key)
                return
            changes = self._pool and (wants_load_balancer(new) if old is None else self._needs_update(old, new))
            if changes or (needs_cleanup(new) and (self._pool or _is_ensured(new))):
                controller.enqueue(key)

        self._services.add_handler(changed)

    def _observe(self, key: str, service: Service | None) -> bool:
        """Record the addresses that a Service holds. Return whether it released one."""
        held = {each for each in _addresses(service) if each in self._pool} if service is not None else set()
        uid, pending = self._pending.get(key, ("", set()))
        if service is None or uid != service["metadata"]["uid"] or pending <= held:
            self._pending.pop(key, None)
        else:
            held |= pending
        return self._pool.hold(key, held)

    def _needs_update(self, old: Service, new: Service) -> bool:
        """Return whether the load balancer has to be ensured or deleted after a change, and record what changed."""
        if not wants_load_balancer(old) and not wants_load_balancer(new):
            return False
        changes = list(_recorded_changes(old, new))
        for reason, message in changes[:1]:
            self._recorder.normal(new, reason, message)
        before, after = old["spec"], new["spec"]
        unrecorded = ("ports", "sessionAffinity", "sessionAffinityConfig")
        return (
            bool(changes)
            or any(before.get(field) != after.get(field) for field in unrecorded)
            or (old["metadata"].get("annotations") or {}) != (new["metadata"].get("annotations") or {})
            # Another client has removed the finalizer or the condition.
            or (wants_load_balancer(new) and not _is_ensured(new) and _is_ensured(old))
        )

    async def reconcile(self, key: str) -> Result | None:
        self._waiting.discard(key)
        service = self._services.get(key)
        if service is None:
            return None
        try:
            if needs_cleanup(service):
                await self._delete(key, service)
                return None
            return await self._ensure(key, service) if wants_load_balancer(service) else None
        except NotFound:
            return None
        except ApiError as error:
            self._recorder.warning(service, "SyncLoadBalancerFailed", f"Error syncing load balancer: {error}")
            raise

    async def _delete(self, key: str, service: Service) -> None:
        self._recorder.normal(service, "DeletingLoadBalancer", "Deleting load balancer")
        finalizers = {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}
        conditions = [{"$patch": "delete", "type": ADDRESS_FROM_POOL}]
        await self._patch(service, finalizers, {"loadBalancer": {"ingress": None}, "conditions": conditions})
        self._pending.pop(key, None)
        self._recorder.normal(service, "DeletedLoadBalancer", "Deleted load balancer")

    async def _ensure(self, key: str, service: Service) -> Result | None:
        self._recorder.normal(service, "EnsuringLoadBalancer", "Ensuring load balancer")
        if not any(map(_is_available, self._nodes.items.values())):
            message = "There are no available nodes for LoadBalancer"
            self._recorder.warning(service, "UnAvailableLoadBalancer", message)
        try:
            addresses = self._allocate(key, service)
        except NoAddress as error:
            self._waiting.add(key)
            message = f"Error syncing load balancer: failed to ensure load balancer: {error}"
            self._recorder.warning(service, "SyncLoadBalancerFailed", message)
            return Result(retry=True)
        if addresses != _addresses(service) or not _is_ensured(service):
            condition = condition_of(service, ADDRESS_FROM_POOL)
            if condition is None or condition.get("status") != "True":
                message = "The nodes announce the addresses of the load balancer"
                condition = new_condition(ADDRESS_FROM_POOL, "True", "Assigned", message, self._clock.now())
            ingress = [{"ip": address, "ipMode": "VIP"} for address in addresses]
            status = {"loadBalancer": {"ingress": ingress}, "conditions": [condition]}
            await self._patch(service, {"finalizers": [FINALIZER]}, status)
        self._recorder.normal(service, "EnsuredLoadBalancer", "Ensured load balancer")
        return None

    def _allocate(self, key: str, service: Service) -> list[str]:
        """Return the addresses that the Service has from now on. Raise NoAddress."""
        held = [each for each in _addresses(service) if self._pool.holder(each) == key]
        held += sorted(self._pending.get(key, ("", set()))[1] - set(held))
        wanted = wanted_addresses(service, self._pool, held)
        # Until the status changes, the former addresses are announced.
        self._pool.hold(key, {*wanted, *held})
        self._pending[key] = (service["metadata"]["uid"], set(wanted))
        return wanted

    async def _patch(self, service: Service, metadata: Obj, status: Obj) -> None:
        """Change the status and finalizers of a Service, which may have been deleted meanwhile."""
        meta = service["metadata"]
        change = {"metadata": {"uid": meta["uid"], **metadata}, "status": status}
        with suppress(NotFound):
            await self._client.patch(
                _SERVICES, meta["name"], change, meta["namespace"], kind="strategic", subresource="status"
            )


def wants_load_balancer(service: Service) -> bool:
    """Return whether a Service gets an address of the pool; one with a class is implemented by someone else."""
    spec = service["spec"]
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def needs_cleanup(service: Service) -> bool:
    meta, spec = service["metadata"], service["spec"]
    if FINALIZER not in (meta.get("finalizers") or ()) or spec.get("loadBalancerClass"):
        return False
    return "deletionTimestamp" in meta or spec.get("type") != "LoadBalancer"


def wanted_addresses(service: Service, pool: AddressPool, held: Sequence[str]) -> list[str]:
    """Return an address for each family of a Service: the one it asks for, one it holds, or a free one. Families that
    the pool does not have are skipped if there is another one. Raise NoAddress."""
    wanted = []
    asked = parse_ip(service["spec"].get("loadBalancerIP") or "")
    versions = [_VERSIONS[each] for each in service["spec"].get("ipFamilies") or ("IPv4",)]
    if asked is not None and asked.version not in versions:
        raise NoAddress(f"the Service has no address family of loadBalancerIP {asked}")
    for version in versions:
        if asked is not None and asked.version == version:
            wanted.append(_asked_address(key_of(service), str(asked), pool))
        elif pool.has(version):
            current = (each for each in held if ip_address(each).version == version)
            found = next(current, None) or pool.free(version)
            if found is None:
                raise NoAddress(f"no IPv{version} address of --load-balancer-pool is free")
            wanted.append(found)
    if not wanted:
        families = " and ".join(f"IPv{version}" for version in versions)
        raise NoAddress(f"--load-balancer-pool has no {families} addresses")
    return wanted


def _asked_address(key: str, address: str, pool: AddressPool) -> str:
    if address not in pool:
        raise NoAddress(f"loadBalancerIP {address} is not an address of --load-balancer-pool")
    holder = pool.holder(address)
    if holder not in (None, key):
        raise NoAddress(f"loadBalancerIP {address} is the address of the Service {holder}")
    return address


def _is_ensured(service: Service) -> bool:
    has_finalizer = FINALIZER in (service["metadata"].get("finalizers") or ())
    return has_finalizer and (condition_of(service, ADDRESS_FROM_POOL) or {}).get("status") == "True"


def _is_available(node: Node) -> bool:
    excluded = EXCLUDE_FROM_LOAD_BALANCERS in (node["metadata"].get("labels") or {})
    return not excluded and (condition_of(node, "Ready") or {}).get("status") == "True"


def _addresses(service: Service) -> list[str]:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [each["ip"] for each in ingress if each.get("ip")]


def _recorded_changes(old: Service, new: Service) -> Iterator[tuple[str, str]]:
    """Yield reasons and messages of Events for the changes that upstream records."""
    before, after = cast(ObjView, old["spec"]), cast(ObjView, new["spec"])
    if wants_load_balancer(old) != wants_load_balancer(new):
        yield "Type", f"{before.get('type', '')} -> {after.get('type', '')}"
    for field, reason in (
        ("loadBalancerSourceRanges", "LoadBalancerSourceRanges"),
        ("loadBalancerIP", "LoadbalancerIP"),
        ("externalTrafficPolicy", "ExternalTrafficPolicy"),
        ("healthCheckNodePort", "HealthCheckNodePort"),
    ):
        if before.get(field) != after.get(field):
            empty: Any = 0 if field == "healthCheckNodePort" else ""
            yield reason, f"{_shown(before.get(field, empty), field)} -> {_shown(after.get(field, empty), field)}"
    for field, reason in (("externalIPs", "ExternalIP"), ("ipFamilies", "IPFamilies")):
        counts = len(before.get(field) or ()), len(after.get(field) or ())
        if counts[0] != counts[1]:
            yield reason, f"Count: {counts[0]} -> {counts[1]}"
    added = [each for each in after.get("externalIPs") or () if each not in (before.get("externalIPs") or ())]
    if added:
        yield "ExternalIP", f"Added: {added[0]}"


def _shown(value: Any, field: str) -> str:
    """Return a value as Go prints it."""
    return f"[{' '.join(value)}]" if field == "loadBalancerSourceRanges" else str(value)
