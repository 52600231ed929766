"""`/pods`, `/healthz`, `/stats/summary`, and `/metrics` with its paths `cadvisor`, `resource` and `probes`.

Names, labels and types are the kubelet's. Values come from the containers that run and from their simulated usage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from setpoint.meta.clock import Clock
from setpoint.meta.exposition import CONTENT_TYPE, Family, counter, gauge, text
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import parse
from setpoint.meta.times import format_time
from setpoint.node.kubelet_api.interface import (
    JSON,
    BufferedResponse,
    KubeletApiError,
    NodeHost,
    NodeRequest,
    NodeResponse,
)
from setpoint.node.runtime.interface import Usage
from setpoint.node.static_pods import is_mirror

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

SYSTEM_CPU_NANO, SYSTEM_MEMORY = 25_000_000, 128 << 20
"""The usage of a simulated node without its Pods."""
_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_CPU_PERIOD = 100_000
_STATE_LABELS = (("running", "running"), ("terminated", "exited"), ("waiting", "created"))


def healthz(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    return BufferedResponse(200, b"ok")


def pods(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    items = [dict(pod) for pod in host.pods_on(_requested_node(request))]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
    return BufferedResponse(200, orjson.dumps(body), [JSON])


def summary(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    node, now = _requested_node(request), format_time(clock.now())
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
    return BufferedResponse(200, orjson.dumps({"node": about, "pods": shown}), [JSON])


def _requested_node(request: NodeRequest) -> str:
    if not request.node:
        raise KubeletApiError(404, "this endpoint serves several nodes, and the request does not name one")
    return request.node


def _cpu(now: str, nano: int, seconds: float | None = None) -> Obj:
    found: Obj = {"time": now, "usageNanoCores": nano}
    if seconds is not None:
        found["usageCoreNanoSeconds"] = round(seconds * 1e9)
    return found


def _memory(now: str, used: int) -> Obj:
    return {"time": now, "usageBytes": used, "workingSetBytes": used}


Labels = dict[str, str]
Measured = list[tuple[Labels, float]]


class _Container(NamedTuple):
    """A running container and its usage."""

    pod: Pod
    name: str
    spec: ObjView
    status: ObjView
    usage: Usage

    @property
    def labels(self) -> Labels:
        meta = self.pod["metadata"]
        return {"container": self.name, "namespace": meta["namespace"], "pod": meta["name"]}

    @property
    def started(self) -> float:
        at = ((self.status.get("state") or {}).get("running") or {}).get("startedAt")
        return datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() if at else 0.0


def metrics(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    families = _BY_PATH["/".join(parts)](request, host, clock)
    return BufferedResponse(200, text(families).encode(), [("Content-Type", CONTENT_TYPE)])


def is_served(parts: list[str]) -> bool:
    """Return whether there are metrics at `/metrics/` followed by these segments."""
    return "/".join(parts) in _BY_PATH


def kubelet_families(host: NodeHost, nodes: Iterable[str]) -> list[Family]:
    """Return the metrics of one or several kubelets."""
    names = [*nodes]
    pods = [pod for name in names for pod in host.pods_on(name)]
    states = Counter(state for pod in pods for status in _statuses(pod) for state in status.get("state") or ())
    running = sum(any("running" in (each.get("state") or {}) for each in _statuses(pod)) for pod in pods)
    active = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
    mirrors = sum(map(is_mirror, pods))
    containers = [({"container_state": shown}, states[state]) for state, shown in _STATE_LABELS if states[state]]
    return [
        gauge(
            "kubelet_node_name", "[ALPHA] The node's name. The count is always 1.", [({"node": n}, 1) for n in names]
        ),
        gauge("kubelet_running_pods", "[ALPHA] Number of pods that have a running pod sandbox", [({}, running)]),
        gauge("kubelet_running_containers", "[ALPHA] Number of containers currently running", containers),
        gauge(
            "kubelet_desired_pods",
            "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from "
            "the apiserver.",
            [({"static": ""}, len(pods) - mirrors), ({"static": "true"}, mirrors)],
        ),
        gauge(
            "kubelet_active_pods",
            "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new "
            "pods. static is true if the pod is not from the apiserver.",
            [({"static": ""}, len(active) - mirrors), ({"static": "true"}, mirrors)],
        ),
    ]


def _kubelet(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    return kubelet_families(host, [_requested_node(request)])


def _resource(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    found = [*_running(host, _requested_node(request))]
    by_pod: dict[tuple[str, str], list[Usage]] = {}
    for each in found:
        meta = each.pod["metadata"]
        by_pod.setdefault((meta["namespace"], meta["name"]), []).append(each.usage)
    seconds = sum(each.usage.cpu_seconds for each in found)
    memory = SYSTEM_MEMORY + sum(each.usage.memory_bytes for each in found)
    pods = [({"namespace": namespace, "pod": pod}, usages) for (namespace, pod), usages in by_pod.items()]
    return [
        counter(
            "container_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
            [(each.labels, each.usage.cpu_seconds) for each in found],
        ),
        gauge(
            "container_memory_working_set_bytes",
            "[STABLE] Current working set of the container in bytes",
            [(each.labels, each.usage.memory_bytes) for each in found],
        ),
        gauge(
            "container_start_time_seconds",
            "[STABLE] Start time of the container since unix epoch in seconds",
            [(each.labels, each.started) for each in found],
        ),
        counter(
            "node_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
            [({}, seconds)],
        ),
        gauge("node_memory_working_set_bytes", "[STABLE] Current working set of the node in bytes", [({}, memory)]),
        counter(
            "pod_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
            [(labels, sum(each.cpu_seconds for each in usages)) for labels, usages in pods],
        ),
        gauge(
            "pod_memory_working_set_bytes",
            "[STABLE] Current working set of the pod in bytes",
            [(labels, sum(each.memory_bytes for each in usages)) for labels, usages in pods],
        ),
        gauge(
            "resource_scrape_error",
            "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
            [({}, 0)],
        ),
    ]


def _cadvisor(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    node, now = host.node(_requested_node(request)) or {}, clock.now().timestamp()
    capacity, info = (node.get("status") or {}).get("capacity") or {}, (node.get("status") or {}).get("nodeInfo") or {}
    found = [(_cadvisor_labels(each), each) for each in _running(host, _requested_node(request))]

    def per_container(value: Callable[[_Container], float]) -> Measured:
        return [(labels, value(each)) for labels, each in found]

    def per_container_resource(kind: str, resource: str, scale: float) -> Measured:
        measured = []
        for labels, each in found:
            amount = ((each.spec.get("resources") or {}).get(kind) or {}).get(resource)
            if amount:
                measured.append((labels, parse(amount).milli_value() * scale))
        return measured

    versions = {"kernelVersion": info.get("kernelVersion", ""), "osVersion": info.get("osImage", "")}
    machine = {
        "boot_id": info.get("bootID", ""),
        "machine_id": info.get("machineID", ""),
        "system_uuid": info.get("systemUUID", ""),
    }
    memory = per_container(lambda each: each.usage.memory_bytes)
    return [
        gauge(
            "cadvisor_version_info",
            "Kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
            [(versions, 1)],
        ),
        counter(
            "container_cpu_usage_seconds_total",
            "Cumulative cpu time consumed in seconds.",
            [({**labels, "cpu": "total"}, each.usage.cpu_seconds) for labels, each in found],
        ),
        gauge(
            "container_last_seen", "Last time a container was seen by the exporter", per_container(lambda _: int(now))
        ),
        gauge("container_memory_rss", "Size of RSS in bytes.", memory),
        gauge(
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            memory,
        ),
        gauge("container_memory_working_set_bytes", "Current working set in bytes.", memory),
        gauge("container_spec_cpu_period", "CPU period of the container.", per_container(lambda _: _CPU_PERIOD)),
        gauge(
            "container_spec_cpu_quota",
            "CPU quota of the container.",
            per_container_resource("limits", "cpu", _CPU_PERIOD / 1000),
        ),
        gauge(
            "container_spec_memory_limit_bytes",
            "Memory limit for the container.",
            per_container_resource("limits", "memory", 0.001),
        ),
        gauge(
            "container_start_time_seconds",
            "Start time of the container since unix epoch in seconds.",
            per_container(lambda each: each.started),
        ),
        gauge(
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            [(machine, parse(capacity["cpu"]).value())] if "cpu" in capacity else [],
        ),
        gauge(
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            [(machine, parse(capacity["memory"]).value())] if "memory" in capacity else [],
        ),
        gauge("machine_scrape_error", "1 if there was an error while getting machine metrics, 0 otherwise.", [({}, 0)]),
        gauge(
            "container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", [({}, 0)]
        ),
    ]


def _cadvisor_labels(each: _Container) -> Labels:
    meta, identity = each.pod["metadata"], str(each.status.get("containerID", "")).partition("://")[2]
    return {
        "container": each.name,
        "id": f"/kubepods/pod{meta['uid']}/{identity}",
        "image": each.status.get("image", ""),
        "name": identity,
        "namespace": meta["namespace"],
        "pod": meta["name"],
    }


def _probes(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    counted: Measured = []
    for pod in host.pods_on(_requested_node(request)):
        meta = pod["metadata"]
        for each in host.probe_counts(pod):
            labels = {
                "container": each.container,
                "namespace": meta["namespace"],
                "pod": meta["name"],
                "pod_uid": meta["uid"],
                "probe_type": each.kind.capitalize(),
            }
            for result, count in (("failed", each.failed), ("successful", each.successful)):
                if count:
                    counted.append(({**labels, "result": result}, count))
    help_text = "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result."
    return [counter("prober_probe_total", help_text, counted)]


_BY_PATH: dict[str, Callable[[NodeRequest, NodeHost, Clock], list[Family]]] = {
    "": _kubelet,
    "cadvisor": _cadvisor,
    "resource": _resource,
    "probes": _probes,
}


def _statuses(pod: Pod) -> Iterator[ObjView]:
    status: ObjView = pod.get("status") or {}
    for field in _STATUSES:
        yield from status.get(field) or ()


def _running(host: NodeHost, node: str) -> Iterator[_Container]:
    for pod in host.pods_on(node):
        usage = host.usage(pod)
        if not usage:
            continue
        statuses = {each["name"]: each for each in _statuses(pod)}
        spec: ObjView = pod["spec"]
        containers: dict[str, Any] = {}
        for field in ("initContainers", "containers", "ephemeralContainers"):
            containers |= {each["name"]: each for each in spec.get(field) or ()}
        for name, used in usage.items():
            yield _Container(pod, name, containers.get(name, {}), statuses.get(name, {}), used)
