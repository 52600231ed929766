"""Parses topology spread constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.meta.selectors import NOTHING, Selector, from_label_selector

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SYSTEM_DEFAULTS: tuple[dict[str, Any], ...] = (
    {"maxSkew": 3, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
)


@dataclass(frozen=True, slots=True)
class Constraint:
    max_skew: int
    key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    """True if only nodes that match the Pod's node affinity are considered."""
    honors_taints: bool


def parse(
    constraints: Iterable[Mapping[str, Any]], action: str, labels: Mapping[str, str], selector: Selector | None = None
) -> tuple[Constraint, ...]:
    """Parse the constraints with this action. `selector` overrides theirs; `labels` are the Pod's."""
    return tuple(
        Constraint(
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
