"""Cluster IPs and IP families of a Service: everything about them that can be decided without allocating.

The allocator calls, for a create: `normalize_cluster_ips`, `init_ip_families`, then allocates what
`missing_cluster_ips` names. For an update: `patch_allocated_values`, `normalize_cluster_ips`, `init_ip_families`, then
the same, and after the write gives back `released_cluster_ips`. All of that comes before the strategy's own hooks.
Functions change `obj` in place and never `old`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from setpoint.kinds.core.addresses import is_ipv6, parse_sloppy
from setpoint.kinds.core.service_validation import (
    NONE_IP,
    is_headless,
    needs_cluster_ip,
    needs_health_check_port,
    needs_node_ports,
    node_ports,
    validate_cluster_ip_fields,
)
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objects import Obj

_OTHER = {"IPv4": "IPv6", "IPv6": "IPv4"}


class Request(NamedTuple):
    position: int
    """Index in `clusterIPs`."""
    family: str
    ip: str
    """Requested address; empty means any."""


def normalize_cluster_ips(obj: Obj, old: Obj | None) -> None:
    """Make `clusterIP` the first of `clusterIPs`, also for clients that know only the single field."""
    spec = obj.setdefault("spec", {})
    single, several = spec.get("clusterIP", ""), spec.get("clusterIPs", [])
    if old is None:
        if single and not several:
            spec["clusterIPs"] = [single]
        return
    old_spec = old.get("spec") or {}
    old_single, old_several = old_spec.get("clusterIP", ""), old_spec.get("clusterIPs", [])
    if old_several and not several and old_single == single:
        spec["clusterIPs"] = several = list(old_several)
    if old_single != single and several == old_several:
        if old_single and not single:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [single]


def patch_allocated_values(obj: Obj, old: Obj) -> None:
    """Copy allocated values from `old`, so that applying the same manifest again changes nothing."""
    spec, old_spec = obj.setdefault("spec", {}), old.get("spec") or {}
    if needs_cluster_ip(old_spec) and needs_cluster_ip(spec):
        if not spec.get("clusterIP") and old_spec.get("clusterIP"):
            spec["clusterIP"] = old_spec["clusterIP"]
        if not spec.get("clusterIPs") and old_spec.get("clusterIPs"):
            spec["clusterIPs"] = list(old_spec["clusterIPs"])
    if needs_node_ports(old_spec) and needs_node_ports(spec):
        unchanged = node_ports(old_spec) & node_ports(spec)
        known = {port.get("name", ""): port.get("nodePort", 0) for port in old_spec.get("ports", ())}
        for port in spec.get("ports", ()):
            if not port.get("nodePort"):
                before = known.get(port.get("name", ""), 0)
                if before and before not in unchanged:
                    port["nodePort"] = before
    if needs_health_check_port(old_spec) and needs_health_check_port(spec):
        if not spec.get("healthCheckNodePort") and old_spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = old_spec["healthCheckNodePort"]


def _retains_dual_stack_preference(spec: Obj, old: Obj) -> bool:
    """Return whether to keep the families of a service that only prefers two, when the cluster's families changed."""
    return (
        spec.get("ipFamilyPolicy") == "PreferDualStack" == old.get("ipFamilyPolicy", "PreferDualStack")
        and spec.get("type") == old.get("type")
        and spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer")
        and spec.get("clusterIPs", []) == old.get("clusterIPs", [])
        and spec.get("ipFamilies", []) == old.get("ipFamilies", [])
    )


def init_ip_families(obj: Obj, old: Obj | None, families: Sequence[str]) -> Errors:
    """Fill `ipFamilyPolicy` and `ipFamilies`; return the errors, which are then the only ones of the request.

    `families` are the IP families of the cluster (`IPv4`, `IPv6`), its default first."""
    spec = obj.setdefault("spec", {})
    old_spec = None if old is None else old.get("spec") or {}
    if not needs_cluster_ip(spec) or (old_spec is not None and _retains_dual_stack_preference(spec, old_spec)):
        return []
    headless_without_selector = spec.get("clusterIP") == NONE_IP and not spec.get("selector")
    if "ipFamilyPolicy" not in spec:
        if old_spec is not None and "ipFamilyPolicy" in old_spec:
            spec["ipFamilyPolicy"] = old_spec["ipFamilyPolicy"]
        else:
            spec["ipFamilyPolicy"] = "RequireDualStack" if headless_without_selector else "SingleStack"
    errs: Errors = []
    validate_cluster_ip_fields(spec, old_spec, errs)
    if errs:
        return errs
    if old_spec is not None:
        _shrink(spec, old_spec, errs)
    _check_policy(spec, errs)
    _infer_families(spec, families, errs)
    if errs:
        return errs
    if headless_without_selector:
        _add_families(spec, families[0], both=True)
        return errs
    if spec["ipFamilyPolicy"] == "RequireDualStack" and len(families) < 2:
        text = "this cluster is not configured for dual-stack services"
        errs.append(invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], text))
    for i, family in enumerate(spec.get("ipFamilies", ())):
        if family not in families:
            errs.append(invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster"))
    if not errs:
        _add_families(spec, families[0], both=len(families) == 2)
    return errs


def _shrink(spec: Obj, old: Obj, errs: Errors) -> None:
    for name, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        values, before = spec.get(name, []), old.get(name, [])
        if spec["ipFamilyPolicy"] == "SingleStack":
            # As long as the lists are unchanged, the policy is unambiguous.
            if values == before and len(values) > 1:
                spec[name] = values[:1]
        elif values and len(values) < len(before):
            text = f"must be 'SingleStack' to release the secondary {what}"
            errs.append(invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], text))


def _check_policy(spec: Obj, errs: Errors) -> None:
    if spec["ipFamilyPolicy"] == "SingleStack":
        for name, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
            if len(spec.get(name, ())) == 2:
                text = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                errs.append(invalid("spec.ipFamilyPolicy", "SingleStack", text))


def _infer_families(spec: Obj, families: Sequence[str], errs: Errors) -> None:
    known = list(spec.get("ipFamilies", ()))
    for i, ip in enumerate(spec.get("clusterIPs", ())):
        if ip == NONE_IP:
            break
        family = _family_of(ip)
        if i >= len(known):
            if family not in families:
                text = f"{family} is not configured on this cluster"
                errs.append(invalid(f"spec.clusterIPs[{i}]", spec["clusterIPs"], text))
            else:
                known.append(family)
                spec["ipFamilies"] = list(known)


def _add_families(spec: Obj, default: str, both: bool) -> None:
    families = spec.get("ipFamilies") or [default]
    if both and len(families) == 1 and spec["ipFamilyPolicy"] != "SingleStack":
        families = [*families, _OTHER[families[0]]]
    spec["ipFamilies"] = families


def _family_of(ip: str) -> str:
    parsed = parse_sloppy(ip)
    return "unknown" if parsed is None else f"IPv{parsed.version}"


def missing_cluster_ips(obj: Obj, old: Obj | None) -> list[Request]:
    """Return the addresses that must be allocated before the object is written."""
    spec = obj.get("spec") or {}
    old_spec = None if old is None else old.get("spec") or {}
    if not needs_cluster_ip(spec):
        return []
    ips, families = spec.get("clusterIPs", []), spec.get("ipFamilies", [])
    requests = [Request(i, family, ips[i] if i < len(ips) else "") for i, family in enumerate(families)]
    if old_spec is None or not needs_cluster_ip(old_spec):
        return [] if ips[:1] == [NONE_IP] else requests
    if old_spec.get("clusterIPs", [])[:1] == [NONE_IP] or _retains_dual_stack_preference(spec, old_spec):
        return []
    upgraded = len(old_spec.get("ipFamilies", ())) == 1 and len(families) == 2
    return requests[1:] if upgraded else []


def released_cluster_ips(obj: Obj, old: Obj) -> list[str]:
    """Return the addresses to release once the update is written."""
    spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
    ips = list(old_spec.get("clusterIPs", ()))
    if not needs_cluster_ip(old_spec) or is_headless(old_spec) or _retains_dual_stack_preference(spec, old_spec):
        return []
    if not needs_cluster_ip(spec):
        return ips
    downgraded = len(old_spec.get("ipFamilies", ())) == 2 and len(spec.get("ipFamilies", ())) == 1
    return ips[1:] if downgraded else []


def default_on_read(obj: Obj, default_family: str) -> None:
    """Fill in `clusterIPs` and `ipFamilies` of services stored before these fields existed."""
    normalize_cluster_ips(obj, None)
    spec = obj["spec"]
    if not needs_cluster_ip(spec):
        spec.pop("internalTrafficPolicy", None)
        return
    if spec.get("ipFamilies"):
        return
    if spec.get("clusterIP") == NONE_IP:
        both = not spec.get("selector")
        families = [default_family, _OTHER[default_family]] if both else [default_family]
    else:
        families = ["IPv6" if is_ipv6(ip) else "IPv4" for ip in spec.get("clusterIPs", ())]
    if families:
        spec["ipFamilies"] = families
        spec["ipFamilyPolicy"] = "SingleStack" if len(families) == 1 else "RequireDualStack"
