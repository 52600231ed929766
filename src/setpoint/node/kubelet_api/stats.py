"""`/pods`, `/healthz`, `/stats/summary` and `/metrics/resource`: a node about itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from setpoint.meta.clock import Clock
from setpoint.meta.times import format_time
from setpoint.node.kubelet_api.host import NodeHost
from setpoint.node.kubelet_api.messages import JSON, NodeAnswer, NodeRequest, Refused, Whole

Obj = dict[str, Any]

SYSTEM_CPU_NANO, SYSTEM_MEMORY = 25_000_000, 128 << 20
"""What a simulated node takes for itself."""
_METRICS = {
    "container_cpu_usage_seconds_total": ("counter", "Cumulative cpu time consumed by the container in core-seconds"),
    "container_memory_working_set_bytes": ("gauge", "Current working set of the container in bytes"),
    "node_cpu_usage_seconds_total": ("counter", "Cumulative cpu time consumed by the node in core-seconds"),
    "node_memory_working_set_bytes": ("gauge", "Current working set of the node in bytes"),
    "pod_cpu_usage_seconds_total": ("counter", "Cumulative cpu time consumed by the pod in core-seconds"),
    "pod_memory_working_set_bytes": ("gauge", "Current working set of the pod in bytes"),
    "resource_scrape_error": ("gauge", "1 if there was an error while getting container metrics, 0 otherwise"),
}
_PROMETHEUS = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")


def healthz(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    return Whole(200, b"ok")


def pods(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    items = [dict(pod) for pod in host.pods_on(_named(request))]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    return Whole(200, orjson.dumps(body), [JSON])


def summary(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    node, now = _named(request), format_time(clock.now())
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


def resource_metrics(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeAnswer:
    lines: dict[str, list[str]] = {name: [] for name in _METRICS}
    seconds, memory = 0.0, SYSTEM_MEMORY
    for pod in host.pods_on(_named(request)):
        meta, usage = pod["metadata"], host.usage(pod)
        labels = f'namespace="{meta["namespace"]}",pod="{meta["name"]}"'
        for name, each in usage.items():
            own = f'{{container="{name}",{labels}}}'
            lines["container_cpu_usage_seconds_total"].append(f"{own} {each.cpu_seconds:g}")
            lines["container_memory_working_set_bytes"].append(f"{own} {each.memory_bytes}")
        if usage:
            used, held = sum(e.cpu_seconds for e in usage.values()), sum(e.memory_bytes for e in usage.values())
            lines["pod_cpu_usage_seconds_total"].append(f"{{{labels}}} {used:g}")
            lines["pod_memory_working_set_bytes"].append(f"{{{labels}}} {held}")
            seconds, memory = seconds + used, memory + held
    lines["node_cpu_usage_seconds_total"].append(f" {seconds:g}")
    lines["node_memory_working_set_bytes"].append(f" {memory}")
    lines["resource_scrape_error"].append(" 0")
    return Whole(200, "".join(_exposed(lines)).encode(), [_PROMETHEUS])


def _exposed(lines: dict[str, list[str]]) -> Iterator[str]:
    for name, (kind, text) in _METRICS.items():
        if lines[name]:
            yield f"# HELP {name} [STABLE] {text}\n# TYPE {name} {kind}\n"
            yield from (f"{name}{line}\n" for line in lines[name])


def _named(request: NodeRequest) -> str:
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
