"""Resource requests and limits of containers and of whole pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from setpoint.kinds.core.podspec.aggregate import aggregate_limits, aggregate_requests
from setpoint.kinds.core.podspec.options import CREATE, PodOptions
from setpoint.kinds.core.resources import (
    amount_errors,
    container_name_errors,
    is_divisible_by_page,
    is_huge_page,
    is_overcommit_allowed,
    validate_pod_resource_name,
)  # fmt: skip
from setpoint.meta.field import Errors, FieldError, duplicate, forbidden, invalid, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.quantity import compare

Item = Mapping[str, Any]


def validate_container_resources(
    resources: Item, path: str, errs: Errors, *, claim_names: frozenset[str], options: PodOptions
) -> None:
    limits, requests = resources.get("limits"), resources.get("requests")
    # Most containers ask for what others asked for before.
    if "claims" not in resources and _is_valid(
        tuple(limits.items()) if limits else (), tuple(requests.items()) if requests else ()
    ):
        return
    _validate_requirements(resources, path, errs, claim_names, options, pod_level=False)


@lru_cache(maxsize=4096)
def _is_valid(limits: tuple[tuple[str, str], ...], requests: tuple[tuple[str, str], ...]) -> bool:
    found: Errors = []
    resources = {"limits": dict(limits), "requests": dict(requests)}
    _validate_requirements(resources, "", found, frozenset(), CREATE, pod_level=False)
    return not found


def _validate_requirements(
    resources: Item, path: str, errs: Errors, claim_names: frozenset[str], options: PodOptions, *, pod_level: bool
) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    huge = False
    for name, amount in limits.items():
        _validate_amount(name, amount, f"{path}.limits[{name}]", errs, pod_level)
        if is_huge_page(name):
            huge = True
            _validate_huge_pages(name, amount, f"{path}.limits[{name}]", errs, options)
    for name, amount in requests.items():
        _validate_amount(name, amount, f"{path}.requests[{name}]", errs, pod_level)
        limit = limits.get(name)
        if limit is None:
            if not is_overcommit_allowed(name):
                errs.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif amount != limit:
            order = compare(amount, limit)
            if order and not is_overcommit_allowed(name):
                errs.append(invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}"))
            elif order > 0:
                text = f"must be less than or equal to {name} limit of {limit}"
                errs.append(invalid(f"{path}.requests", amount, text))
        if is_huge_page(name):
            huge = True
            _validate_huge_pages(name, amount, f"{path}.requests[{name}]", errs, options)
    if huge and not ("cpu" in limits or "memory" in limits or "cpu" in requests or "memory" in requests):
        errs.append(forbidden(path, "HugePages require cpu or memory"))
    claims = resources.get("claims")
    if claims:
        _validate_claims(claims, claim_names, f"{path}.claims", errs)


def _validate_amount(name: str, amount: str, path: str, errs: Errors, pod_level: bool) -> None:
    if pod_level:
        validate_pod_resource_name(name, path, errs)
    else:
        for text in container_name_errors(name):
            errs.append(invalid(path, name, text))
    for text in amount_errors(name, amount):
        errs.append(invalid(path, amount, text))


def _validate_huge_pages(name: str, amount: str, path: str, errs: Errors, options: PodOptions) -> None:
    if not options.allow_indivisible_huge_pages and not is_divisible_by_page(name, amount):
        errs.append(invalid(path, amount, f"{amount} is not positive integer multiple of {name}"))


def _validate_claims(claims: Sequence[Item], known: frozenset[str], path: str, errs: Errors) -> None:
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        name, request = claim.get("name", ""), claim.get("request", "")
        at = f"{path}[{i}]"
        if not name:
            errs.append(required(at, ""))
            continue
        if name in seen:
            errs.append(duplicate(at, name))
        else:
            key = name
            if request:
                for text in dns1123_label(request):
                    errs.append(invalid(f"{at}.request", request, text))
                key = f"{name}/{request}"
            if key in seen:
                errs.append(duplicate(at, key))
            elif not request:
                errs.extend(duplicate(at, name) for other in seen if other.startswith(name + "/"))
            seen.add(key)
        if name not in known:
            detail = "must be one of the names in pod.spec.resourceClaims"
            detail += ": " + ", ".join(sorted(known)) if known else " which is empty"
            errs.append(FieldError("FieldValueNotFound", at, name, detail))


def validate_overhead(overhead: Item, path: str, errs: Errors, *, options: PodOptions) -> None:
    _validate_requirements({"limits": overhead}, path, errs, frozenset(), options, pod_level=False)


def validate_pod_level_resources(
    spec: Item, path: str, errs: Errors, *, claim_names: frozenset[str], options: PodOptions
) -> None:
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        errs.append(forbidden(path, "may not be set for a windows pod"))
        return
    if resources.get("claims"):
        errs.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    _validate_requirements(resources, path, errs, claim_names, options, pod_level=True)
    _validate_consistency(spec, resources, path, errs)


def _validate_consistency(spec: Item, resources: Item, path: str, errs: Errors) -> None:
    """Validate that the containers' total fits the pod's requests, and each container the pod's limits."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, total in aggregate_requests(spec).items():
        asked = requests.get(name)
        if asked is not None and compare(total, asked) > 0:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            errs.append(invalid(f"{path}.requests[{name}]", asked, text))
    for name, total in aggregate_limits(spec).items():
        limit = limits.get(name)
        if is_huge_page(name) and limit is not None and compare(total, limit) > 0:
            text = f"must be greater than or equal to aggregate container limits of {total}"
            errs.append(invalid(f"{path}.limits[{name}]", limit, text))
    for i, container in enumerate(spec.get("containers") or ()):
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            limit = limits.get(name)
            if limit is not None and compare(amount, limit) > 0:
                text = f"must be less than or equal to pod limits of {limit}"
                errs.append(invalid(f"{path}.containers[{i}][{name}].limits", amount, text))
