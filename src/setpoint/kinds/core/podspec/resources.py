"""Resource requests and limits of containers and pods: validation, defaults, sums, rounding, and the QoS class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from setpoint.kinds.core.podspec.options import CREATE, PodOptions, all_containers
from setpoint.kinds.core.resources import (
    amount_errors,
    container_name_errors,
    is_divisible_by_page,
    is_huge_page,
    is_overcommit_allowed,
    is_pod_level,
    validate_pod_resource_name,
)
from setpoint.meta.field import Errors, FieldError, duplicate, forbidden, invalid, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import add, compare, of_milli, parse

Amounts = dict[str, str]


def aggregate_requests(spec: ObjView) -> Amounts:
    return _aggregate(spec, "requests")


def aggregate_limits(spec: ObjView) -> Amounts:
    return _aggregate(spec, "limits")


def is_sidecar(container: ObjView) -> bool:
    """Return whether an init container keeps running (restartPolicy Always)."""
    return container.get("restartPolicy") == "Always"


def _aggregate(spec: ObjView, which: str) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, which))
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in spec.get("initContainers") or ():
        amounts = _amounts(container, which)
        if is_sidecar(container):
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise(initial, sidecars)
        else:
            together = dict(amounts)
            _add(together, sidecars)
            _raise(initial, together)
    _raise(total, initial)
    return total


def _amounts(container: ObjView, which: str) -> Mapping[str, str]:
    return (container.get("resources") or {}).get(which) or {}


def _add(total: Amounts, amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        total[name] = add(total[name], amount) if name in total else amount


def _raise(total: Amounts, amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        if name not in total or compare(amount, total[name]) > 0:
            total[name] = amount


def round_up_to_milli(amounts: Obj) -> None:
    """Round canonical quantities; only the suffixes n and u, or a negative exponent, can be finer than milli."""
    for name, amount in amounts.items():
        if amount[-1] in "nu" or "e-" in amount or "E-" in amount:
            exact = parse(amount)
            if exact.nano % 1_000_000:
                amounts[name] = of_milli(exact.milli_value(), exact.format).text


GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"


def qos_class(pod: ObjView) -> str:
    spec = pod.get("spec") or {}
    level = spec.get("resources")
    if level and (level.get("requests") or level.get("limits")):
        return _of_requirements(level)
    found = ""
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            one = _of_requirements(container.get("resources"))
            if one == BURSTABLE or (found and one != found):
                return BURSTABLE
            found = one
    return found or BEST_EFFORT


def _of_requirements(resources: ObjView | None) -> str:
    if not resources:
        return BEST_EFFORT
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    cpu = _of_one(requests.get("cpu", "0"), limits.get("cpu", "0"))
    return cpu if cpu == _of_one(requests.get("memory", "0"), limits.get("memory", "0")) else BURSTABLE


def _of_one(request: str, limit: str) -> str:
    if request != limit and compare(request, limit) != 0:
        return BURSTABLE
    return BEST_EFFORT if request == "0" or compare(request, "0") == 0 else GUARANTEED


def default_pod_level_resources(spec: Obj) -> None:
    """Apply pod-level defaults, after admission when the containers are final; the order of the three steps matters."""
    resources = spec.get("resources")
    if not resources or not (resources.get("requests") or resources.get("limits")):
        return
    # The objects may be shared with a stored one.
    resources = spec["resources"] = dict(resources)
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    for name, amount in aggregate_limits(spec).items():
        if is_huge_page(name) and name not in requests:
            limits.setdefault(name, amount)
    for name, amount in aggregate_requests(spec).items():
        if is_pod_level(name) and is_overcommit_allowed(name):
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if is_pod_level(name):
            requests.setdefault(name, amount)
    open_names = {name for name in requests if is_pod_level(name) and name not in limits}
    for container in all_containers(spec):
        open_names &= ((container.get("resources") or {}).get("limits") or {}).keys()
    if open_names:
        totals = aggregate_limits(spec)
        for name in requests:
            if name in open_names and name in totals:
                # A request above the sum of the containers' limits raises the limit, or the pod would be invalid.
                limits[name] = requests[name] if compare(requests[name], totals[name]) > 0 else totals[name]
    if requests:
        resources["requests"] = requests
    if limits:
        resources["limits"] = limits


def validate_container_resources(
    resources: ObjView, path: str, errs: Errors, *, claim_names: frozenset[str], options: PodOptions
) -> None:
    limits, requests = resources.get("limits"), resources.get("requests")
    # Most containers have the same resources as earlier ones.
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
    resources: ObjView, path: str, errs: Errors, claim_names: frozenset[str], options: PodOptions, *, pod_level: bool
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


def _validate_claims(claims: Sequence[ObjView], known: frozenset[str], path: str, errs: Errors) -> None:
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


def validate_overhead(overhead: ObjView, path: str, errs: Errors, *, options: PodOptions) -> None:
    _validate_requirements({"limits": overhead}, path, errs, frozenset(), options, pod_level=False)


def validate_pod_level_resources(
    spec: ObjView, path: str, errs: Errors, *, claim_names: frozenset[str], options: PodOptions
) -> None:
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        errs.append(forbidden(path, "may not be set for a windows pod"))
        return
    if resources.get("claims"):
        errs.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    _validate_requirements(resources, path, errs, claim_names, options, pod_level=True)
    _validate_consistency(spec, resources, path, errs)


def _validate_consistency(spec: ObjView, resources: ObjView, path: str, errs: Errors) -> None:
    """Validate that the containers' total fits the pod's requests, and each container the pod's limits."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, total in aggregate_requests(spec).items():
        request = requests.get(name)
        if request is not None and compare(total, request) > 0:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            errs.append(invalid(f"{path}.requests[{name}]", request, text))
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
