"""Rules for a Service's spec and status, and which fields each type of Service requires or drops."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.kinds.core.addresses import (
    is_ipv6,
    parse_sloppy,
    validate_cidr,
    validate_endpoint_ip,
    validate_ip,
)
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required
from setpoint.meta.names import (
    dns1123_label,
    dns1123_subdomain,
    port_name,
    port_number,
    qualified_name,
)
from setpoint.meta.objectmeta import validate_labels
from setpoint.meta.objects import Obj, ObjView

NONE_IP = "None"


def externally_accessible(spec: Obj) -> bool:
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def needs_cluster_ip(spec: Obj) -> bool:
    return spec.get("type") != "ExternalName"


def needs_health_check_port(spec: Obj) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def has_node_ports(spec: Obj) -> bool:
    """Return whether the type uses node ports, requested or not."""
    return spec.get("type") in ("NodePort", "LoadBalancer")


def needs_node_ports(spec: Obj) -> bool:
    """Return whether ports without a node port get one."""
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True))


def is_headless(spec: Obj) -> bool:
    return spec.get("clusterIPs") == [NONE_IP]


def node_ports(spec: Obj) -> set[int]:
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


TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
PROTOCOLS = ("SCTP", "TCP", "UDP")
_SCOPES = ("Cluster", "Local")
_ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"
_FIXED = "may not change once set"


def validate_service(
    spec: Obj, old: Obj | None, annotations: Mapping[str, str], old_annotations: Mapping[str, str], errs: Errors
) -> None:
    """Validate a service; values in the `old` spec may stay even if rules have become stricter."""
    hints, mode = annotations.get(TOPOLOGY_HINTS), annotations.get(TOPOLOGY_MODE)
    if hints is not None and mode is not None and hints != mode:
        text = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
        errs.append(invalid(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, text))
    kind = spec.get("type", "")
    ports = spec.get("ports") or []
    if not ports and not is_headless(spec) and kind != "ExternalName":
        errs.append(required("spec.ports"))
    if kind in ("LoadBalancer", "NodePort"):
        if is_headless(spec):
            errs.append(invalid("spec.clusterIPs[0]", NONE_IP, f"may not be set to 'None' for {kind} services"))
    elif kind == "ExternalName":
        _validate_external_name(spec, errs)
    names: set[str] = set()
    for i, port in enumerate(ports):
        _validate_port(port, f"spec.ports[{i}]", len(ports) > 1, names, errs)
    validate_labels(spec.get("selector"), "spec.selector", errs)
    _validate_affinity(spec, errs)
    validate_cluster_ip_fields(spec, old, errs)
    existing = (old or {}).get("externalIPs", ())
    for i, ip in enumerate(spec.get("externalIPs", ())):
        before = len(errs)
        validate_ip(ip, f"spec.externalIPs[{i}]", errs, existing)
        if len(errs) == before:
            validate_endpoint_ip(ip, f"spec.externalIPs[{i}]", errs)
    if not kind:
        errs.append(required("spec.type"))
    elif kind not in _TYPES:
        errs.append(not_supported("spec.type", kind, _TYPES))
    _validate_port_uniqueness(kind, ports, errs)
    _validate_source_ranges(spec, old, annotations, old_annotations, errs)
    _validate_load_balancer_fields(spec, errs)
    _validate_traffic_policies(spec, errs)


def _validate_external_name(spec: Obj, errs: Errors) -> None:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            errs.append(forbidden(f"spec.{name}", "may not be set for ExternalName services"))
    name = spec.get("externalName", "").removesuffix(".")  # A trailing dot makes the name fully qualified.
    if not name:
        errs.append(required("spec.externalName"))
    for text in dns1123_subdomain(name) if name else ():
        errs.append(invalid("spec.externalName", name, text))


def _validate_port(port: Obj, path: str, require_name: bool, names: set[str], errs: Errors) -> None:
    name = port.get("name", "")
    if name:
        for text in dns1123_label(name):
            errs.append(invalid(f"{path}.name", name, text))
        if name in names:
            errs.append(duplicate(f"{path}.name", name))
        names.add(name)
    elif require_name:
        errs.append(required(f"{path}.name"))
    for text in port_number(port.get("port", 0)):
        errs.append(invalid(f"{path}.port", port.get("port", 0), text))
    validate_protocol(port, path, errs)
    target = port.get("targetPort", 0)
    for text in port_number(target) if isinstance(target, int) else port_name(target):
        errs.append(invalid(f"{path}.targetPort", target, text))
    validate_app_protocol(port, path, errs)


def validate_protocol(port: ObjView, path: str, errs: Errors) -> None:
    if not port.get("protocol"):
        errs.append(required(f"{path}.protocol"))
    elif port["protocol"] not in PROTOCOLS:
        errs.append(not_supported(f"{path}.protocol", port["protocol"], PROTOCOLS))


def validate_app_protocol(port: ObjView, path: str, errs: Errors) -> None:
    protocol = port.get("appProtocol")
    for text in qualified_name(protocol) if protocol is not None else ():
        errs.append(invalid(f"{path}.appProtocol", protocol, text))


def _validate_affinity(spec: Obj, errs: Errors) -> None:
    affinity = spec.get("sessionAffinity", "")
    config = spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    if not affinity:
        errs.append(required("spec.sessionAffinity"))
    elif affinity not in ("ClientIP", "None"):
        errs.append(not_supported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
    if affinity == "None" and config is not None:
        errs.append(forbidden(path, "must not be set when session affinity is None"))
    if affinity != "ClientIP":
        return
    why = "when session affinity type is ClientIP"
    if config is None:
        errs.append(required(path, why))
    elif "clientIP" not in config:
        errs.append(required(f"{path}.clientIP", why))
    elif "timeoutSeconds" not in config["clientIP"]:
        errs.append(required(f"{path}.clientIP.timeoutSeconds", why))
    elif not 0 < config["clientIP"]["timeoutSeconds"] <= 86400:
        text = "must be greater than 0 and less than 86400"
        errs.append(invalid(f"{path}.clientIP.timeoutSeconds", config["clientIP"]["timeoutSeconds"], text))


def validate_cluster_ip_fields(spec: Obj, old: Obj | None, errs: Errors) -> None:
    """Validate that `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` agree."""
    if not needs_cluster_ip(spec):
        return
    single, ips, families = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], spec.get("ipFamilies") or []
    path = "spec.clusterIPs"
    if single:
        if not ips:
            errs.append(required(path))
        elif ips[0] != single:
            errs.append(invalid(path, ips, "first value must match `clusterIP`"))
    elif ips:
        errs.append(invalid(path, ips, "must be empty when `clusterIP` is not specified"))
    for i, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            errs.append(not_supported(f"spec.ipFamilies[{i}]", family, ("IPv4", "IPv6")))
        if family in families[:i]:
            errs.append(duplicate(f"spec.ipFamilies[{i}]", family))
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _FAMILY_POLICIES:
        errs.append(not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES))
    before = len(errs)
    for i, ip in enumerate(ips):
        if i == 0 and ip == NONE_IP:
            if len(ips) > 1:
                errs.append(invalid(path, ips, "'None' must be the first and only value"))
        else:
            validate_ip(ip, f"{path}[{i}]", errs, (old or {}).get("clusterIPs", ()))
    bad = len(errs) > before
    if len(ips) > 2:
        errs.append(invalid(path, ips, "may only hold up to 2 values"))
    if bad:
        return
    if len(ips) > 1 and len({is_ipv6(ip) for ip in ips}) != 2:
        errs.append(invalid(path, ips, "may specify no more than one IP for each IP family"))
    if is_headless(spec):
        return
    for i, (ip, family) in enumerate(zip(ips, families)):
        if family in ("IPv4", "IPv6") and is_ipv6(ip) != (family == "IPv6"):
            text = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
            errs.append(invalid(f"{path}[{i}]", ip, text))


def _validate_port_uniqueness(kind: str, ports: list[Obj], errs: Errors) -> None:
    if kind == "ClusterIP":
        for i, port in enumerate(ports):
            if port.get("nodePort"):
                text = "may not be used when `type` is 'ClusterIP'"
                errs.append(forbidden(f"spec.ports[{i}].nodePort", text))
    seen: set[tuple[str, int]] = set()
    for i, port in enumerate(ports):
        if not port.get("nodePort"):
            continue
        key = port.get("protocol", ""), port["nodePort"]
        if key in seen:
            errs.append(duplicate(f"spec.ports[{i}].nodePort", port["nodePort"]))
        seen.add(key)
    seen = set()
    for i, port in enumerate(ports):
        key = port.get("protocol", ""), port.get("port", 0)
        if key in seen:
            shown = {
                "Name": "",
                "Protocol": key[0],
                "AppProtocol": None,
                "Port": key[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            errs.append(duplicate(f"spec.ports[{i}]", shown))
        seen.add(key)


def _validate_source_ranges(
    spec: Obj, old: Obj | None, annotations: Mapping[str, str], old_annotations: Mapping[str, str], errs: Errors
) -> None:
    ranges = spec.get("loadBalancerSourceRanges")
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        if spec.get("type") != "LoadBalancer":
            errs.append(forbidden(path, _ONLY_LOAD_BALANCER))
        existing = {value.strip() for value in (old or {}).get("loadBalancerSourceRanges", ())}
        for i, value in enumerate(ranges):
            validate_cidr(value.strip(), f"{path}[{i}]", errs, existing)
    elif _SOURCE_RANGES in annotations:
        path = f"metadata.annotations[{_SOURCE_RANGES}]"
        text = annotations[_SOURCE_RANGES]
        if spec.get("type") != "LoadBalancer":
            errs.append(forbidden(path, _ONLY_LOAD_BALANCER))
        if text.strip() and (old is None or old_annotations.get(_SOURCE_RANGES, "") != text):
            for value in text.strip().split(","):
                validate_cidr(value.strip(), path, errs)


def _validate_load_balancer_fields(spec: Obj, errs: Errors) -> None:
    balanced = spec.get("type") == "LoadBalancer"
    if "allocateLoadBalancerNodePorts" in spec and not balanced:
        errs.append(forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_LOAD_BALANCER))
    if balanced and "allocateLoadBalancerNodePorts" not in spec:
        errs.append(required("allocateLoadBalancerNodePorts"))
    _validate_load_balancer_class(spec, errs)


def _validate_load_balancer_class(spec: Obj, errs: Errors) -> None:
    name = spec.get("loadBalancerClass")
    if name is None:
        return
    if spec.get("type") != "LoadBalancer":
        errs.append(forbidden("spec.loadBalancerClass", _ONLY_LOAD_BALANCER))
        return
    for text in qualified_name(name):
        errs.append(invalid("spec.loadBalancerClass", name, text))


def _validate_traffic_policies(spec: Obj, errs: Errors) -> None:
    external = spec.get("externalTrafficPolicy", "")
    if not externally_accessible(spec):
        if external:
            text = "may only be set for externally-accessible services"
            errs.append(invalid("spec.externalTrafficPolicy", external, text))
    elif not external:
        errs.append(required("spec.externalTrafficPolicy"))
    elif external not in _SCOPES:
        errs.append(not_supported("spec.externalTrafficPolicy", external, _SCOPES))
    port = spec.get("healthCheckNodePort", 0)
    if not needs_health_check_port(spec):
        if port:
            text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errs.append(invalid("spec.healthCheckNodePort", port, text))
    elif not port:
        errs.append(required("spec.healthCheckNodePort"))
    else:
        for text in port_number(port):
            errs.append(invalid("spec.healthCheckNodePort", port, text))
    internal = spec.get("internalTrafficPolicy")
    if internal is None:
        if spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
            errs.append(required("spec.internalTrafficPolicy"))
    elif internal not in _SCOPES:
        errs.append(not_supported("spec.internalTrafficPolicy", internal, _SCOPES))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _TRAFFIC_DISTRIBUTIONS:
        errs.append(not_supported("spec.trafficDistribution", distribution, _TRAFFIC_DISTRIBUTIONS))


def validate_service_change(spec: Obj, old: Obj, errs: Errors) -> None:
    """Validate that the first family stays; a second one may be added or removed."""
    if needs_cluster_ip(spec) and needs_cluster_ip(old):
        headless, was_headless = is_headless(spec), is_headless(old)
        if not (headless and was_headless):
            _validate_list_change(spec, old, "clusterIPs", errs)
        if not headless and not was_headless:
            _validate_list_change(spec, old, "ipFamilies", errs)
    if spec.get("type") == "LoadBalancer" == old.get("type"):
        name = spec.get("loadBalancerClass")
        if name != old.get("loadBalancerClass"):
            errs.append(invalid("spec.loadBalancerClass", name, _FIXED))
    _validate_load_balancer_class(spec, errs)
    if needs_health_check_port(spec) and needs_health_check_port(old):
        if spec.get("healthCheckNodePort", 0) != old.get("healthCheckNodePort", 0):
            errs.append(forbidden("spec.healthCheckNodePort", "field is immutable"))


def _validate_list_change(spec: Obj, old: Obj, name: str, errs: Errors) -> None:
    values, before = spec.get(name) or [], old.get(name) or []
    ips = spec.get("clusterIPs")
    what = "clusterIP" if name == "clusterIPs" else "ipFamily"
    if len(values) == len(before):
        for i, value in enumerate(before):
            if value != values[i]:
                # Upstream always reports the first family, and the address that changed.
                errs.append(invalid(f"spec.{name}[{i if name == 'clusterIPs' else 0}]", values, _FIXED))
        return
    if len(before) > len(values) and not ips:
        errs.append(invalid(f"spec.{name}[0]", values or None, f"primary {what} can not be unset"))
    if before and values and values[0] != before[0]:
        errs.append(invalid(f"spec.{name}[0]", ips, _FIXED))
    if len(before) > len(values) == 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        text = f"must be set to 'SingleStack' when releasing the secondary {what}"
        errs.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), text))


def validate_load_balancer_status(status: ObjView, old: ObjView, kind: str, path: str, errs: Errors) -> None:
    """Validate the status; `kind` is the type of the Service, and an Ingress has its own rules."""
    ingress = status.get("ingress") or []
    if kind != "LoadBalancer":
        if ingress:
            errs.append(forbidden(f"{path}.ingress", "may only be used when `spec.type` is 'LoadBalancer'"))
        return
    existing = {point["ip"] for point in old.get("ingress", ()) if point.get("ip")}
    for i, point in enumerate(ingress):
        at = f"{path}.ingress[{i}]"
        ip, mode, hostname = point.get("ip", ""), point.get("ipMode"), point.get("hostname", "")
        if ip:
            validate_ip(ip, f"{at}.ip", errs, existing)
        if mode is None:
            if ip:
                errs.append(required(f"{at}.ipMode", "must be specified when `ip` is set"))
        elif not ip:
            errs.append(forbidden(f"{at}.ipMode", "may not be specified when `ip` is not set"))
        elif mode not in ("Proxy", "VIP"):
            errs.append(not_supported(f"{at}.ipMode", mode, ("Proxy", "VIP")))
        if hostname:
            for text in dns1123_subdomain(hostname):
                errs.append(invalid(f"{at}.hostname", hostname, text))
            if parse_sloppy(hostname) is not None:
                errs.append(invalid(f"{at}.hostname", hostname, "must be a DNS name, not an IP address"))
