"""Service: one stable address for many Pods. Addresses and node ports are allocated elsewhere."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.cell_texts import NONE, UNKNOWN, labels_text
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.addresses import cidr_warnings, ip_warnings
from setpoint.kinds.core.service_validation import (
    NONE_IP,
    TOPOLOGY_HINTS,
    TOPOLOGY_MODE,
    drop_type_dependent_fields,
    externally_accessible,
    validate_load_balancer_status,
    validate_service,
    validate_service_change,
)
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors
from setpoint.meta.names import dns1123_label
from setpoint.meta.objects import Obj


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _annotations(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _type(obj: Obj, now: datetime) -> str:
    return str(_spec(obj).get("type", ""))


def _cluster_ip(obj: Obj, now: datetime) -> str:
    ips = _spec(obj).get("clusterIPs")
    return ips[0] if ips else NONE


def _balancer_ips(obj: Obj) -> str:
    ingress = (obj.get("status") or {}).get("loadBalancer", {}).get("ingress", ())
    return ",".join(sorted({point.get("ip") or point.get("hostname", "") for point in ingress} - {""}))


def _external_ip(obj: Obj, now: datetime) -> str:
    spec = _spec(obj)
    kind, external = spec.get("type"), spec.get("externalIPs", [])
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(external) or NONE
    if kind == "LoadBalancer":
        return ",".join([ip for ip in (_balancer_ips(obj),) if ip] + external) or "<pending>"
    return str(spec.get("externalName", "")) if kind == "ExternalName" else UNKNOWN


def _ports(obj: Obj, now: datetime) -> str:
    pieces = []
    for port in _spec(obj).get("ports", ()):
        node = f":{port['nodePort']}" if port.get("nodePort", 0) > 0 else ""
        pieces.append(f"{port.get('port', 0)}{node}/{port.get('protocol', '')}")
    return ",".join(pieces) or NONE


class ServiceStrategy(Strategy):
    columns = (
        NAME,
        Column("Type", _type, description="How the service is reached."),
        Column("Cluster-IP", _cluster_ip, description="Address inside the cluster."),
        Column("External-IP", _external_ip, description="Addresses outside the cluster."),
        Column("Port(s)", _ports, description="Ports that are served."),
        AGE,
        Column(
            "Selector",
            lambda obj, now: labels_text(_spec(obj).get("selector")),
            priority=1,
            description="Labels of the Pods behind it.",
        ),
    )
    field_labels = Strategy.field_labels | {"spec.clusterIP", "spec.type"}
    allow_create_on_update = True
    has_status = True
    returns_deleted = True

    def __init__(self) -> None:
        self.subresources = {"status": ServiceStatusStrategy(self)}

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return dns1123_label(name.rstrip("-") if prefix else name)

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        affinity = spec.get("sessionAffinity")
        if not affinity:
            affinity = spec["sessionAffinity"] = "None"
        if affinity == "None":
            spec.pop("sessionAffinityConfig", None)
        elif affinity == "ClientIP":
            if "timeoutSeconds" not in ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}):
                spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
        kind = spec.get("type")
        if not kind:
            kind = spec["type"] = "ClusterIP"
        for port in spec.get("ports", ()):
            if not port.get("protocol"):
                port["protocol"] = "TCP"
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port", 0)
        if not spec.get("externalTrafficPolicy") and externally_accessible(spec):
            spec["externalTrafficPolicy"] = "Cluster"
        if "internalTrafficPolicy" not in spec and kind in ("NodePort", "LoadBalancer", "ClusterIP"):
            spec["internalTrafficPolicy"] = "Cluster"
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            for point in (obj.get("status") or {}).get("loadBalancer", {}).get("ingress", ()):
                if point.get("ip"):
                    point.setdefault("ipMode", "VIP")

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        _drop_unused_policy(_spec(obj))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_service(_spec(obj), None, _annotations(obj), {}, errs)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_type_dependent_fields(obj, old)
        _drop_unused_policy(_spec(obj))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_service_change(_spec(obj), _spec(old), errs)
        validate_service(_spec(obj), _spec(old), _annotations(obj), _annotations(old), errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        spec = _spec(obj)
        kind, ips, external = spec.get("type"), spec.get("clusterIPs", ()), spec.get("externalIPs", ())
        headless = kind == "ClusterIP" and spec.get("clusterIP") == NONE_IP
        warnings = []
        if TOPOLOGY_HINTS in _annotations(obj):
            warnings.append(f"annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead")
        if spec.get("clusterIP") and spec["clusterIP"] != NONE_IP:
            for i, ip in enumerate(ips):
                warnings += ip_warnings(ip, f"spec.clusterIPs[{i}]")
        if headless:
            if spec.get("loadBalancerIP"):
                warnings.append("spec.loadBalancerIP is ignored for headless services")
            if external:
                warnings.append("spec.externalIPs is ignored for headless services")
            if spec.get("sessionAffinity") != "None":
                warnings.append("spec.SessionAffinity is ignored for headless services")
        for i, ip in enumerate(external):
            warnings += ip_warnings(ip, f"spec.externalIPs[{i}]")
        if external and not headless and kind != "ExternalName":
            warnings.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
        if spec.get("loadBalancerIP"):
            warnings += ip_warnings(spec["loadBalancerIP"], "spec.loadBalancerIP")
        for i, cidr in enumerate(spec.get("loadBalancerSourceRanges", ())):
            warnings += cidr_warnings(cidr, f"spec.loadBalancerSourceRanges[{i}]")
        if kind == "ExternalName" and external:
            warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
        if kind != "ExternalName" and spec.get("externalName"):
            warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
        if spec.get("trafficDistribution") == "PreferClose":
            warnings.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
        return warnings

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        spec = _spec(obj)
        return {"spec.clusterIP": spec.get("clusterIP", ""), "spec.type": spec.get("type", "")}


def _drop_unused_policy(spec: Obj) -> None:
    """Drop the internal traffic policy of an external name; upstream hides a valid one on every read."""
    if spec.get("type") == "ExternalName" and spec.get("internalTrafficPolicy") in ("Cluster", "Local"):
        del spec["internalTrafficPolicy"]


class ServiceStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = (obj.get("status") or {}).get("loadBalancer") or {}
        before = (old.get("status") or {}).get("loadBalancer") or {}
        validate_load_balancer_status(status, before, _spec(obj).get("type", ""), "status.loadBalancer", errs)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        warnings = []
        for i, point in enumerate((obj.get("status") or {}).get("loadBalancer", {}).get("ingress", ())):
            if point.get("ip"):
                warnings += ip_warnings(point["ip"], f"status.loadBalancer.ingress[{i}]")
        return warnings


STRATEGY = ServiceStrategy()
