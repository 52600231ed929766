"""One decision: which node for this Pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from setpoint.scheduler.filters import FILTERS
from setpoint.scheduler.snapshot import NodeInfo

Obj = dict[str, Any]


class Unschedulable(Exception):
    """No node will do; the message says why, for how many nodes."""


def choose(pod: Obj, nodes: Iterable[NodeInfo]) -> str:
    """The first node that can take it: `nodes` come in the order of preference. Raises Unschedulable."""
    reasons: Counter[str] = Counter()
    seen = 0
    for info in nodes:
        seen += 1
        reason = next((why for check in FILTERS if (why := check(pod, info)) is not None), None)
        if reason is None:
            return info.name
        reasons[reason] += 1
    if not seen:
        raise Unschedulable("no nodes available to schedule pods")
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    raise Unschedulable(f"0/{seen} nodes are available: {told}.")
