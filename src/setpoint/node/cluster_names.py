"""The names of cluster DNS for simulated Pods, with the same records as on real nodes."""

from __future__ import annotations

from ipaddress import ip_address
from struct import unpack
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.node.host.network.dns.message import (
    AAAA,
    CNAME,
    NXDOMAIN,
    PTR,
    SRV,
    A,
    DnsFormatError,
    Name,
    Record,
    name_text,
    parse_name,
)
from setpoint.node.host.network.dns.zone import ClusterZone
from setpoint.node.runtime.network import DnsRecord
from setpoint.reconcile import Informer

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod, Service

_DOMAIN = "cluster.local"
_TYPES = {"A": A, "AAAA": AAAA, "CNAME": CNAME, "PTR": PTR, "SRV": SRV}
_TYPE_NAMES = {number: name for name, number in _TYPES.items()}


class ClusterNames:
    """Answers queries from the caches of informers."""

    def __init__(self, clock: Clock, services: Informer[Service], slices: Informer[Obj], pods: Informer[Pod]) -> None:
        """Create the names. `pods` name the namespaces that exist: the fleet may not read namespaces."""
        self._zone = ClusterZone(_DOMAIN, lambda: int(clock.now().timestamp()))
        self._pod_counts: dict[str, int] = {}
        """The number of Pods in each namespace that has one."""
        services.add_handler(self._zone.service_changed)
        slices.add_handler(self._zone.slice_changed)
        pods.add_handler(self._pod_changed)

    def query(self, name: str, kind: str) -> list[DnsRecord] | None:
        """Return the records of an absolute name; None if there is no such name, empty if it has none of this kind."""
        try:
            asked = parse_name(name)
        except DnsFormatError:
            return None
        found = self._zone.answer(asked, _TYPES.get(kind, 0))
        if found is None or (found.rcode == NXDOMAIN and not found.answers):
            return None
        return [DnsRecord(_text(each.name), _TYPE_NAMES[each.type], _value(each)) for each in found.answers]

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if (old is None) == (new is None):
            return
        name = (new or old or {})["metadata"]["namespace"]
        count = self._pod_counts.pop(name, 0) + (1 if old is None else -1)
        namespace = {"metadata": {"name": name}}
        if count:
            self._pod_counts[name] = count
        else:
            self._zone.namespace_changed(namespace, None)
        if old is None and count == 1:
            self._zone.namespace_changed(None, namespace)


def _text(name: Name) -> str:
    return name_text(name).rstrip(".")


def _value(record: Record) -> str:
    """Return the data of a record as `dig` prints it, except that the target of a CNAME record has no trailing dot."""
    numbers = " ".join(_of_octets(record.type, each) for each in record.data if isinstance(each, bytes))
    target = " ".join(_text(each) for each in record.data if isinstance(each, tuple))
    return f"{numbers} {target}".strip() + ("." if record.type in (PTR, SRV) else "")


def _of_octets(kind: int, data: bytes) -> str:
    return " ".join(map(str, unpack("!3H", data))) if kind == SRV else str(ip_address(data))
