"""The Lease that identifies a server, and the other servers of the cluster, which are known by their Leases.

A server renews its Lease for as long as it runs, and deletes it when it stops. The Lease names the address at which the
server can be reached.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.internal_writes import current, delete, ensure, update
from setpoint.apiserver.upkeep.leases import COORDINATION, EXPIRY, LEASE_NAMESPACE, LEASES, LeaseObserver
from setpoint.apiserver.upkeep.loop import log
from setpoint.apiserver.upkeep.server_objects import OwnAddress, ServerAddress
from setpoint.meta.errors import ApiError, Conflict
from setpoint.meta.node_labels import HOSTNAME
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro, parse_time
from setpoint.store.interface import StoreError
from setpoint.tasks import within

RENEW_INTERVAL: Final = 10.0
SHARED_RENEW_INTERVAL: Final = 5.0
"""Seconds between two renewals if other servers depend on them."""
COLLECTION_INTERVAL: Final = 3600.0
_LEASE_SECONDS: Final = 3600
_WITHDRAW_TIMEOUT: Final = 2.0
_IDENTITY_LABEL: Final = "apiserver.kubernetes.io/identity"
_ADDRESS_ANNOTATION: Final = "kubernetes.io/peer-advertise-address"
_COMPONENT: Final = "kube-apiserver"


def server_id(hostname: str, address: str = "") -> str:
    """Return the identity of the server, the same after every start.

    Servers that share a store have an `address` each, because several may run on one machine."""
    parts = (part.encode() for part in (hostname, _COMPONENT, address) if part)
    digest = hashlib.sha256(b"".join(len(part).to_bytes(2, "big") + part for part in parts)).digest()[:16]
    return "apiserver-" + base64.b32encode(digest).decode().rstrip("=").lower()


class IdentityLease:
    """The Lease of this server, and what the Leases of other servers say."""

    def __init__(self, api: ApiResources, hostname: str, own: OwnAddress) -> None:
        self._api = api
        self._hostname = hostname
        self._own = own
        self._address = str(own.server) if own.ip else api.address
        self.name = server_id(hostname, self._address if api.store.shared else "")
        self._holder = f"{self.name}_{api.ids.uid()}"
        self._renewed = api.clock.monotonic()
        """When the last renewal was made (monotonic seconds)."""
        self.leases = LeaseObserver(api) if api.store.shared else None
        """Observes the Leases of other servers; None if there can be no others."""

    async def renew(self) -> None:
        """Create or renew the Lease."""
        if current(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, self.name) is None:
            obj: Obj = {"metadata": {"name": self.name, "namespace": LEASE_NAMESPACE}}
            self._fill(obj)
            await ensure(self._api, COORDINATION, LEASES, obj)
        else:
            await update(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, self.name, self._fill)
        if self.leases is not None and self._is_overdue():
            self.leases.restart()
        self._renewed = self._api.clock.monotonic()

    def _is_overdue(self) -> bool:
        """Return whether this server could not renew its Lease: it was suspended, or the store is unavailable. The
        others may not have been able to renew theirs, or their renewals have not become visible here."""
        return self._api.clock.monotonic() - self._renewed > 2 * SHARED_RENEW_INTERVAL

    def _fill(self, obj: Obj) -> None:
        meta = obj["metadata"]
        meta.setdefault("labels", {}).update({_IDENTITY_LABEL: _COMPONENT, HOSTNAME: self._hostname})
        meta.setdefault("annotations", {})[_ADDRESS_ANNOTATION] = self._address
        spec = obj.setdefault("spec", {})
        spec.update(
            holderIdentity=self._holder,
            leaseDurationSeconds=_LEASE_SECONDS,
            renewTime=format_micro(self._api.clock.now()),
        )

    async def withdraw(self) -> None:
        """Delete the Lease because the server stops. Ignore failures: the others notice the missing renewals."""
        entry = current(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, self.name)
        if entry is None or (entry.obj.get("spec") or {}).get("holderIdentity") != self._holder:
            return
        try:
            await within(self._api.clock, _WITHDRAW_TIMEOUT, delete(self._api, COORDINATION, LEASES, entry))
        except (ApiError, StoreError, TimeoutError) as error:
            log.warning("cannot delete the lease %s of this server: %s", self.name, str(error) or "timed out")

    def servers(self) -> list[ServerAddress]:
        """Return the addresses of the servers that run now, in order. Those that can only be reached from their own
        machine have none."""
        found = {self._own.server} if self._own.ip else set()
        for lease in self._all() if self.leases is not None else ():
            if self._is_live(lease) and (address := _address_of(lease)) is not None:
                found.add(address)
        return sorted(found)

    def others(self) -> int:
        """Return the number of other servers that run now."""
        if self.leases is None:
            return 0
        return sum(lease["metadata"]["name"] != self.name and self._is_live(lease) for lease in self._all())

    def _is_live(self, lease: Obj) -> bool:
        assert self.leases is not None
        return self.leases.age(lease["metadata"]["name"]) < EXPIRY or self._is_overdue()

    def next_expiry(self) -> float:
        """Return the seconds until the next Lease of another server expires unless it is renewed."""
        leases = self.leases
        if leases is None:
            return EXPIRY
        ages = (leases.age(lease["metadata"]["name"]) for lease in self._all())
        return min((EXPIRY - age for age in ages if age < EXPIRY), default=EXPIRY)

    def _all(self) -> list[Obj]:
        """Return the Leases of all servers, expired or not."""
        cache = self._api.registry(COORDINATION, LEASES).cache
        return [entry.obj for entry in cache.scan(LEASE_NAMESPACE) if _identifies_server(entry.obj)]

    async def collect(self) -> None:
        """Delete the expired Leases of other servers."""
        now = self._api.clock.now()
        for entry in list(self._api.registry(COORDINATION, LEASES).cache.scan(LEASE_NAMESPACE)):
            if not _identifies_server(entry.obj) or not _is_expired(entry.obj, now):
                continue
            if self.leases is not None and self._is_live(entry.obj):
                continue  # its server runs, and the clock of its machine is wrong
            try:
                await delete(self._api, COORDINATION, LEASES, entry)
            except Conflict:
                continue  # it was renewed concurrently


def _identifies_server(lease: Obj) -> bool:
    return bool((lease["metadata"].get("labels") or {}).get(_IDENTITY_LABEL) == _COMPONENT)


def _address_of(lease: Obj) -> ServerAddress | None:
    """Return the address in the Lease, or None if there is none that other machines can use."""
    host, _, port = ((lease["metadata"].get("annotations") or {}).get(_ADDRESS_ANNOTATION) or "").rpartition(":")
    try:
        ip = ip_address(host.removeprefix("[").removesuffix("]"))
        if ip.is_loopback or ip.is_unspecified or not 0 < int(port) < 65536:
            return None
        return ServerAddress(str(ip), int(port))
    except ValueError:
        return None


def _is_expired(lease: Obj, now: datetime) -> bool:
    spec = lease.get("spec") or {}
    renewed, seconds = spec.get("renewTime"), spec.get("leaseDurationSeconds")
    # A Lease without times counts as expired.
    return not renewed or seconds is None or parse_time(renewed) + timedelta(seconds=seconds) < now
