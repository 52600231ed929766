"""InterPodAffinity: affinity and anti-affinity of the Pod and of the existing Pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import EVERYTHING
from setpoint.scheduler.affinity import AFFINITY, ANTI, PREFERRED, PREFERRED_ANTI, ExistingTerm, PodTerms, Term
from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, FilterBase, Handle, Interest, Refusal
from setpoint.scheduler.listers import Lister
from setpoint.scheduler.node_table import Ints, Mask
from setpoint.scheduler.snapshot import Group, Snapshot

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

AFFINITY_UNSATISFIED = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_VIOLATED = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY_VIOLATED = "node(s) didn't satisfy existing pods anti-affinity rules"
_NO_LABELS: Mapping[str, str] = {}


class InterPodAffinity(FilterBase):
    name = "InterPodAffinity"

    def __init__(self, handle: Handle, hard_weight: int = 1, ignore_preferred_of_existing: bool = False) -> None:
        self._namespaces = handle.listers.namespaces
        self._hard_weight = hard_weight
        self._ignore_preferred_of_existing = ignore_preferred_of_existing

    # -- filter ---------------------------------------------------------------------------------------------------

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        found = []
        terms = cycle.demand.terms
        if terms.affinity:
            where = self._affinity_unsatisfied(cycle, terms.affinity)
            if where.any():
                found.append(Refusal(AFFINITY_UNSATISFIED, where, unresolvable=True))
        if terms.anti:
            violated = np.zeros(cycle.table.capacity, dtype=np.bool_)
            for term in terms.anti:
                counts = _matching(cycle.snapshot, self._resolved(term))
                violated |= cycle.table.labels.column(term.topology_key).domain_totals(counts) > 0
            found.append(Refusal(ANTI_AFFINITY_VIOLATED, violated))
        existing_violated: Mask | None = None
        for existing in self._existing_terms_selecting(cycle.demand, cycle.snapshot):
            if existing.kind == ANTI:
                part = cycle.table.labels.column(existing.term.topology_key).domain_totals(existing.counts) > 0
                existing_violated = part if existing_violated is None else existing_violated | part
        if existing_violated is not None:
            found.append(Refusal(EXISTING_ANTI_AFFINITY_VIOLATED, existing_violated))
        return found

    def _affinity_unsatisfied(self, cycle: Cycle, terms: Sequence[Term]) -> Mask:
        """Return the slots where every term's domain has a Pod that matches all terms. The first Pod of a group with
        affinity to itself fits everywhere."""
        counts = _matching_all(cycle.snapshot, [self._resolved(term) for term in terms])
        columns = cycle.table.labels.columns([term.topology_key for term in terms])
        satisfied = np.ones(cycle.table.capacity, dtype=np.bool_)
        labelled = np.ones(cycle.table.capacity, dtype=np.bool_)
        anywhere = False
        for column in columns:
            totals = column.domain_totals(counts)
            satisfied &= totals > 0
            labelled &= column.present
            anywhere = anywhere or bool(totals.any())
        if not anywhere and self._selects_itself(cycle.demand, terms):
            return ~labelled
        return ~satisfied

    def _selects_itself(self, demand: Demand, terms: Sequence[Term]) -> bool:
        labels = namespace_labels(self._namespaces, demand.namespace)
        return all(term.selects(demand.namespace, demand.labels, labels) for term in terms)

    def depends_on_pods(self, cycle: Cycle) -> bool:
        terms = cycle.demand.terms
        return bool(terms.affinity or terms.anti) or any(
            existing.kind == ANTI for existing in self._existing_terms_selecting(cycle.demand, cycle.snapshot)
        )

    # -- score ----------------------------------------------------------------------------------------------------

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        terms = cycle.demand.terms
        own = bool(terms.preferred or terms.preferred_anti)
        if self._ignore_preferred_of_existing and not own:
            return None
        total: Any = None
        for sign, side in ((1, terms.preferred), (-1, terms.preferred_anti)):
            for term in side:
                counts = _matching(cycle.snapshot, self._resolved(term))
                part = cycle.table.labels.column(term.topology_key).domain_totals(counts) * (sign * term.weight)
                total = part if total is None else total + part
        for existing in self._existing_terms_selecting(cycle.demand, cycle.snapshot):
            weight = self._weight_of(existing)
            if weight:
                part = cycle.table.labels.column(existing.term.topology_key).domain_totals(existing.counts) * weight
                total = part if total is None else total + part
        if total is None:
            return None
        among = total[feasible]
        lowest, highest = int(among.min()), int(among.max())
        if lowest == highest:
            return None
        scaled: Ints = (MAX_SCORE * ((total - lowest) / (highest - lowest))).astype(np.int64)
        return scaled

    def _weight_of(self, existing: ExistingTerm) -> int:
        if existing.kind == AFFINITY:
            return self._hard_weight
        if existing.kind == PREFERRED:
            return existing.term.weight
        return -existing.term.weight if existing.kind == PREFERRED_ANTI else 0

    # -- terms ----------------------------------------------------------------------------------------------------

    def _existing_terms_selecting(self, demand: Demand, snapshot: Snapshot) -> list[ExistingTerm]:
        """Return the terms of existing Pods that select this Pod."""
        labels = namespace_labels(self._namespaces, demand.namespace)
        version = (snapshot.terms.version, id(labels))
        known = demand.cache.get(self)
        if known is None or known[0] != version:
            selecting = [
                existing
                for existing in snapshot.terms
                if existing.term.selects(demand.namespace, demand.labels, labels)
            ]
            # Retain the labels, so that no other object can get their id.
            known = demand.cache[self] = (version, selecting, labels)
        found: list[ExistingTerm] = known[1]
        return found

    def _resolved(self, term: Term) -> tuple[Term, frozenset[str] | None]:
        """Return the namespaces that the term selects now, or None for all."""
        if term.by_namespace_labels:
            return term, term.namespaces | frozenset(
                name
                for name, namespace in self._namespaces.items.items()
                if term.namespace_selector.matches(namespace["metadata"].get("labels") or {})
            )
        return term, None if term.namespace_selector is EVERYTHING else term.namespaces

    # -- events ---------------------------------------------------------------------------------------------------

    def interests(self) -> Iterable[Interest]:
        changes = Action.ADD | Action.POD_LABEL | Action.DELETE
        return (
            Interest(ClusterEvent(ASSIGNED_POD, changes), self._other_pod_changed),
            Interest(ClusterEvent(TARGET_POD, Action.POD_LABEL)),
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_LABEL), _domain_changed),
        )

    def _other_pod_changed(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        terms = _terms_of(pod)
        if old is not None and new is not None:
            began_to_match = self._selects_with_all(terms.affinity, new) and not self._selects_with_all(
                terms.affinity, old
            )
            stopped_matching = self._selects_with_any(terms.anti, old) and not self._selects_with_any(terms.anti, new)
            return began_to_match or stopped_matching
        if new is not None:
            return self._selects_with_all(terms.affinity, new)
        assert old is not None
        return self._selects_with_any(terms.anti, old) or self._selects_with_any(_terms_of(old).anti, pod)

    def _selects_with_all(self, terms: Sequence[Term], pod: Pod) -> bool:
        return bool(terms) and all(self._selects(term, pod) for term in terms)

    def _selects_with_any(self, terms: Sequence[Term], pod: Pod) -> bool:
        return any(self._selects(term, pod) for term in terms)

    def _selects(self, term: Term, pod: Pod) -> bool:
        meta = pod["metadata"]
        labels = namespace_labels(self._namespaces, meta["namespace"])
        return term.selects(meta["namespace"], meta.get("labels") or {}, labels)


def namespace_labels(namespaces: Lister[ObjView], name: str) -> Mapping[str, str]:
    found = namespaces.get(name)
    return (found["metadata"].get("labels") or _NO_LABELS) if found is not None else _NO_LABELS


def _terms_of(pod: Pod) -> PodTerms:
    return PodTerms(pod["spec"].get("affinity") or {}, pod["metadata"]["namespace"])


def _matching(snapshot: Snapshot, resolved: tuple[Term, frozenset[str] | None]) -> Ints:
    return _matching_all(snapshot, [resolved])


def _matching_all(snapshot: Snapshot, resolved: Sequence[tuple[Term, frozenset[str] | None]]) -> Ints:
    """Return the number of Pods per slot that all terms select."""
    identity = tuple(
        ("affinity", term.identity[2], None if namespaces is None else tuple(sorted(namespaces)))
        for term, namespaces in resolved
    )

    def matches(group: Group) -> bool:
        return all(
            (namespaces is None or group.namespace in namespaces) and term.selector.matches(group.labels)
            for term, namespaces in resolved
        )

    limited = [namespaces for _, namespaces in resolved if namespaces is not None]
    return snapshot.counts.counter(identity, matches, frozenset.intersection(*limited) if limited else None)


def _domain_changed(pod: Pod, old: Node | None, new: Node | None) -> bool:
    terms = _terms_of(pod)
    now: Mapping[str, str] = (new or {"metadata": {}})["metadata"].get("labels") or {}
    if old is None:
        return bool(terms.anti) or any(term.topology_key in now for term in terms.affinity)
    was: Mapping[str, str] = old["metadata"].get("labels") or {}
    for term in terms.affinity:
        if term.topology_key in now and was.get(term.topology_key) != now[term.topology_key]:
            return True
    return any(term.topology_key in was and now.get(term.topology_key) != was[term.topology_key] for term in terms.anti)
