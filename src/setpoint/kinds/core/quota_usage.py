"""Usage of a namespace's quota by one object, by resource name. Admission charges it; the quota controller sums it.

A Meter handles one resource: which names of a quota it measures, how much an object uses, and whether the object is in
a quota's scope. Resources without rules of their own are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache

from setpoint.kinds.core.pod_demand import has_pod_level_resources, pod_limits, pod_requests
from setpoint.kinds.core.podspec.resources import BEST_EFFORT, Amounts, qos_class
from setpoint.kinds.core.resources import is_extended, is_native
from setpoint.kinds.storage.binding import STORAGE_CLASS_ANNOTATION
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import add, compare, of_value, parse
from setpoint.meta.times import parse_time

_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_CLAIMS_PER_CLASS = ".deviceclass.resource.k8s.io/devices"
_PER_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_MAX_DEVICES = 32
"""Maximum number of devices that a claim for all devices can get."""
# Resources that had a plain name before `count/` existed.
_PLAIN_NAMES = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})
# Resources that a Pod must specify if a quota limits them.
_MUST_SPECIFY = ("cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory")
_NOT_COUNTED = frozenset(
    {
        ("", "bindings"),
        ("", "componentstatuses"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)


class Meter:
    """Measures usage; this base class counts objects."""

    updates: frozenset[str] = frozenset()
    """Subresources whose updates can change usage; an empty name means the object itself."""

    def __init__(self, group: str, plural: str) -> None:
        self.count = f"count/{plural}.{group}" if group else f"count/{plural}"
        names = {self.count}
        if not group and plural in _PLAIN_NAMES:
            names.add(plural)
        self._names = frozenset(names)

    def measures(self, name: str) -> bool:
        return name in self._names

    def usage(self, obj: ObjView, now: datetime) -> Amounts:
        return dict.fromkeys(self._names, "1")

    def in_scope(self, scope: ObjView, obj: ObjView) -> bool:
        """Return whether the object is in the `scope`: scopeName, operator, values."""
        return False

    def changes(self, obj: ObjView, old: ObjView, subresource: str) -> bool:
        """Return whether this update (of a kind in `updates`) can change usage."""
        return True

    def missing(self, required: Iterable[str], obj: ObjView) -> str:
        """Return the names that a quota requires an object to specify and it does not."""
        return ""


class PodMeter(Meter):
    updates = frozenset({"", "resize"})
    _own = frozenset(
        {
            "pods",
            "cpu",
            "memory",
            "ephemeral-storage",
            "requests.cpu",
            "requests.memory",
            "requests.ephemeral-storage",
            "limits.cpu",
            "limits.memory",
            "limits.ephemeral-storage",
            "count/pods",
        }
    )

    def measures(self, name: str) -> bool:
        if name in self._own or name.startswith(("hugepages-", "requests.hugepages-")):
            return True
        return name.startswith("requests.") and (not is_native(name) or name.startswith("requests." + _DEVICE_CLASS))

    def usage(self, obj: ObjView, now: datetime) -> Amounts:
        if not _is_charged(obj, now):
            return {self.count: "1"}
        return {self.count: "1", **_compute(pod_requests(obj), pod_limits(obj))}

    def in_scope(self, scope: ObjView, obj: ObjView) -> bool:
        name, spec = scope.get("scopeName"), obj["spec"]
        if name == "Terminating":
            return _has_deadline(spec)
        if name == "NotTerminating":
            return not _has_deadline(spec)
        if name == "BestEffort":
            return qos_class(obj) == BEST_EFFORT
        if name == "NotBestEffort":
            return qos_class(obj) != BEST_EFFORT
        if name == "PriorityClass":
            given = spec.get("priorityClassName")
            return _selects(scope, [given] if given else [])
        return name == "CrossNamespacePodAffinity" and _selects_other_namespaces(spec.get("affinity") or {})

    def changes(self, obj: ObjView, old: ObjView, subresource: str) -> bool:
        return subresource == "resize" or _has_deadline(obj["spec"]) != _has_deadline(old["spec"])

    def missing(self, required: Iterable[str], obj: ObjView) -> str:
        spec = obj["spec"]
        wanted = set(required).intersection(_MUST_SPECIFY)
        if not wanted or has_pod_level_resources(spec):
            return ""
        lacking: dict[str, set[str]] = {}
        for key in ("containers", "initContainers"):
            for container in spec.get(key) or ():
                resources = container.get("resources") or {}
                specified = _compute(resources.get("requests") or {}, resources.get("limits") or {})
                for name in wanted - specified.keys():
                    lacking.setdefault(name, set()).add(container.get("name", ""))
        if not lacking:
            return ""
        parts = (f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))
        return f"must specify {'; '.join(parts)}"


class ServiceMeter(Meter):
    updates = frozenset({""})
    _own = frozenset({"services", "services.nodeports", "services.loadbalancers", "count/services"})

    def measures(self, name: str) -> bool:
        return name in self._own

    def usage(self, obj: ObjView, now: datetime) -> Amounts:
        spec = obj["spec"]
        ports, kind = spec.get("ports") or (), spec.get("type")
        node_ports = 0
        if kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)):
            # Node ports that are not allocated yet count too.
            node_ports = len(ports)
        elif kind == "LoadBalancer":
            node_ports = sum(1 for port in ports if port.get("nodePort"))
        return {
            self.count: "1",
            "services": "1",
            "services.loadbalancers": "1" if kind == "LoadBalancer" else "0",
            "services.nodeports": str(node_ports),
        }


class VolumeClaimMeter(Meter):
    updates = frozenset({"", "status"})
    _own = ("persistentvolumeclaims", "requests.storage")

    def measures(self, name: str) -> bool:
        return name in (self.count, *self._own) or name.endswith(tuple(_PER_STORAGE_CLASS + own for own in self._own))

    def usage(self, obj: ObjView, now: datetime) -> Amounts:
        result = {"persistentvolumeclaims": "1", self.count: "1"}
        storage = _claimed_storage(obj)
        if storage:
            result["requests.storage"] = storage
        spec = obj["spec"]
        storage_class = (obj["metadata"].get("annotations") or {}).get(
            STORAGE_CLASS_ANNOTATION, spec.get("storageClassName")
        )
        if storage_class:
            for name in self._own:
                if name in result:
                    result[storage_class + _PER_STORAGE_CLASS + name] = result[name]
        return result

    def in_scope(self, scope: ObjView, obj: ObjView) -> bool:
        return scope.get("scopeName") == "VolumeAttributesClass" and _selects(scope, sorted(_attribute_classes(obj)))

    def changes(self, obj: ObjView, old: ObjView, subresource: str) -> bool:
        if subresource != "status":
            return True
        allocated, before = (
            ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage") for claim in (obj, old)
        )
        return allocated != before or _attribute_classes(obj) != _attribute_classes(old)


class ResourceClaimMeter(Meter):
    updates = frozenset({""})

    def measures(self, name: str) -> bool:
        return name == self.count or name.endswith(_CLAIMS_PER_CLASS)

    def usage(self, obj: ObjView, now: datetime) -> Amounts:
        result = {self.count: "1"}
        for request in (obj["spec"].get("devices") or {}).get("requests") or ():
            most: dict[str, int] = {}
            # The maximum of the alternatives counts, for each class.
            for choice in request.get("firstAvailable") or filter(None, (request.get("exactly"),)):
                name = choice.get("deviceClassName", "") + _CLAIMS_PER_CLASS
                mode = choice.get("allocationMode")
                number = {"ExactCount": choice.get("count", 0), "All": _MAX_DEVICES}.get(mode, 0)
                most[name] = max(most.get(name, 0), number)
            for name, number in most.items():
                result[name] = add(result.get(name, "0"), str(number))
        return result


@lru_cache(maxsize=1024)
def meter(group: str, plural: str) -> Meter | None:
    """Return the meter of a resource, or None if its objects are never charged."""
    if (group, plural) in _NOT_COUNTED:
        return None
    special = {
        ("", "pods"): PodMeter,
        ("", "services"): ServiceMeter,
        ("", "persistentvolumeclaims"): VolumeClaimMeter,
        ("resource.k8s.io", "resourceclaims"): ResourceClaimMeter,
    }
    return special.get((group, plural), Meter)(group, plural)


def scopes_of(quota: ObjView) -> list[ObjView]:
    """Return a quota's scopes in the long form: an object must be in all of them."""
    spec = quota["spec"]
    plain: list[ObjView] = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return plain + list((spec.get("scopeSelector") or {}).get("matchExpressions") or ())


def _compute(requests: ObjView, limits: ObjView) -> Amounts:
    result = {"pods": "1"}
    for name, amount in requests.items():
        if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
            result[name] = result["requests." + name] = amount
        elif is_extended(name) or name.startswith(_DEVICE_CLASS):
            result["requests." + name] = amount
    for name in ("cpu", "memory", "ephemeral-storage"):
        if name in limits:
            result["limits." + name] = limits[name]
    return result


def _is_charged(pod: ObjView, now: datetime) -> bool:
    """Return whether a Pod is charged: not after completion, nor after its deletion deadline.

    The Pods of a lost node must not prevent others from starting."""
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    meta = pod["metadata"]
    deleted, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    return not deleted or grace is None or now <= parse_time(deleted) + timedelta(seconds=grace)


def _has_deadline(spec: ObjView) -> bool:
    deadline = spec.get("activeDeadlineSeconds")
    return deadline is not None and deadline >= 0


def _selects(scope: ObjView, values: list[str]) -> bool:
    operator, wanted = scope.get("operator"), scope.get("values") or ()
    if operator == "Exists":
        return bool(values)
    if operator == "DoesNotExist":
        return not values
    if operator == "In":
        return any(value in wanted for value in values)
    # NotIn also matches objects without a value.
    return not values or any(value not in wanted for value in values)


def _selects_other_namespaces(affinity: ObjView) -> bool:
    for which in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(which) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(weighted.get("podAffinityTerm") or {} for weighted in preferred)):
            if term.get("namespaces") or term.get("namespaceSelector") is not None:
                return True
    return False


def _claimed_storage(claim: ObjView) -> str:
    """Return the requested storage in whole bytes."""
    storage = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        return ""
    allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
    if allocated is not None and compare(allocated, storage) > 0:
        storage = allocated
    amount = parse(storage)
    return amount.text if amount.is_integer() else of_value(amount.value(), amount.format).text


def _attribute_classes(claim: ObjView) -> set[str]:
    status = claim.get("status") or {}
    names = (
        claim["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in names if name}
