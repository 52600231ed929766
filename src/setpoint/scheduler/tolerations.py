"""Which taints a Pod puts up with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Toleration = Mapping[str, Any]

REPELLING = ("NoSchedule", "NoExecute")
CORDON = ("node.kubernetes.io/unschedulable", "", "NoSchedule")


def tolerates(tolerations: Iterable[Toleration], key: str, value: str, effect: str) -> bool:
    return any(_covers(toleration, key, value, effect) for toleration in tolerations)


def repels(taints: Iterable[tuple[str, str, str]], tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the taints keeps the Pod away."""
    return any(effect in REPELLING and not tolerates(tolerations, key, value, effect) for key, value, effect in taints)


def node_taints(node: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [(taint["key"], taint.get("value") or "", taint["effect"]) for taint in taints]


def _covers(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.get("effect") and toleration["effect"] != effect:
        return False
    if toleration.get("key") and toleration["key"] != key:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool((toleration.get("value") or "") == value)
    return bool(operator == "Exists")
