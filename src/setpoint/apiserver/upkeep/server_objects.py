"""The objects that a server maintains for itself.

They are the Service `kubernetes` with its ServiceCIDR and endpoints, the system namespaces, and the record of legacy
service account tokens in use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.internal_writes import apply_status, current, delete, ensure, update
from setpoint.apiserver.tokens import LAST_USED
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.kinds.bootstrap.initial_objects import SYSTEM_NAMESPACES
from setpoint.meta.conditions import condition_of
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time, parse_day

OWN_ADDRESS_INTERVAL = 10.0
_KUBERNETES = "kubernetes"
_CIDR_MANAGER = "kubernetes-service-cidr-controller"
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_NETWORKING, _DISCOVERY = "networking.k8s.io", "discovery.k8s.io"
_SERVICE_NAME = "kubernetes.io/service-name"
_OWN_SLICE = re.compile(rf"{_KUBERNETES}-(ipv[46]-)?\d+")
"""The names of EndpointSlices for further ports."""
TOKEN_TRACKING_INTERVAL = 1800.0
_TRACKING_NAME, _TRACKING_NAMESPACE = "kube-apiserver-legacy-service-account-token-tracking", "kube-system"


class ServerAddress(NamedTuple):
    """The address at which an API server can be reached."""

    ip: str
    port: int

    @property
    def family(self) -> str:
        return "IPv6" if ":" in self.ip else "IPv4"

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class OwnAddress(NamedTuple):
    """The address of this server, and the CIDRs of Services."""

    ip: str
    """Address of the server; empty if it can be reached only from this machine, and has no endpoints."""
    port: int
    cidrs: Sequence[str]

    @property
    def server(self) -> ServerAddress:
        return ServerAddress(self.ip, self.port)

    @property
    def service_ip(self) -> str:
        return str(ip_network(self.cidrs[0]).network_address + 1)


async def ensure_service_cidr(api: ApiResources, own: OwnAddress) -> None:
    """Create the default ServiceCIDR, and set its condition Ready."""
    entry = current(api, _NETWORKING, "servicecidrs", "", _KUBERNETES)
    cidrs = list(own.cidrs)
    if entry is None:
        obj = {"metadata": {"name": _KUBERNETES}, "spec": {"cidrs": cidrs}}
        entry = await ensure(api, _NETWORKING, "servicecidrs", obj)
    known = entry.obj["spec"].get("cidrs") or []
    if len(cidrs) == 2 and known == cidrs[:1]:
        # The cluster becomes dual-stack.
        await update(api, _NETWORKING, "servicecidrs", "", _KUBERNETES, lambda obj: obj["spec"].update(cidrs=cidrs))
        return
    ready = condition_of(entry.obj, "Ready") or {}
    # A condition that was set to False is retained, and so are other ranges.
    if entry.obj["metadata"].get("deletionTimestamp") or known != cidrs or ready.get("status") in ("True", "False"):
        return
    condition = {
        "type": "Ready",
        "status": "True",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": format_time(api.clock.now()),
    }
    await apply_status(api, _NETWORKING, "servicecidrs", _KUBERNETES, {"conditions": [condition]}, _CIDR_MANAGER)


async def _ensure_kubernetes_service(api: ApiResources, own: OwnAddress) -> None:
    """Create the Service if it is missing; changes by an administrator are retained."""
    spec: Obj = {
        "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": own.port}],
        "clusterIP": own.service_ip,
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    meta = {"name": _KUBERNETES, "namespace": "default"}
    await ensure(api, "", "services", {"metadata": {**meta, "labels": labels}, "spec": spec})


async def _ensure_endpoints(api: ApiResources, servers: Sequence[ServerAddress]) -> None:
    """Create or reset the Endpoints of the Service, with a subset for each port."""
    ports = sorted({server.port for server in servers})

    def subsets() -> list[Obj]:
        return [
            {"addresses": [{"ip": server.ip} for server in servers if server.port == port], "ports": [_port(port)]}
            for port in ports
        ]

    meta: Obj = {"name": _KUBERNETES, "namespace": "default", "labels": {_SKIP_MIRROR: "true"}}
    entry = await ensure(api, "", "endpoints", {"metadata": meta, "subsets": subsets()})
    found = entry.obj.get("subsets") or []
    labels = entry.obj["metadata"].get("labels") or {}
    if found != subsets() or labels.get(_SKIP_MIRROR) != "true":

        def reset(obj: Obj) -> None:
            obj["metadata"].setdefault("labels", {})[_SKIP_MIRROR] = "true"
            obj["subsets"] = subsets()

        await update(api, "", "endpoints", "default", _KUBERNETES, reset)


async def _ensure_slices(api: ApiResources, servers: Sequence[ServerAddress]) -> None:
    """Create or reset the EndpointSlices of the Service, one for each family of addresses and port, and delete others
    that servers had before.

    The first one has the name of the Service. It is written after the others, and what is obsolete is deleted at the
    end, so that no server is missing in between."""
    groups: dict[tuple[str, int], list[ServerAddress]] = {}
    for server in servers:
        groups.setdefault((server.family, server.port), []).append(server)
    first, *others = sorted(groups)
    names = {first: _KUBERNETES}
    for family, port in others:
        names[family, port] = (
            f"{_KUBERNETES}-{port}" if family == first[0] else f"{_KUBERNETES}-{family.lower()}-{port}"
        )
    for group in (*others, first):
        await _ensure_slice(api, names[group], group[0], groups[group])
    for entry in list(api.registry(_DISCOVERY, "endpointslices").cache.scan("default")):
        name = entry.key.rpartition("/")[2]
        if (
            _OWN_SLICE.fullmatch(name)
            and name not in names.values()
            and (entry.obj["metadata"].get("labels") or {}).get(_SERVICE_NAME) == _KUBERNETES
        ):
            await delete(api, _DISCOVERY, "endpointslices", entry)


async def _ensure_slice(api: ApiResources, name: str, family: str, servers: Sequence[ServerAddress]) -> None:
    wanted: Obj = {
        "metadata": {"name": name, "namespace": "default", "labels": {_SERVICE_NAME: _KUBERNETES}},
        "addressType": family,
        "endpoints": [{"addresses": [server.ip], "conditions": {"ready": True}} for server in servers],
        "ports": [_port(servers[0].port)],
    }
    entry = await ensure(api, _DISCOVERY, "endpointslices", wanted)
    if entry.obj.get("addressType") != wanted["addressType"]:
        await delete(api, _DISCOVERY, "endpointslices", entry)
        entry = await ensure(api, _DISCOVERY, "endpointslices", wanted)
    same = all(entry.obj.get(field) == wanted[field] for field in ("endpoints", "ports"))
    if same and entry.obj["metadata"].get("labels") == wanted["metadata"]["labels"]:
        return

    def reset(obj: Obj) -> None:
        obj["metadata"]["labels"] = dict(wanted["metadata"]["labels"])
        obj.update(endpoints=wanted["endpoints"], ports=wanted["ports"])

    await update(api, _DISCOVERY, "endpointslices", "default", name, reset)


def _port(port: int) -> Obj:
    return {"name": "https", "port": port, "protocol": "TCP"}


async def ensure_own_address(api: ApiResources, own: OwnAddress, servers: Sequence[ServerAddress]) -> None:
    """Ensure the ServiceCIDR, the Service and its endpoints, which are `servers`. If there are none, the endpoints stay
    as they are."""
    await ensure_service_cidr(api, own)
    await _ensure_kubernetes_service(api, own)
    if servers:
        await _ensure_endpoints(api, servers)
        await _ensure_slices(api, servers)


def system_namespaces(api: ApiResources) -> KeyedLoop:
    """Return the loop that recreates deleted system namespaces."""

    async def sync(name: str) -> None:
        await ensure(api, "", "namespaces", {"metadata": {"name": name}})

    def names(entry: Entry) -> list[str]:
        name = entry.obj["metadata"]["name"]
        return [name] if name in SYSTEM_NAMESPACES else []

    loop = KeyedLoop("system namespaces", api.clock, sync)
    loop.follow(api.registry("", "namespaces").cache, names)
    loop.due(*SYSTEM_NAMESPACES)
    return loop


async def ensure_token_tracking(api: ApiResources) -> None:
    """Record since when the use of legacy tokens is tracked."""
    today = api.clock.now().strftime("%Y-%m-%d")
    wanted: Obj = {"metadata": {"name": _TRACKING_NAME, "namespace": _TRACKING_NAMESPACE}, "data": {"since": today}}
    entry = await ensure(api, "", "configmaps", wanted)
    if parse_day((entry.obj.get("data") or {}).get("since", "")) is None:
        await update(
            api,
            "",
            "configmaps",
            _TRACKING_NAMESPACE,
            _TRACKING_NAME,
            lambda obj: obj.setdefault("data", {}).update(since=today),
        )


def token_usage(api: ApiResources) -> KeyedLoop:
    """Return the loop that labels each Secret with the day on which its token was last used."""

    async def mark(key: str) -> None:
        namespace, _, name = key.partition("/")
        today = api.clock.now().strftime("%Y-%m-%d")

        def used(obj: Obj) -> None:
            obj["metadata"].setdefault("labels", {})[LAST_USED] = today

        await update(api, "", "secrets", namespace, name, used)

    return KeyedLoop("token use", api.clock, mark)
