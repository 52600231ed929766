"""InterPodAffinity: affinity and anti-affinity of the Pod and of the existing Pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from setpoint.meta.selectors import EVERYTHING
from setpoint.scheduler.affinity_terms import PodTerms, Term
from setpoint.scheduler.arrays import Ints, Mask
from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, TARGET_POD, Action, ClusterEvent
from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, FilterBase, Handle, Interest, Refusal
from setpoint.scheduler.held_terms import AFFINITY, ANTI, PREFERRED, PREFERRED_ANTI, HeldTerm
from setpoint.scheduler.listers import Lister
from setpoint.scheduler.pod_counts import Group
from setpoint.scheduler.snapshot import Snapshot

Obj = dict[str, Any]
NOT_NEAR = "node(s) didn't match pod affinity rules"
TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"


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
            where = self._not_near(cycle, terms.affinity)
            if where.any():
                found.append(Refusal(NOT_NEAR, where, unresolvable=True))
        if terms.anti:
            too_near = np.zeros(cycle.table.capacity, dtype=np.bool_)
            for term in terms.anti:
                counts = _matching(cycle.snapshot, self._resolved(term))
                too_near |= cycle.table.labels.column(term.topology_key).domain_totals(counts) > 0
            found.append(Refusal(TOO_NEAR, too_near))
        unwelcome: Mask | None = None
        for held in self._speaking_of(cycle.demand, cycle.snapshot):
            if held.kind == ANTI:
                part = cycle.table.labels.column(held.term.topology_key).domain_totals(held.counts) > 0
                unwelcome = part if unwelcome is None else unwelcome | part
        if unwelcome is not None:
            found.append(Refusal(UNWELCOME, unwelcome))
        return found

    def _not_near(self, cycle: Cycle, terms: Sequence[Term]) -> Mask:
        """Return the slots where every term's domain has a Pod that matches all terms. The first Pod of a group with
        affinity to itself fits everywhere."""
        counts = _matching_all(cycle.snapshot, [self._resolved(term) for term in terms])
        columns = cycle.table.labels.columns([term.topology_key for term in terms])
        near = np.ones(cycle.table.capacity, dtype=np.bool_)
        labelled = np.ones(cycle.table.capacity, dtype=np.bool_)
        anywhere = False
        for column in columns:
            totals = column.domain_totals(counts)
            near &= totals > 0
            labelled &= column.present
            anywhere = anywhere or bool(totals.any())
        if not anywhere and self._means_itself(cycle.demand, terms):
            return ~labelled
        return ~near

    def _means_itself(self, demand: Demand, terms: Sequence[Term]) -> bool:
        labels = namespace_labels(self._namespaces, demand.namespace)
        return all(term.selects(demand.namespace, demand.labels, labels) for term in terms)

    def depends_on_pods(self, cycle: Cycle) -> bool:
        terms = cycle.demand.terms
        return bool(terms.affinity or terms.anti) or any(
            held.kind == ANTI for held in self._speaking_of(cycle.demand, cycle.snapshot)
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
        for held in self._speaking_of(cycle.demand, cycle.snapshot):
            weight = self._weight_of(held)
            if weight:
                part = cycle.table.labels.column(held.term.topology_key).domain_totals(held.counts) * weight
                total = part if total is None else total + part
        if total is None:
            return None
        among = total[feasible]
        least, most = int(among.min()), int(among.max())
        if least == most:
            return None
        scaled: Ints = (MAX_SCORE * ((total - least) / (most - least))).astype(np.int64)
        return scaled

    def _weight_of(self, held: HeldTerm) -> int:
        if held.kind == AFFINITY:
            return self._hard_weight
        if held.kind == PREFERRED:
            return held.term.weight
        return -held.term.weight if held.kind == PREFERRED_ANTI else 0

    # -- terms ----------------------------------------------------------------------------------------------------

    def _speaking_of(self, demand: Demand, snapshot: Snapshot) -> list[HeldTerm]:
        """Return the terms of existing Pods that select this Pod."""
        labels = namespace_labels(self._namespaces, demand.namespace)
        version = (snapshot.terms.version, id(labels))
        known = demand.cache.get(self)
        if known is None or known[0] != version:
            meaning = [held for held in snapshot.terms if held.term.selects(demand.namespace, demand.labels, labels)]
            # Retain the labels, so that no other object can get their id.
            known = demand.cache[self] = (version, meaning, labels)
        found: list[HeldTerm] = known[1]
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
            Interest(ClusterEvent(ASSIGNED_POD, changes), self._neighbour_changed),
            Interest(ClusterEvent(TARGET_POD, Action.POD_LABEL)),
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_LABEL), _domain_changed),
        )

    def _neighbour_changed(self, pod: Obj, old: Obj | None, new: Obj | None) -> bool:
        terms = _terms_of(pod)
        if old is not None and new is not None:
            came_near = self._means_all(terms.affinity, new) and not self._means_all(terms.affinity, old)
            went_away = self._means_any(terms.anti, old) and not self._means_any(terms.anti, new)
            return came_near or went_away
        if new is not None:
            return self._means_all(terms.affinity, new)
        assert old is not None
        return self._means_any(terms.anti, old) or self._means_any(_terms_of(old).anti, pod)

    def _means_all(self, terms: Sequence[Term], pod: Obj) -> bool:
        return bool(terms) and all(self._means(term, pod) for term in terms)

    def _means_any(self, terms: Sequence[Term], pod: Obj) -> bool:
        return any(self._means(term, pod) for term in terms)

    def _means(self, term: Term, pod: Obj) -> bool:
        meta = pod["metadata"]
        labels = namespace_labels(self._namespaces, meta["namespace"])
        return term.selects(meta["namespace"], meta.get("labels") or {}, labels)


def namespace_labels(namespaces: Lister, name: str) -> Mapping[str, str]:
    found = namespaces.get(name)
    return (found["metadata"].get("labels") or _NO_LABELS) if found is not None else _NO_LABELS


_NO_LABELS: Mapping[str, str] = {}


def _terms_of(pod: Obj) -> PodTerms:
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


def _domain_changed(pod: Obj, old: Obj | None, new: Obj | None) -> bool:
    terms = _terms_of(pod)
    now: Mapping[str, str] = (new or {"metadata": {}})["metadata"].get("labels") or {}
    if old is None:
        return bool(terms.anti) or any(term.topology_key in now for term in terms.affinity)
    was: Mapping[str, str] = old["metadata"].get("labels") or {}
    for term in terms.affinity:
        if term.topology_key in now and was.get(term.topology_key) != now[term.topology_key]:
            return True
    return any(term.topology_key in was and now.get(term.topology_key) != was[term.topology_key] for term in terms.anti)
