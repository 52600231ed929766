"""Terms of Pod affinity and anti-affinity: which Pods they select, in which topology domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.meta.selectors import EVERYTHING, NOTHING, Selector, from_label_selector

Labels = Mapping[str, str]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


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
    return tuple(Term(term, namespace) for term in side.get(REQUIRED) or ())


def _preferred(side: Mapping[str, Any], namespace: str) -> tuple[Term, ...]:
    return tuple(
        Term(term.get("podAffinityTerm") or {}, namespace, int(term.get("weight") or 0))
        for term in side.get(PREFERRED) or ()
    )
