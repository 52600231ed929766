"""PodTopologySpread: spreads Pods over topology domains such as zones and hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Any

import numpy as np

from setpoint.scheduler.arrays import Floats, Ints, Mask
from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.default_selector import DefaultSelectors
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, FilterBase, Handle, Interest, Refusal
from setpoint.scheduler.label_columns import ABSENT
from setpoint.scheduler.plugins.node_affinity import unwanted_nodes
from setpoint.scheduler.plugins.taint_toleration import repelled
from setpoint.scheduler.snapshot import Snapshot
from setpoint.scheduler.spread_constraints import HOSTNAME, SYSTEM_DEFAULTS, Constraint, parse

Obj = dict[str, Any]
TOO_SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{TOO_SKEWED} (missing required label)"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class PodTopologySpread(FilterBase):
    name = "PodTopologySpread"

    def __init__(self, handle: Handle, default_constraints: Sequence[Obj] | None = None) -> None:
        """Create the plugin. `default_constraints` apply to Pods without any; None means the system defaults."""
        self._selectors = DefaultSelectors(handle.listers)
        self._is_system_default = default_constraints is None
        self._defaults = SYSTEM_DEFAULTS if default_constraints is None else tuple(default_constraints)

    # -- constraints ----------------------------------------------------------------------------------------------

    def _constraints(self, demand: Demand, action: str) -> tuple[Constraint, ...]:
        own = demand.spec.get("topologySpreadConstraints")
        if own:
            known = demand.cache.get((self, action))
            if known is None:
                known = demand.cache[self, action] = parse(own, action, demand.labels)
            found: tuple[Constraint, ...] = known
            return found
        defaults = [constraint for constraint in self._defaults if constraint.get("whenUnsatisfiable") == action]
        if not defaults:
            return ()
        selector = self._selectors.of(demand)
        if selector.empty:
            return ()
        known = demand.cache.get((self, action))
        if known is None or known[0] is not selector:
            made = parse(defaults, action, demand.labels, selector)
            known = demand.cache[self, action] = (selector, made)
        parsed: tuple[Constraint, ...] = known[1]
        return parsed

    # -- filter ---------------------------------------------------------------------------------------------------

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        constraints = self._constraints(cycle.demand, HARD)
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
            least = sums[domains].min() if number and number >= constraint.min_domains else 0
            itself = constraint.selector.matches(cycle.demand.labels)
            found.append(Refusal(TOO_SKEWED, (sums + itself - least > constraint.max_skew)[column.of]))
        return found

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return bool(self._constraints(cycle.demand, HARD))

    # -- score ----------------------------------------------------------------------------------------------------

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        constraints = self._constraints(cycle.demand, SOFT)
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
        least, most = int(among.min()), int(among.max())
        if most == 0:
            scores: Ints = np.full(cycle.table.capacity, MAX_SCORE, dtype=np.int64)
        else:
            scores = MAX_SCORE * (most + least - rounded) // most
        return np.where(candidates, scores, 0) if all_labels else scores

    # -- events ---------------------------------------------------------------------------------------------------

    def interests(self) -> Iterable[Interest]:
        pods = Action.ADD | Action.POD_LABEL | Action.DELETE
        nodes = Action.ADD | Action.DELETE | Action.NODE_LABEL | Action.NODE_TAINT
        return (
            Interest(ClusterEvent(ASSIGNED_POD, pods), self._neighbour_changed),
            Interest(ClusterEvent(TARGET_POD, Action.POD_TOLERATION | Action.POD_LABEL), self._pod_changed),
            Interest(ClusterEvent(NODE, nodes), self._node_changed),
        )

    def _hard_of(self, pod: Obj) -> tuple[Constraint, ...]:
        own = pod["spec"].get("topologySpreadConstraints")
        labels = pod["metadata"].get("labels") or {}
        if own:
            return parse(own, HARD, labels)
        defaults = [constraint for constraint in self._defaults if constraint.get("whenUnsatisfiable") == HARD]
        return parse(defaults, HARD, labels, self._selectors.for_pod(pod)) if defaults else ()

    def _neighbour_changed(self, pod: Obj, old: Obj | None, new: Obj | None) -> bool:
        if any(side is not None and not _same_spread(side, pod) for side in (old, new)):
            return False
        constraints = self._hard_of(pod)
        if old is not None and new is not None:
            return _matching_changed(constraints, old, new)
        labels = (new or old or pod)["metadata"].get("labels") or {}
        return any(constraint.selector.matches(labels) for constraint in constraints)

    def _pod_changed(self, pod: Obj, old: Obj | None, new: Obj | None) -> bool:
        if old is None or new is None:
            return True
        constraints = self._hard_of(pod)
        tolerates_more = (old["spec"].get("tolerations") or ()) != (new["spec"].get("tolerations") or ())
        if tolerates_more and any(constraint.honors_taints for constraint in constraints):
            return True
        return _matching_changed(constraints, old, new)

    def _node_changed(self, pod: Obj, old: Obj | None, new: Obj | None) -> bool:
        keys = [constraint.key for constraint in self._hard_of(pod)]
        was, now = _labels(old), _labels(new)
        matched, matches = (side is not None and all(key in side for key in keys) for side in (was, now))
        if was is None or now is None:
            return matches if was is None else matched
        if matched != matches:
            return True
        taints = [((side or {}).get("spec") or {}).get("taints") or [] for side in (old, new)]
        return matches and (any(was[key] != now[key] for key in keys) or taints[0] != taints[1])


def _included(cycle: Cycle, constraint: Constraint, among: Mask) -> Mask:
    """Return the nodes whose Pods count, by the constraint's inclusion policies."""
    if constraint.honors_affinity:
        unwanted = unwanted_nodes(cycle.demand, cycle.table)
        if unwanted is not None:
            among = among & ~unwanted
    if constraint.honors_taints:
        kept_away = repelled(cycle.demand, cycle.table)
        if kept_away is not None:
            among = among & ~kept_away
    return among


def _counts(snapshot: Snapshot, demand: Demand, constraint: Constraint) -> Ints:
    """Return the number of Pods per slot that the constraint selects, without terminating ones."""
    selector, namespace = constraint.selector, demand.namespace
    if selector.empty:
        return snapshot.counts.counter("nothing", lambda group: False, ())
    return snapshot.counts.counter(
        ("spread", namespace, selector.requirements),
        lambda group: not group.terminating and selector.matches(group.labels),
        (namespace,),
    )


def _same_spread(other: Obj, pod: Obj) -> bool:
    placed = other["spec"].get("nodeName") or (other.get("status") or {}).get("nominatedNodeName")
    return bool(placed) and other["metadata"]["namespace"] == pod["metadata"]["namespace"]


def _matching_changed(constraints: Sequence[Constraint], old: Obj, new: Obj) -> bool:
    was, now = old["metadata"].get("labels") or {}, new["metadata"].get("labels") or {}
    return was != now and any(
        constraint.selector.matches(was) != constraint.selector.matches(now) for constraint in constraints
    )


def _labels(node: Obj | None) -> Mapping[str, str] | None:
    return None if node is None else node["metadata"].get("labels") or {}
