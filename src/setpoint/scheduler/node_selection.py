"""Node selectors and node affinity for all nodes at once; `meta.node_selectors` evaluates a single node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from setpoint.meta.node_selectors import NAME_FIELD, integer
from setpoint.scheduler.arrays import Mask
from setpoint.scheduler.node_table import NodeTable

Obj = dict[str, Any]


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
