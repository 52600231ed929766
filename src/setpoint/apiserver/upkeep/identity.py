"""This server's Lease: that it is there, and where. Leases of servers that are gone are removed."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timedelta

from setpoint.apiserver.own_writes import current, delete, ensure, update
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.errors import Conflict
from setpoint.meta.times import format_micro, parse_time

RENEW_EVERY = 10.0
COLLECT_EVERY = 3600.0
_DURATION = 3600
_LABEL = "apiserver.kubernetes.io/identity"
_COMPONENT = "kube-apiserver"
_GROUP, _NAMESPACE = "coordination.k8s.io", "kube-system"


def server_id(hostname: str) -> str:
    """The same for every start on one machine."""
    parts = (part.encode() for part in (hostname, _COMPONENT))
    digest = hashlib.sha256(b"".join(len(part).to_bytes(2, "big") + part for part in parts)).digest()[:16]
    return "apiserver-" + base64.b32encode(digest).decode().rstrip("=").lower()


class Identity:
    def __init__(self, api: ApiServer, hostname: str) -> None:
        self._api = api
        self._hostname = hostname
        self.name = server_id(hostname)
        self._holder = f"{self.name}_{api.ids.uid()}"

    async def renew(self) -> None:
        if current(self._api, _GROUP, "leases", _NAMESPACE, self.name) is None:
            obj: Obj = {"metadata": {"name": self.name, "namespace": _NAMESPACE}}
            self._fill(obj)
            await ensure(self._api, _GROUP, "leases", obj)
        else:
            await update(self._api, _GROUP, "leases", _NAMESPACE, self.name, self._fill)

    def _fill(self, obj: Obj) -> None:
        meta = obj["metadata"]
        meta.setdefault("labels", {}).update({_LABEL: _COMPONENT, "kubernetes.io/hostname": self._hostname})
        meta.setdefault("annotations", {})["kubernetes.io/peer-advertise-address"] = self._api.address
        spec = obj.setdefault("spec", {})
        spec.update(
            holderIdentity=self._holder, leaseDurationSeconds=_DURATION, renewTime=format_micro(self._api.clock.now())
        )

    async def collect(self) -> None:
        now = self._api.clock.now()
        for entry in list(self._api.registry(_GROUP, "leases").cache.scan(_NAMESPACE)):
            if (entry.obj["metadata"].get("labels") or {}).get(_LABEL) == _COMPONENT and _expired(entry.obj, now):
                try:
                    await delete(self._api, _GROUP, "leases", entry)
                except Conflict:
                    continue  # renewed just now


def _expired(lease: Obj, now: datetime) -> bool:
    spec = lease.get("spec") or {}
    renewed, seconds = spec.get("renewTime"), spec.get("leaseDurationSeconds")
    # One that nobody can judge helps nobody.
    return not renewed or seconds is None or parse_time(renewed) + timedelta(seconds=seconds) < now
