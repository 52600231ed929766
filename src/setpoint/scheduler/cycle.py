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
    """The node with the fewest Pods of those that can take it. Raises Unschedulable."""
    reasons: Counter[str] = Counter()
    best: NodeInfo | None = None
    seen = 0
    for info in nodes:
        seen += 1
        if best is not None and len(info.pods) >= len(best.pods):
            continue  # it could not win
        for check in FILTERS:
            reason = check(pod, info)
            if reason is not None:
                reasons[reason] += 1
                break
        else:
            best = info
    if best is not None and best.node is not None:
        name: str = best.node["metadata"]["name"]
        return name
    if not seen:
        raise Unschedulable("no nodes available to schedule pods")
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    raise Unschedulable(f"0/{seen} nodes are available: {told}.")
