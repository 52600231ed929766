"""PodTopologySpread: spreads Pods over topology domains such as zones and hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from setpoint.meta.node_labels import HOSTNAME, ZONE
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import NOTHING, Selector, from_label_selector, from_map
from setpoint.reconcile.keys import controller_of
from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, FilterBase, Handle, Interest, Refusal
from setpoint.scheduler.listers import Lister, Listers, namespace_index
from setpoint.scheduler.node_table import ABSENT, Floats, Ints, Mask
from setpoint.scheduler.plugins.node_affinity import unwanted_nodes
from setpoint.scheduler.plugins.taint_toleration import repelled
from setpoint.scheduler.snapshot import Snapshot

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

_SYSTEM_DEFAULTS: tuple[dict[str, Any], ...] = (
    {"maxSkew": 3, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
)
_BY_NAMESPACE = "namespace"
_CACHED = "default selector"
TOO_SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{TOO_SKEWED} (missing required label)"
_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class _Constraint:
    max_skew: int
    key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    """Whether only nodes that match the Pod's node affinity are considered."""
    honors_taints: bool


def _parse_constraints(
    constraints: Iterable[Mapping[str, Any]], action: str, labels: Mapping[str, str], selector: Selector | None = None
) -> tuple[_Constraint, ...]:
    """Parse the constraints with this action. `selector` overrides theirs; `labels` are the Pod's."""
    return tuple(
        _Constraint(
            max_skew=int(constraint["maxSkew"]),
            key=constraint["topologyKey"],
            selector=_selector(constraint, labels) if selector is None else selector,
            min_domains=int(constraint.get("minDomains") or 1),
            honors_affinity=(constraint.get("nodeAffinityPolicy") or "Honor") == "Honor",
            honors_taints=constraint.get("nodeTaintsPolicy") == "Honor",
        )
        for constraint in constraints
        if constraint.get("whenUnsatisfiable") == action
    )


def _selector(constraint: Mapping[str, Any], labels: Mapping[str, str]) -> Selector:
    given = constraint.get("labelSelector")
    own = {key: labels[key] for key in constraint.get("matchLabelKeys") or () if key in labels}
    if given is None or not own:
        return from_label_selector(given) if given is not None else NOTHING
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in own.items()]
    return from_label_selector({**given, "matchExpressions": [*(given.get("matchExpressions") or ()), *expressions]})


class _DefaultSelectors:
    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        listers.services.add_index(_BY_NAMESPACE, namespace_index)

    def of(self, demand: Demand) -> Selector:
        """Return the selector; empty if no Service or owner selects the Pod. The same object is returned until
        something changes."""
        wanted = self._default_label_selector(demand.pod)
        known = demand.cache.get(_CACHED)
        if known is None or known[0] != wanted:
            known = demand.cache[_CACHED] = (wanted, from_label_selector(wanted))
        found: Selector = known[1]
        return found

    def for_pod(self, pod: Pod) -> Selector:
        return from_label_selector(self._default_label_selector(pod))

    def _default_label_selector(self, pod: Pod) -> Obj:
        meta = pod["metadata"]
        labels: dict[str, str] = {}
        for service in self._listers.services.by_index(_BY_NAMESPACE, meta["namespace"]):
            selector = (service.get("spec") or {}).get("selector")
            if selector and from_map(selector).matches(meta.get("labels") or {}):
                labels.update(selector)
        owner = controller_of(pod)
        expressions: list[Obj] = []
        if owner is not None:
            key, kind = f"{meta['namespace']}/{owner['name']}", (owner["apiVersion"], owner["kind"])
            if kind == ("v1", "ReplicationController"):
                found = self._listers.replication_controllers.get(key)
                labels.update(((found or {}).get("spec") or {}).get("selector") or {})
            elif kind in (("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")):
                sets: Lister[ObjView] = self._listers.stateful_sets
                if kind[1] == "ReplicaSet":
                    sets = self._listers.replica_sets
                of_set = ((sets.get(key) or {}).get("spec") or {}).get("selector") or {}
                labels.update(of_set.get("matchLabels") or {})
                expressions = of_set.get("matchExpressions") or []
        return {"matchLabels": labels, "matchExpressions": expressions}


class PodTopologySpread(FilterBase):
    name = "PodTopologySpread"

    def __init__(self, handle: Handle, default_constraints: Sequence[Obj] | None = None) -> None:
        """Create the plugin. `default_constraints` apply to Pods without any; None means the system defaults."""
        self._selectors = _DefaultSelectors(handle.listers)
        self._is_system_default = default_constraints is None
        self._defaults = _SYSTEM_DEFAULTS if default_constraints is None else tuple(default_constraints)

    # -- constraints ----------------------------------------------------------------------------------------------

    def _constraints(self, demand: Demand, action: str) -> tuple[_Constraint, ...]:
        own = demand.spec.get("topologySpreadConstraints")
        if own:
            known = demand.cache.get((self, action))
            if known is None:
                known = demand.cache[self, action] = _parse_constraints(own, action, demand.labels)
            found: tuple[_Constraint, ...] = known
            return found
        defaults = [constraint for constraint in self._defaults if constraint.get("whenUnsatisfiable") == action]
        if not defaults:
            return ()
        selector = self._selectors.of(demand)
        if selector.empty:
            return ()
        known = demand.cache.get((self, action))
        if known is None or known[0] is not selector:
            made = _parse_constraints(defaults, action, demand.labels, selector)
            known = demand.cache[self, action] = (selector, made)
        parsed: tuple[_Constraint, ...] = known[1]
        return parsed

    # -- filter ---------------------------------------------------------------------------------------------------

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        constraints = self._constraints(cycle.demand, _HARD)
        if not constraints:
            return ()
        columns = cycle.table.labels.columns([constraint.key for constraint in constraints])
        labelled = cycle.table.valid.copy()
        for column in columns:
            labelled &= column.present
        found = []
        for constraint, column in zip(constraints, columns):
            found.append(Refusal(NO_LABEL, ~column.present, unresolvable=True))
            eligible = _included(cycle, constraint, labelled)
            counts = _counts(cycle.snapshot, cycle.demand, constraint)
            sums = column.sums(counts, eligible)
            domains = column.among(eligible)
            number = int(np.count_nonzero(domains))
            lowest = sums[domains].min() if number and number >= constraint.min_domains else 0
            itself = constraint.selector.matches(cycle.demand.labels)
            found.append(Refusal(TOO_SKEWED, (sums + itself - lowest > constraint.max_skew)[column.of]))
        return found

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return bool(self._constraints(cycle.demand, _HARD))

    # -- score ----------------------------------------------------------------------------------------------------

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        constraints = self._constraints(cycle.demand, _SOFT)
        if not constraints:
            return None
        all_labels = bool(cycle.demand.spec.get("topologySpreadConstraints")) or not self._is_system_default
        columns = cycle.table.labels.columns([constraint.key for constraint in constraints])
        counted, candidates = cycle.table.valid, feasible
        if all_labels:
            labelled = cycle.table.valid.copy()
            for column in columns:
                labelled &= column.present
            counted, candidates = labelled, feasible & labelled
        total: Floats = np.zeros(cycle.table.capacity)
        for constraint, column in zip(constraints, columns):
            if not all_labels and not column.is_used:
                continue  # no node is in a domain, such as a zone
            counts = _counts(cycle.snapshot, cycle.demand, constraint)
            if constraint.key == HOSTNAME:
                size = int(np.count_nonzero(candidates))
                numbers: Ints | Floats = counts
            else:
                size = column.domains(candidates)
                numbers = column.sums(counts, _included(cycle, constraint, counted))[column.of]
            part = numbers * log(size + 2) + (constraint.max_skew - 1)
            total += part if all_labels else np.where(column.of != ABSENT, part, 0.0)
        rounded = np.floor(total + 0.5).astype(np.int64)
        among = rounded[candidates]
        if not len(among):
            return None
        lowest, highest = int(among.min()), int(among.max())
        if highest == 0:
            scores: Ints = np.full(cycle.table.capacity, MAX_SCORE, dtype=np.int64)
        else:
            scores = MAX_SCORE * (highest + lowest - rounded) // highest
        return np.where(candidates, scores, 0) if all_labels else scores

    # -- events ---------------------------------------------------------------------------------------------------

    def interests(self) -> Iterable[Interest]:
        pods = Action.ADD | Action.POD_LABEL | Action.DELETE
        nodes = Action.ADD | Action.DELETE | Action.NODE_LABEL | Action.NODE_TAINT
        return (
            Interest(ClusterEvent(ASSIGNED_POD, pods), self._other_pod_changed),
            Interest(ClusterEvent(TARGET_POD, Action.POD_TOLERATION | Action.POD_LABEL), self._pod_changed),
            Interest(ClusterEvent(NODE, nodes), self._node_changed),
        )

    def _hard_constraints(self, pod: Pod) -> tuple[_Constraint, ...]:
        own = pod["spec"].get("topologySpreadConstraints")
        labels = pod["metadata"].get("labels") or {}
        if own:
            return _parse_constraints(own, _HARD, labels)
        defaults = [constraint for constraint in self._defaults if constraint.get("whenUnsatisfiable") == _HARD]
        return _parse_constraints(defaults, _HARD, labels, self._selectors.for_pod(pod)) if defaults else ()

    def _other_pod_changed(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        if any(side is not None and not _same_spread(side, pod) for side in (old, new)):
            return False
        constraints = self._hard_constraints(pod)
        if old is not None and new is not None:
            return _matching_changed(constraints, old, new)
        labels = (new or old or pod)["metadata"].get("labels") or {}
        return any(constraint.selector.matches(labels) for constraint in constraints)

    def _pod_changed(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        if old is None or new is None:
            return True
        constraints = self._hard_constraints(pod)
        tolerates_more = (old["spec"].get("tolerations") or ()) != (new["spec"].get("tolerations") or ())
        if tolerates_more and any(constraint.honors_taints for constraint in constraints):
            return True
        return _matching_changed(constraints, old, new)

    def _node_changed(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        keys = [constraint.key for constraint in self._hard_constraints(pod)]
        was, now = _labels(old), _labels(new)
        matched, matches = (side is not None and all(key in side for key in keys) for side in (was, now))
        if was is None or now is None:
            return matches if was is None else matched
        if matched != matches:
            return True
        taints = [((side or {}).get("spec") or {}).get("taints") or [] for side in (old, new)]
        return matches and (any(was[key] != now[key] for key in keys) or taints[0] != taints[1])


def _included(cycle: Cycle, constraint: _Constraint, among: Mask) -> Mask:
    """Return the nodes whose Pods count, by the constraint's inclusion policies."""
    if constraint.honors_affinity:
        unwanted = unwanted_nodes(cycle.demand, cycle.table)
        if unwanted is not None:
            among = among & ~unwanted
    if constraint.honors_taints:
        repelled_nodes = repelled(cycle.demand, cycle.table)
        if repelled_nodes is not None:
            among = among & ~repelled_nodes
    return among


def _counts(snapshot: Snapshot, demand: Demand, constraint: _Constraint) -> Ints:
    """Return the number of Pods per slot that the constraint selects, without terminating ones."""
    selector, namespace = constraint.selector, demand.namespace
    if selector.empty:
        return snapshot.counts.counter("nothing", lambda group: False, ())
    return snapshot.counts.counter(
        ("spread", namespace, selector.requirements),
        lambda group: not group.terminating and selector.matches(group.labels),
        (namespace,),
    )


def _same_spread(other: Pod, pod: Pod) -> bool:
    placed = other["spec"].get("nodeName") or (other.get("status") or {}).get("nominatedNodeName")
    return bool(placed) and other["metadata"]["namespace"] == pod["metadata"]["namespace"]


def _matching_changed(constraints: Sequence[_Constraint], old: Pod, new: Pod) -> bool:
    was, now = old["metadata"].get("labels") or {}, new["metadata"].get("labels") or {}
    return was != now and any(
        constraint.selector.matches(was) != constraint.selector.matches(now) for constraint in constraints
    )


def _labels(node: Node | None) -> Mapping[str, str] | None:
    return None if node is None else node["metadata"].get("labels") or {}
