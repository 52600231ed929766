"""Rules by which a Pod fits a node: nodeSelector, required node affinity, taints and tolerations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

from setpoint.meta.objects import ObjView

_Labels = Mapping[str, str]
NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def required_nodes(spec: ObjView) -> Callable[[ObjView], bool]:
    """Compile the node constraints in the `spec` of a Pod or a template once for many nodes."""
    wanted = tuple((spec.get("nodeSelector") or {}).items())
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    matches_terms = None if required is None else node_selector(required)

    def matches(node: ObjView) -> bool:
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in wanted):
            return False
        return matches_terms is None or matches_terms(node)

    return matches


def node_selector(selector: ObjView) -> Callable[[ObjView], bool]:
    """Return a predicate that is true if one of the terms matches; without terms it is never true."""
    terms = [_term(term) for term in selector.get("nodeSelectorTerms") or ()]
    return lambda node: any(term(node) for term in terms)


def _term(term: ObjView) -> Callable[[ObjView], bool]:
    labels = [_on_labels(each) for each in term.get("matchExpressions") or ()]
    names = [_on_name(each) for each in term.get("matchFields") or ()]
    if not labels and not names:
        return lambda node: False

    def matches(node: ObjView) -> bool:
        meta = node["metadata"]
        held = meta.get("labels") or {}
        return all(test(held) for test in labels) and all(test(meta["name"]) for test in names)

    return matches


def _on_labels(expression: ObjView) -> Callable[[_Labels], bool]:
    key, values = expression.get("key", ""), tuple(expression.get("values") or ())
    match expression.get("operator"):
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case "Gt":
            return _compared(key, values, lambda value, bound: value > bound)
        case "Lt":
            return _compared(key, values, lambda value, bound: value < bound)
    return lambda labels: False


def _compared(key: str, values: Iterable[str], holds: Callable[[int, int], bool]) -> Callable[[_Labels], bool]:
    bounds = [integer(value) for value in values]
    bound = bounds[0] if len(bounds) == 1 else None

    def compare(labels: _Labels) -> bool:
        value = integer(labels.get(key, ""))
        return value is not None and bound is not None and holds(value, bound)

    return compare


def integer(text: str) -> int | None:
    """Parse an integer as Gt and Lt do: 64 bits, or None."""
    return int(text) if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63 else None


def _on_name(expression: ObjView) -> Callable[[str], bool]:
    """Compile an expression on the node's name, the only supported field; only a single value can match."""
    values, operator = tuple(expression.get("values") or ()), expression.get("operator")
    if expression.get("key") != NAME_FIELD or len(values) != 1 or operator not in ("In", "NotIn"):
        return lambda name: False
    return lambda name: (name in values) == (operator == "In")


NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
REPELLING = (NO_SCHEDULE, NO_EXECUTE)
"""Taint effects that exclude a Pod from a node; the third effect only lowers the node's score."""


def tolerates(toleration: ObjView, taint: ObjView) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool((toleration.get("value") or "") == (taint.get("value") or ""))
    return bool(operator == "Exists")


def untolerated(
    taints: Iterable[ObjView],
    tolerations: Collection[ObjView],
    effects: Collection[str] = REPELLING,
) -> ObjView | None:
    """Return the first taint with one of these effects that nothing tolerates."""
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None
