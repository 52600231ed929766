"""LimitRanger: sets the default requests and limits of a namespace's containers, and enforces its bounds."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.podspec.resources import Amounts, aggregate_limits, aggregate_requests
from setpoint.meta.goformat import aggregate
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import Quantity, parse

_ANNOTATION = "kubernetes.io/limit-ranger"
_MAX_MILLI = (2**63 - 1) // 1000
_POD_LEVEL_RESOURCES = ("cpu", "memory")
_ZERO = parse("0")


class LimitRanger(Plugin):
    name = "LimitRanger"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        if resource.group:
            return False
        if resource.plural == "pods":
            # A Pod's resources change only through the resize subresource.
            return (operation, subresource) in (("CREATE", ""), ("UPDATE", "resize"))
        return resource.plural == "persistentvolumeclaims" and not subresource and operation in ("CREATE", "UPDATE")

    async def mutate(self, attrs: Attributes) -> None:
        if attrs.resource.plural != "pods":
            return
        for limits in self._limits(attrs):
            assert attrs.obj is not None
            _apply_defaults(attrs.obj, limits)

    async def validate(self, attrs: Attributes) -> None:
        for limits in self._limits(attrs):
            assert attrs.obj is not None
            find = _pod_problems if attrs.resource.plural == "pods" else _claim_problems
            problems = find(attrs.obj["spec"], limits)
            if problems:
                raise attrs.forbidden(aggregate(problems))

    def _limits(self, attrs: Attributes) -> list[list[Obj]]:
        """Return the limits of each LimitRange of the namespace."""
        found = self._reader.list("", "limitranges", attrs.namespace)
        if not found or (attrs.old is not None and attrs.old["metadata"].get("deletionTimestamp")):
            return []
        return [each["spec"].get("limits") or [] for each in found]


def _apply_defaults(pod: Obj, limits: list[Obj]) -> None:
    default_limits: Amounts = {}
    default_requests: Amounts = {}
    for limit in limits:
        if limit.get("type") == "Container":
            default_requests.update(limit.get("defaultRequest") or {})
            default_limits.update(limit.get("default") or {})
    if not default_limits and not default_requests:
        return
    notes: list[str] = []
    for key, title in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(key) or ():
            resources = dict(container.get("resources") or {})
            requests = _fill(resources, "requests", default_requests)
            limited = _fill(resources, "limits", default_limits)
            container["resources"] = resources
            about = f"{title} {container.get('name', '')}"
            if requests:
                notes.append(f"{', '.join(requests)} request for {about}")
            if limited:
                notes.append(f"{', '.join(limited)} limit for {about}")
    if notes:
        meta = pod["metadata"]
        text = "LimitRanger plugin set: " + "; ".join(notes)
        meta["annotations"] = {**(meta.get("annotations") or {}), _ANNOTATION: text}


def _fill(resources: Obj, which: str, defaults: Amounts) -> list[str]:
    """Set missing defaults and return their names."""
    present = resources.get(which) or {}
    missing = sorted(name for name in defaults if name not in present)
    if missing:
        resources[which] = {**present, **{name: defaults[name] for name in missing}}
    return missing


def _pod_problems(spec: ObjView, limits: list[Obj]) -> list[str]:
    problems: list[str] = []
    for limit in limits:
        kind = limit.get("type", "")
        if kind == "Container":
            for key in ("containers", "initContainers"):
                for container in spec.get(key) or ():
                    resources = container.get("resources") or {}
                    _bounds(limit, kind, resources.get("requests") or {}, resources.get("limits") or {}, problems)
        elif kind == "Pod":
            level = spec.get("resources") or {}
            requests, allowed = aggregate_requests(spec), aggregate_limits(spec)
            for total, which in ((requests, "requests"), (allowed, "limits")):
                own = level.get(which) or {}
                total.update({name: own[name] for name in _POD_LEVEL_RESOURCES if name in own})
            _bounds(limit, kind, requests, allowed, problems)
    return problems


def _claim_problems(spec: ObjView, limits: list[Obj]) -> list[str]:
    problems: list[str] = []
    requests = (spec.get("resources") or {}).get("requests") or {}
    for limit in limits:
        kind = limit.get("type", "")
        if kind != "PersistentVolumeClaim":
            continue
        for name, bound in sorted((limit.get("min") or {}).items()):
            _minimum(kind, name, bound, requests, {}, problems)
        for name, bound in sorted((limit.get("max") or {}).items()):
            about = f"maximum {name} usage per {kind} is {bound}"
            if name not in requests:
                problems.append(f"{about}.  No request is specified")
                continue
            request, _, most = _comparable(parse(requests[name]), _ZERO, parse(bound))
            if request > most:
                problems.append(f"{about}, but request is {requests[name]}")
    return problems


def _bounds(limit: Obj, kind: str, requests: ObjView, limits: ObjView, problems: list[str]) -> None:
    for name, bound in sorted((limit.get("min") or {}).items()):
        _minimum(kind, name, bound, requests, limits, problems)
    for name, bound in sorted((limit.get("max") or {}).items()):
        _maximum(kind, name, bound, requests, limits, problems)
    for name, bound in sorted((limit.get("maxLimitRequestRatio") or {}).items()):
        _ratio(kind, name, bound, requests, limits, problems)


def _comparable(request: Quantity, limit: Quantity, bound: Quantity) -> tuple[int, int, int]:
    """Return the values in thousandths if these fit into 64 bits, otherwise in whole units."""
    whole = request.value(), limit.value(), bound.value()
    if max(whole) <= _MAX_MILLI:
        return request.milli_value(), limit.milli_value(), bound.milli_value()
    return whole


def _minimum(kind: str, name: str, bound: str, requests: ObjView, limits: ObjView, problems: list[str]) -> None:
    about = f"minimum {name} usage per {kind} is {bound}"
    if name not in requests:
        problems.append(f"{about}.  No request is specified")
        return
    request, limit, least = _comparable(parse(requests[name]), parse(limits.get(name, "0")), parse(bound))
    if request < least:
        problems.append(f"{about}, but request is {requests[name]}")
    elif name in limits and limit < least:
        problems.append(f"{about}, but limit is {limits[name]}")


def _maximum(kind: str, name: str, bound: str, requests: ObjView, limits: ObjView, problems: list[str]) -> None:
    about = f"maximum {name} usage per {kind} is {bound}"
    if name not in limits:
        problems.append(f"{about}.  No limit is specified")
        return
    request, limit, most = _comparable(parse(requests.get(name, "0")), parse(limits[name]), parse(bound))
    if limit > most:
        problems.append(f"{about}, but limit is {limits[name]}")
    elif name in requests and request > most:
        problems.append(f"{about}, but request is {requests[name]}")


def _ratio(kind: str, name: str, bound: str, requests: ObjView, limits: ObjView, problems: list[str]) -> None:
    about = f"{name} max limit to request ratio per {kind} is {bound}"
    allowed = parse(bound)
    request, limit, _ = _comparable(parse(requests.get(name, "0")), parse(limits.get(name, "0")), allowed)
    if not request:
        problems.append(f"{about}, but no request is specified or request is 0")
    elif not limit:
        problems.append(f"{about}, but no limit is specified or limit is 0")
    else:
        ratio = limit / request
        if allowed.value() <= _MAX_MILLI:
            exceeded = ratio * 1000 > allowed.milli_value()
        else:
            exceeded = ratio > allowed.value()
        if exceeded:
            problems.append(f"{about}, but provided ratio is {ratio:f}")
