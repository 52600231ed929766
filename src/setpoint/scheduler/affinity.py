"""Node affinity and Pod affinity for all nodes at once; `meta.node_selectors` evaluates a single node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from setpoint.meta.node_fit import NAME_FIELD, integer
from setpoint.meta.selectors import EVERYTHING, NOTHING, Selector, from_label_selector
from setpoint.scheduler.node_table import Ints, Mask, NodeTable, grown

_REQUIRED_FIELD = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_FIELD = "preferredDuringSchedulingIgnoredDuringExecution"
AFFINITY, ANTI, PREFERRED, PREFERRED_ANTI = "affinity", "anti", "preferred", "preferredAnti"


def _bounded(values: frozenset[str], above: bool) -> Callable[[str], bool]:
    bound = integer(next(iter(values))) if len(values) == 1 else None

    def compare(text: str) -> bool:
        value = integer(text)
        if value is None or bound is None:
            return False
        return value > bound if above else value < bound

    return compare


class LabelRequirement:
    """An expression on a label."""

    def __init__(self, key: str, operator: str, values: Iterable[str]) -> None:
        self.key = key
        self._operator = operator
        self._values = frozenset(values)
        self._bound = _bounded(self._values, operator == "Gt") if operator in ("Gt", "Lt") else None

    def mask(self, table: NodeTable) -> Mask:
        column = table.labels.column(self.key)
        match self._operator:
            case "In":
                return column.one_of(self._values)
            case "NotIn":
                return ~column.one_of(self._values)
            case "Exists":
                return column.present
            case "DoesNotExist":
                return ~column.present
        if self._bound is None:
            return np.zeros(table.capacity, dtype=np.bool_)
        return column.where(self._bound, absent=False)


class NodeTerm:
    """A node selector term, all of whose expressions must match."""

    def __init__(self, term: Mapping[str, Any]) -> None:
        self._labels = [
            LabelRequirement(expression["key"], expression.get("operator", ""), expression.get("values") or ())
            for expression in term.get("matchExpressions") or ()
        ]
        self._fields = [
            (field.get("operator", ""), tuple(field.get("values") or ()))
            for field in term.get("matchFields") or ()
            if field.get("key") == NAME_FIELD
        ]
        # As upstream: a field must be compared with exactly one value, or the term matches nothing.
        self._broken = any(
            len(values) != 1 or operator not in ("In", "NotIn") for operator, values in self._fields
        ) or len(self._fields) != len(term.get("matchFields") or ())
        self.empty = not (term.get("matchExpressions") or term.get("matchFields"))

    def names(self) -> frozenset[str] | None:
        """Return the nodes that the term names, or None if it does not select by name."""
        found: frozenset[str] | None = None
        for operator, values in self._fields:
            if operator == "In":
                found = frozenset(values) if found is None else found & frozenset(values)
        return found

    def mask(self, table: NodeTable) -> Mask:
        if self.empty or self._broken:
            return np.zeros(table.capacity, dtype=np.bool_)
        found: Mask | None = None
        for operator, values in self._fields:
            named = np.zeros(table.capacity, dtype=np.bool_)
            slot = table.slots.get(values[0])
            if slot is not None:
                named[slot] = True
            part = named if operator == "In" else ~named
            found = part if found is None else found & part
        for requirement in self._labels:
            part = requirement.mask(table)
            found = part if found is None else found & part
        assert found is not None
        return found


class NodeSelector:
    """A node selector, one of whose terms must match; without terms it matches nothing."""

    def __init__(self, selector: Mapping[str, Any]) -> None:
        self.terms = [NodeTerm(term) for term in selector.get("nodeSelectorTerms") or ()]

    def mask(self, table: NodeTable) -> Mask:
        found = np.zeros(table.capacity, dtype=np.bool_)
        for term in self.terms:
            found |= term.mask(table)
        return found


class RequiredNodes:
    """A Pod's nodeSelector and required node affinity together."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._labels = [
            LabelRequirement(key, "In", (value,)) for key, value in (spec.get("nodeSelector") or {}).items()
        ]
        affinity = ((spec.get("affinity") or {}).get("nodeAffinity")) or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        self.selector = NodeSelector(required) if required is not None else None

    @property
    def anything(self) -> bool:
        return not self._labels and self.selector is None

    def mask(self, table: NodeTable) -> Mask | None:
        """Return the matching slots, or None if all match."""
        found: Mask | None = None
        for requirement in self._labels:
            part = requirement.mask(table)
            found = part if found is None else found & part
        if self.selector is not None:
            part = self.selector.mask(table)
            found = part if found is None else found & part
        return found

    def named_nodes(self) -> frozenset[str] | None:
        """Return the only nodes that can match if all terms select by name, otherwise None."""
        if self.selector is None or not self.selector.terms:
            return None
        found: frozenset[str] = frozenset()
        for term in self.selector.terms:
            names = term.names()
            if names is None:
                return None
            found |= names
        return found


class PreferredNodes:
    """Weighted terms; the score of a node is the sum of the weights of the matching terms."""

    def __init__(self, terms: Iterable[Mapping[str, Any]]) -> None:
        pairs = ((int(term.get("weight") or 0), NodeTerm(term.get("preference") or {})) for term in terms)
        self.terms = [(weight, term) for weight, term in pairs if weight and not term.empty]


Labels = Mapping[str, str]


class Term:
    """An immutable affinity term; equal terms have equal identities."""

    __slots__ = ("identity", "namespace_selector", "namespaces", "selector", "topology_key", "weight")

    def __init__(self, term: Mapping[str, Any], namespace: str, weight: int = 0) -> None:
        named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
        self.namespaces = frozenset(named) if named or chosen is not None else frozenset((namespace,))
        self.namespace_selector: Selector = from_label_selector(chosen)
        self.selector: Selector = from_label_selector(term.get("labelSelector"))
        self.topology_key: str = term.get("topologyKey") or ""
        self.weight = weight
        self.identity = (
            tuple(sorted(self.namespaces)),
            orjson.dumps(chosen, option=orjson.OPT_SORT_KEYS),
            orjson.dumps(term.get("labelSelector"), option=orjson.OPT_SORT_KEYS),
            self.topology_key,
            weight,
        )

    def selects(self, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        """Return whether the term selects a Pod with these labels in a namespace with those labels."""
        return self.selects_namespace(namespace, namespace_labels) and self.selector.matches(labels)

    def selects_namespace(self, namespace: str, namespace_labels: Labels) -> bool:
        return namespace in self.namespaces or (
            self.namespace_selector is not NOTHING and self.namespace_selector.matches(namespace_labels)
        )

    @property
    def by_namespace_labels(self) -> bool:
        """Return whether the selected namespaces depend on their labels."""
        return self.namespace_selector is not NOTHING and self.namespace_selector is not EVERYTHING


class PodTerms:
    """All affinity terms of one Pod."""

    __slots__ = ("affinity", "anti", "preferred", "preferred_anti")

    def __init__(self, affinity: Mapping[str, Any], namespace: str) -> None:
        towards, away = affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}
        self.affinity = _required(towards, namespace)
        self.anti = _required(away, namespace)
        self.preferred = _preferred(towards, namespace)
        self.preferred_anti = _preferred(away, namespace)

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti or self.preferred or self.preferred_anti)


def _required(side: Mapping[str, Any], namespace: str) -> tuple[Term, ...]:
    return tuple(Term(term, namespace) for term in side.get(_REQUIRED_FIELD) or ())


def _preferred(side: Mapping[str, Any], namespace: str) -> tuple[Term, ...]:
    return tuple(
        Term(term.get("podAffinityTerm") or {}, namespace, int(term.get("weight") or 0))
        for term in side.get(_PREFERRED_FIELD) or ()
    )


class ExistingTerm:
    __slots__ = ("counts", "kind", "term", "total")

    def __init__(self, kind: str, term: Term, capacity: int) -> None:
        self.kind = kind
        self.term = term
        self.counts: Ints = np.zeros(capacity, dtype=np.int64)
        """The number of Pods on each slot that have the term."""
        self.total = 0


class ExistingTerms:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._terms: dict[Hashable, ExistingTerm] = {}
        self.version = 0
        """Incremented when a term is added or the last Pod with it is removed."""

    def add(self, terms: PodTerms, slot: int) -> None:
        for kind, term in _each(terms):
            existing = self._terms.get((kind, term.identity))
            if existing is None:
                existing = self._terms[kind, term.identity] = ExistingTerm(kind, term, self._capacity)
                self.version += 1
            existing.counts[slot] += 1
            existing.total += 1

    def remove(self, terms: PodTerms, slot: int) -> None:
        for kind, term in _each(terms):
            existing = self._terms[kind, term.identity]
            existing.counts[slot] -= 1
            existing.total -= 1
            if not existing.total:
                del self._terms[kind, term.identity]
                self.version += 1

    def __iter__(self) -> Iterator[ExistingTerm]:
        return iter(self._terms.values())

    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for existing in self._terms.values():
            existing.counts = grown(existing.counts, capacity)


def _each(terms: PodTerms) -> Iterator[tuple[str, Term]]:
    for kind, existing in (
        (AFFINITY, terms.affinity),
        (ANTI, terms.anti),
        (PREFERRED, terms.preferred),
        (PREFERRED_ANTI, terms.preferred_anti),
    ):
        for term in existing:
            yield kind, term
