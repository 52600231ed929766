"""Fields that each type of Service requires, and those dropped when the type changes. Also used by the allocators."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.strategy import Obj

Spec = dict[str, Any]
NONE_IP = "None"


def externally_accessible(spec: Spec) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def needs_cluster_ip(spec: Spec) -> bool:
    return spec.get("type") != "ExternalName"


def needs_health_check_port(spec: Spec) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def has_node_ports(spec: Spec) -> bool:
    """Return whether the type uses node ports, requested or not."""
    return spec.get("type") in ("NodePort", "LoadBalancer")


def needs_node_ports(spec: Spec) -> bool:
    """Return whether ports without a node port get one."""
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True))


def is_headless(spec: Spec) -> bool:
    return spec.get("clusterIPs") == [NONE_IP]


def node_ports(spec: Spec) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")}


def drop_type_dependent_fields(obj: Obj, old: Obj) -> None:
    """Drop fields that the new type cannot have, unless the user changed them together with the type."""
    spec, old_spec = obj.setdefault("spec", {}), old.get("spec") or {}

    def same(name: str) -> bool:
        return bool(spec.get(name) == old_spec.get(name))

    def drop(*names: str) -> None:
        for name in names:
            spec.pop(name, None)

    if needs_cluster_ip(old_spec) and not needs_cluster_ip(spec):
        if same("clusterIP") and same("clusterIPs"):
            drop("clusterIP", "clusterIPs")
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if same(name):
                drop(name)
    if has_node_ports(old_spec) and not has_node_ports(spec) and node_ports(spec) <= node_ports(old_spec):
        for port in spec.get("ports", ()):
            port.pop("nodePort", None)
    if needs_health_check_port(old_spec) and not needs_health_check_port(spec) and same("healthCheckNodePort"):
        drop("healthCheckNodePort")
    if old_spec.get("type") == "LoadBalancer" != spec.get("type"):
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if same(name):
                drop(name)
    if externally_accessible(old_spec) and not externally_accessible(spec) and same("externalTrafficPolicy"):
        drop("externalTrafficPolicy")
    if spec.get("type") != "LoadBalancer":
        obj["status"] = {**(obj.get("status") or {}), "loadBalancer": {}}
