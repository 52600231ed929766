"""`/pods`, `/healthz` and `/stats/summary`: a node about itself."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta.clock import Clock
from setpoint.meta.times import format_time
from setpoint.node.kubelet_api.host import NodeHost
from setpoint.node.kubelet_api.messages import JSON, NodeAnswer, NodeRequest, Refused, Whole

Obj = dict[str, Any]

SYSTEM_CPU_NANO, SYSTEM_MEMORY = 25_000_000, 128 << 20
"""What a simulated node takes for itself."""


def healthz(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    return Whole(200, b"ok")


def pods(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    items = [dict(pod) for pod in host.pods_on(named(request))]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    return Whole(200, orjson.dumps(body), [JSON])


def summary(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    node, now = named(request), format_time(clock.now())
    shown: list[Obj] = []
    cpu, memory = SYSTEM_CPU_NANO, SYSTEM_MEMORY
    for pod in host.pods_on(node):
        usage = host.usage(pod)
        if not usage:
            continue
        meta, started = pod["metadata"], (pod.get("status") or {}).get("startTime", now)
        own_cpu = sum(each.cpu_nano for each in usage.values())
        own_memory = sum(each.memory_bytes for each in usage.values())
        cpu, memory = cpu + own_cpu, memory + own_memory
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
                    for name, each in usage.items()
                ],
                "cpu": _cpu(now, own_cpu, sum(each.cpu_seconds for each in usage.values())),
                "memory": _memory(now, own_memory),
            }
        )
    about = {"nodeName": node, "startTime": now, "cpu": _cpu(now, cpu), "memory": _memory(now, memory)}
    return Whole(200, orjson.dumps({"node": about, "pods": shown}), [JSON])


def named(request: NodeRequest) -> str:
    if not request.node:
        raise Refused(404, "several nodes are served here: it is not clear which one is meant")
    return request.node


def _cpu(now: str, nano: int, seconds: float | None = None) -> Obj:
    found: Obj = {"time": now, "usageNanoCores": nano}
    if seconds is not None:
        found["usageCoreNanoSeconds"] = round(seconds * 1e9)
    return found


def _memory(now: str, used: int) -> Obj:
    return {"time": now, "usageBytes": used, "workingSetBytes": used}
