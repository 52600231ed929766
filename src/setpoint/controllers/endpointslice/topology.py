"""Hints for the consumers of endpoints, from `trafficDistribution` and from the CPU of each zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from setpoint.controllers.endpointslice.planning import Plan
from setpoint.meta import quantity
from setpoint.meta.conditions import is_true
from setpoint.meta.node_labels import ZONE
from setpoint.meta.objects import Obj

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Service

# -- hints from `trafficDistribution` ---------------------------------------------------------------------------------

_SAME_NODE = "PreferSameNode"
_CLOSE = ("PreferClose", "PreferSameZone", _SAME_NODE)
_ANNOTATIONS = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode")
"""The annotations that select the mode; the first one that is set applies."""
_EXCLUDED = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_OVERLOAD = 0.2
"""The tolerated overload of an endpoint as a fraction of its share."""
_DISABLED, _ENABLED = "TopologyAwareHintsDisabled", "TopologyAwareHintsEnabled"


def traffic_distribution(service: Service) -> str:
    """Return the traffic distribution if it requires hints, otherwise an empty string."""
    distribution = service["spec"].get("trafficDistribution") or ""
    return distribution if distribution in _CLOSE else ""


def _is_ready_endpoint(endpoint: Obj) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is True


def hint_close(result: Plan, distribution: str) -> None:
    """Give every ready endpoint a hint for its own zone and, if requested, its own node."""
    nodes = distribution == _SAME_NODE
    _rehint(result, lambda endpoint: _close(endpoint, nodes) if _is_ready_endpoint(endpoint) else endpoint.get("hints"))


def remove_hints(result: Plan) -> None:
    _rehint(result, lambda _: None)


def _close(endpoint: Obj, nodes: bool) -> Obj | None:
    made: Obj = {}
    if endpoint.get("zone"):
        made["forZones"] = [{"name": endpoint["zone"]}]
    if nodes and endpoint.get("nodeName"):
        made["forNodes"] = [{"name": endpoint["nodeName"]}]
    return made or None


def _rehint(result: Plan, hints_of: Callable[[Obj], Obj | None]) -> None:
    for found in (*result.create, *result.update):
        found["endpoints"] = [_with_hints(endpoint, hints_of(endpoint)) for endpoint in found["endpoints"]]
    for found in tuple(result.unchanged):
        endpoints = found.get("endpoints") or ()
        if any(endpoint.get("hints") != hints_of(endpoint) for endpoint in endpoints):
            result.unchanged.remove(found)
            made = [_with_hints(endpoint, hints_of(endpoint)) for endpoint in endpoints]
            result.update.append({**found, "endpoints": made})


def _with_hints(endpoint: Obj, hints: Obj | None) -> Obj:
    without_hints = {key: value for key, value in endpoint.items() if key != "hints"}
    return {**without_hints, "hints": hints} if hints else without_hints


# -- hints in proportion to the CPU of each zone ----------------------------------------------------------------------


class HintEvent(NamedTuple):
    """An Event about the Service."""

    warning: bool
    reason: str
    message: str


class Allocation(NamedTuple):
    least: int
    most: int
    desired: float


def topology_mode(service: Service) -> bool:
    annotations = service["metadata"].get("annotations") or {}
    mode = next((annotations[key] for key in _ANNOTATIONS if key in annotations), "")
    return mode in ("Auto", "auto")


def cpu_shares(nodes: Iterable[Node]) -> dict[str, float] | None:
    """Return the fraction of ready CPU by zone, or None if it is not fully known or there is only one zone."""
    milli: Counter[str] = Counter()
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        if any(key in labels for key in _EXCLUDED) or not is_true(node, "Ready"):
            continue
        cpu = quantity.milli_value(((node.get("status") or {}).get("allocatable") or {}).get("cpu") or "0")
        if not labels.get(ZONE) or not cpu:
            return None
        milli[labels[ZONE]] += cpu
    total = sum(milli.values())
    return {zone: cpu / total for zone, cpu in sorted(milli.items())} if len(milli) > 1 else None


class Topology:
    """Tracks which Services have hints and how many endpoints each zone got, to find those that a change of the nodes
    affects."""

    def __init__(self) -> None:
        self._shares: dict[str, float] | None = None
        self._given: dict[str, dict[str, Counter[str]]] = {}

    def update_nodes(self, nodes: Iterable[Node]) -> list[str]:
        """Update the zones. Return the keys of the Services for which a zone now has too few endpoints."""
        self._shares = cpu_shares(nodes)
        return [
            key for key, families in self._given.items() if any(self._overloaded(given) for given in families.values())
        ]

    def has_hints(self, key: str) -> bool:
        return key in self._given

    def forget(self, key: str, family: str = "") -> None:
        families = self._given.get(key, {})
        if family:
            families.pop(family, None)
        if not family or not families:
            self._given.pop(key, None)

    def hint(self, result: Plan, key: str, family: str) -> list[HintEvent]:
        """Add hints to the planned endpoints, or remove them if they cannot be distributed well."""
        given, problem = self._distribute(result)
        if problem:
            self.forget(key, family)
            remove_hints(result)
            return [HintEvent(True, _DISABLED, f"{problem}, addressType: {family}")]
        known = self.has_hints(key)
        self._given.setdefault(key, {})[family] = given
        message = f"Topology Aware Hints has been enabled, addressType: {family}"
        return [] if known else [HintEvent(False, _ENABLED, message)]

    def removed(self, key: str, family: str) -> list[HintEvent]:
        """Record that the Service no longer requests hints."""
        if not self.has_hints(key):
            return []
        self.forget(key, family)
        return [HintEvent(True, _DISABLED, f"Topology Aware Hints has been disabled, addressType: {family}")]

    # -- distribution -------------------------------------------------------------------------------------------------

    def _distribute(self, result: Plan) -> tuple[Counter[str], str]:
        every = (*result.create, *result.update, *result.unchanged)
        total = sum(_is_ready_endpoint(endpoint) for found in every for endpoint in found.get("endpoints") or ())
        allocations, problem = self._allocations(total)
        if problem:
            return Counter(), problem
        given = self._keep_what_fits(result, allocations)
        changing = (*result.create, *result.update)
        for found in changing:
            endpoints = []
            for endpoint in found["endpoints"]:
                if not _is_ready_endpoint(endpoint):
                    endpoints.append(_with_hints(endpoint, None))
                    continue
                zone = endpoint.get("zone")
                if not zone:
                    return Counter(), "One or more endpoints do not have a zone specified"
                given[zone] += 1
                endpoints.append(_with_hints(endpoint, _for_zone(zone)))
            found["endpoints"] = endpoints
        giving, receiving = _moves(allocations, given)
        _move(changing, giving, receiving, given)
        return given, "" if given else "No hints allocated for zones"

    def _allocations(self, total: int) -> tuple[dict[str, Allocation], str]:
        if self._shares is None:
            return {}, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
        counts = f"({total} endpoints, {len(self._shares)} zones)"
        if len(self._shares) > total:
            return {}, f"Insufficient number of endpoints {counts}"
        least = {zone: ceil(share * total / (1 + _OVERLOAD)) for zone, share in self._shares.items()}
        spare = total - sum(least.values())
        if spare < 0:
            problem = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold"
            return {}, f"{problem} {counts}"
        return {
            zone: Allocation(least[zone], least[zone] + spare, max(share * total, least[zone]))
            for zone, share in self._shares.items()
        }, ""

    def _keep_what_fits(self, result: Plan, allocations: dict[str, Allocation]) -> Counter[str]:
        """Keep the hints of unchanged slices, unless a zone would get too many."""
        given: Counter[str] = Counter()
        for found in tuple(result.unchanged):
            hints = _hints_in(found)
            if hints is None or any(
                zone not in allocations or given[zone] + count > allocations[zone].most for zone, count in hints.items()
            ):
                result.unchanged.remove(found)
                result.update.append({**found, "endpoints": list(found.get("endpoints") or ())})
            else:
                given += hints
        return given

    def _overloaded(self, given: Counter[str]) -> bool:
        if not given:
            return False
        if not self._shares:
            return True
        total = sum(given.values())
        return any(given[zone] < ceil(total * share / (1 + _OVERLOAD)) for zone, share in self._shares.items())


def _for_zone(zone: str) -> Obj:
    return {"forZones": [{"name": zone}]}


def _hints_in(found: Obj) -> Counter[str] | None:
    hints: Counter[str] = Counter()
    for endpoint in found.get("endpoints") or ():
        if _is_ready_endpoint(endpoint):
            zones = (endpoint.get("hints") or {}).get("forZones") or ()
            if not zones:
                return None
            hints.update(zone["name"] for zone in zones)
    return hints


def _moves(allocations: dict[str, Allocation], given: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """Return how many endpoints each zone gives away and receives."""
    surplus = {zone: given[zone] - each.desired for zone, each in allocations.items() if given[zone] > each.desired}
    lack = {zone: each.desired - given[zone] for zone, each in allocations.items() if given[zone] < each.desired}
    giving: Counter[str] = Counter()
    receiving: Counter[str] = Counter()
    while surplus and lack:
        giver, taker = max(surplus, key=surplus.__getitem__), max(lack, key=lack.__getitem__)
        most, need = surplus[giver], lack[taker]
        if (most < 1 and need < 1) or most < 0.5 or need < 0.5:
            break
        giving[giver] += 1
        receiving[taker] += 1
        surplus[giver] -= 1
        lack[taker] -= 1
    return giving, receiving


def _move(slices: Iterable[Obj], giving: Counter[str], receiving: Counter[str], given: Counter[str]) -> None:
    for found in slices:
        for index, endpoint in enumerate(found["endpoints"]):
            taker = next((zone for zone in receiving if receiving[zone] > 0), None)
            if taker is None:
                return
            zone = endpoint.get("zone")
            if _is_ready_endpoint(endpoint) and giving[zone] > 0:
                found["endpoints"][index] = _with_hints(endpoint, _for_zone(taker))
                giving[zone] -= 1
                receiving[taker] -= 1
                given[taker] += 1
                given[zone] -= 1
