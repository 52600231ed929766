"""The resource usage of simulated nodes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.node.runtime.interface import Usage

if TYPE_CHECKING:
    from setpoint.node.kubelet_api.interface import NodeUsage

SYSTEM_USAGE = Usage(25_000_000, 128 << 20, 0.0)
"""The usage of a simulated node without its Pods."""


def sum_of(usage: Iterable[Usage]) -> Usage:
    each = list(usage)
    return Usage(
        sum(one.cpu_nano for one in each), sum(one.memory_bytes for one in each), sum(one.cpu_seconds for one in each)
    )


def simulated_summary(node: str, usage: NodeUsage, at: datetime) -> Obj:
    """Return the usage in the form of the kubelet's Summary API."""
    now = format_time(at)
    shown: list[Obj] = []
    for pod, total, containers, _ in usage.pods:
        meta, started = pod["metadata"], (pod.get("status") or {}).get("startTime", now)
        shown.append(
            {
                "podRef": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
                "startTime": started,
                "containers": [
                    {
                        "name": name,
                        "startTime": started,
                        "cpu": _cpu(now, each.cpu_nano, each.cpu_seconds),
                        "memory": _memory(now, each.memory_bytes),
                    }
                    for name, each in containers.items()
                ],
                "cpu": _cpu(now, total.cpu_nano, total.cpu_seconds),
                "memory": _memory(now, total.memory_bytes),
            }
        )
    total = usage.total
    about = {
        "nodeName": node,
        "startTime": now,
        "cpu": _cpu(now, total.cpu_nano),
        "memory": _memory(now, total.memory_bytes),
    }
    return {"node": about, "pods": shown}


def _cpu(now: str, nano: int, seconds: float | None = None) -> Obj:
    found: Obj = {"time": now, "usageNanoCores": nano}
    if seconds is not None:
        found["usageCoreNanoSeconds"] = round(seconds * 1e9)
    return found


def _memory(now: str, used: int) -> Obj:
    return {"time": now, "usageBytes": used, "workingSetBytes": used}
