"""Ratcheting of pod specs: rules that the stored spec already breaks and an update may therefore break too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.core.podspec.affinity import PREFERRED, REQUIRED, validate_match_label_keys
from setpoint.kinds.core.podspec.aggregate import is_sidecar
from setpoint.kinds.core.podspec.annotations import has_valid_deletion_cost
from setpoint.kinds.core.podspec.options import CREATE, PodOptions, all_containers
from setpoint.kinds.core.podspec.paths import validate_local_non_reserved_path
from setpoint.kinds.core.podspec.security import host_sysctl_error
from setpoint.kinds.core.resources import is_divisible_by_page, is_huge_page
from setpoint.meta.field import FieldError
from setpoint.meta.names import label_value
from setpoint.meta.objectmeta import validate_label_selector

Item = Mapping[str, Any]


def pod_template_options(old: Item | None) -> PodOptions:
    """Return options for a template that replaces `old`; None: a new one."""
    return pod_options(old) if old else CREATE


def pod_options(old: Item, *, is_pod: bool = False) -> PodOptions:
    """Return the options for an update of `old`, the metadata and spec of the stored Pod or template."""
    spec = old.get("spec") or {}
    private_users = spec.get("hostUsers") is False
    return PodOptions(
        is_pod=is_pod,
        allow_invalid_deletion_cost=not has_valid_deletion_cost((old.get("metadata") or {}).get("annotations")),
        allow_invalid_selector_values="affinity" in spec and _has_bad_pod_affinity(spec["affinity"]),
        allow_indivisible_huge_pages=_has_broken_pages(spec),
        allow_invalid_spread_selector=_has_bad_spread_selector(spec),
        allow_non_local_token_path=_has_bad_token_path(spec),
        allow_host_sysctls=any(
            host_sysctl_error(one.get("name", ""), spec)
            for one in (spec.get("securityContext") or {}).get("sysctls", ())
        ),
        allow_invalid_node_affinity_values="affinity" in spec and _has_bad_node_affinity(spec["affinity"]),
        allow_invalid_match_label_keys=_has_bad_match_label_keys(spec),
        allow_toleration_comparison=any(t.get("operator") in ("Lt", "Gt") for t in spec.get("tolerations", ())),
        allow_user_namespace_host_network=private_users and bool(spec.get("hostNetwork")),
        allow_user_namespace_devices=private_users and any(c.get("volumeDevices") for c in all_containers(spec)),
        allow_empty_image_reference=any(
            "image" in volume and not volume["image"].get("reference") for volume in spec.get("volumes", ())
        ),
        allow_restart_container_for_init=any(
            policy.get("restartPolicy") == "RestartContainer"
            for container in spec.get("initContainers", ())
            if not is_sidecar(container)
            for policy in container.get("resizePolicy", ())
        ),
        allow_sys_admin_without_escalation=any(_has_sys_admin(c.get("securityContext")) for c in all_containers(spec)),
    )


def _has_sys_admin(context: Item | None) -> bool:
    if not context or context.get("allowPrivilegeEscalation"):
        return False
    return "CAP_SYS_ADMIN" in (context.get("capabilities") or {}).get("add", ())


def _has_broken_pages(spec: Item) -> bool:
    lists = [spec.get("overhead")]
    for container in all_containers(spec):
        resources = container.get("resources")
        if resources:
            lists += (resources.get("limits"), resources.get("requests"))
    return any(
        is_huge_page(name) and not is_divisible_by_page(name, amount)
        for amounts in lists
        if amounts
        for name, amount in amounts.items()
    )


def _has_bad_selector(selector: Item | None) -> bool:
    found: list[FieldError] = []
    validate_label_selector(selector, "", found)
    return bool(found)


def _has_bad_pod_affinity(affinity: Item) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        plain = [*terms.get(REQUIRED, ()), *(term.get("podAffinityTerm") or {} for term in terms.get(PREFERRED, ()))]
        if any(_has_bad_selector(term.get(name)) for term in plain for name in ("labelSelector", "namespaceSelector")):
            return True
    return False


def _has_bad_node_affinity(affinity: Item) -> bool:
    required = (affinity.get("nodeAffinity") or {}).get(REQUIRED) or {}
    return any(
        label_value(value)
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions", ())
        for value in expression.get("values", ())
    )


def _has_bad_spread_selector(spec: Item) -> bool:
    return any(_has_bad_selector(one.get("labelSelector")) for one in spec.get("topologySpreadConstraints", ()))


def _has_bad_match_label_keys(spec: Item) -> bool:
    found: list[FieldError] = []
    for one in spec.get("topologySpreadConstraints", ()):
        validate_match_label_keys(one.get("matchLabelKeys", ()), (), one.get("labelSelector"), "", found)
    return bool(found)


def _has_bad_token_path(spec: Item) -> bool:
    found: list[FieldError] = []
    for volume in spec.get("volumes", ()):
        if "projected" in volume:
            for source in volume["projected"].get("sources") or ():
                if "serviceAccountToken" in source:
                    validate_local_non_reserved_path(source["serviceAccountToken"].get("path", ""), "", found)
    return bool(found)
