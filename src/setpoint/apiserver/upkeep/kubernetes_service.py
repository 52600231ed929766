"""The server's own address inside the cluster: the ServiceCIDR and Service `kubernetes` and the endpoints behind it."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple

from setpoint.apiserver.own_writes import apply_status, current, delete, ensure, update
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.times import format_time

EVERY = 10.0
NAME = "kubernetes"
_CIDR_MANAGER = "kubernetes-service-cidr-controller"
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
_NETWORKING, _DISCOVERY = "networking.k8s.io", "discovery.k8s.io"


class OwnAddress(NamedTuple):
    """Where this server is reached, and the ranges that Services live in."""

    ip: str
    """Empty: nobody but this machine can reach it, and it has no endpoints."""
    port: int
    cidrs: Sequence[str]

    @property
    def service_ip(self) -> str:
        return str(ip_network(self.cidrs[0]).network_address + 1)


async def ensure_service_cidr(api: ApiServer, own: OwnAddress) -> None:
    entry = current(api, _NETWORKING, "servicecidrs", "", NAME)
    cidrs = list(own.cidrs)
    if entry is None:
        obj = {"metadata": {"name": NAME}, "spec": {"cidrs": cidrs}}
        entry = await ensure(api, _NETWORKING, "servicecidrs", obj)
    known = entry.obj["spec"].get("cidrs") or []
    if len(cidrs) == 2 and known == cidrs[:1]:
        # A cluster that gains its second family.
        await update(api, _NETWORKING, "servicecidrs", "", NAME, lambda obj: obj["spec"].update(cidrs=cidrs))
        return
    ready: Obj = next((c for c in (entry.obj.get("status") or {}).get("conditions") or () if c["type"] == "Ready"), {})
    # Whoever set it to False had a reason, and a range that is not ours is not ours to judge.
    if entry.obj["metadata"].get("deletionTimestamp") or known != cidrs or ready.get("status") in ("True", "False"):
        return
    condition = {
        "type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": format_time(api.clock.now()),
    }  # fmt: skip
    await apply_status(api, _NETWORKING, "servicecidrs", NAME, {"conditions": [condition]}, _CIDR_MANAGER)


async def ensure_kubernetes_service(api: ApiServer, own: OwnAddress) -> None:
    """Only made when missing: what an administrator changes on it stays."""
    spec: Obj = {
        "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": own.port}],
        "clusterIP": own.service_ip,
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    labels = {"component": "apiserver", "provider": "kubernetes"}
    meta = {"name": NAME, "namespace": "default"}
    await ensure(api, "", "services", {"metadata": {**meta, "labels": labels}, "spec": spec})


async def ensure_endpoints(api: ApiServer, own: OwnAddress) -> None:
    meta: Obj = {"name": NAME, "namespace": "default"}
    port = {"name": "https", "port": own.port, "protocol": "TCP"}
    subsets = [{"addresses": [{"ip": own.ip}], "ports": [port]}]
    entry = await ensure(
        api, "", "endpoints", {"metadata": {**meta, "labels": {_SKIP_MIRROR: "true"}}, "subsets": subsets}
    )
    found = entry.obj.get("subsets") or []
    labels = entry.obj["metadata"].get("labels") or {}
    if found != subsets or labels.get(_SKIP_MIRROR) != "true":

        def reset(obj: Obj) -> None:
            obj["metadata"].setdefault("labels", {})[_SKIP_MIRROR] = "true"
            obj["subsets"] = [{"addresses": [{"ip": own.ip}], "ports": [dict(port)]}]

        await update(api, "", "endpoints", "default", NAME, reset)
    await _ensure_slice(api, own, meta, port)


async def _ensure_slice(api: ApiServer, own: OwnAddress, meta: Obj, port: Obj) -> None:
    wanted: Obj = {
        "metadata": {**meta, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv6" if ":" in own.ip else "IPv4",
        "endpoints": [{"addresses": [own.ip], "conditions": {"ready": True}}],
        "ports": [port],
    }
    entry = await ensure(api, _DISCOVERY, "endpointslices", wanted)
    if entry.obj.get("addressType") != wanted["addressType"]:
        await delete(api, _DISCOVERY, "endpointslices", entry)
        entry = await ensure(api, _DISCOVERY, "endpointslices", wanted)
    same = all(entry.obj.get(name) == wanted[name] for name in ("endpoints", "ports"))
    if same and entry.obj["metadata"].get("labels") == wanted["metadata"]["labels"]:
        return

    def reset(obj: Obj) -> None:
        obj["metadata"]["labels"] = dict(wanted["metadata"]["labels"])
        obj.update(endpoints=wanted["endpoints"], ports=wanted["ports"])

    await update(api, _DISCOVERY, "endpointslices", "default", NAME, reset)


async def ensure_own_address(api: ApiServer, own: OwnAddress) -> None:
    await ensure_service_cidr(api, own)
    await ensure_kubernetes_service(api, own)
    if own.ip:
        await ensure_endpoints(api, own)
