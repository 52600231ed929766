"""`/metrics` with its paths `cadvisor`, `resource` and `probes`.

Names, labels and types are the kubelet's. Values come from the containers that run and from their usage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.meta.exposition import CONTENT_TYPE, Family, counter, gauge, text
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import parse
from setpoint.node.kubelet_api.interface import (
    BufferedResponse,
    KubeletApiError,
    NodeHost,
    NodeRequest,
    NodeResponse,
    NodeUsage,
)
from setpoint.node.kubelet_api.node_info import requested_node, statuses_of
from setpoint.node.mirror_pods import is_mirror
from setpoint.node.runtime.interface import Usage

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_CPU_PERIOD = 100_000
_STATE_LABELS = (("running", "running"), ("terminated", "exited"), ("waiting", "created"))


Labels = dict[str, str]
Measured = list[tuple[Labels, float]]


class _Container(NamedTuple):
    """A running container and its usage."""

    pod: Pod
    name: str
    spec: ObjView
    status: ObjView
    usage: Usage
    details: ObjView
    """The container in the form of the Summary API; empty on simulated nodes."""

    def measured(self, part: str, field: str, default: float | None = None) -> float | None:
        """Return a value of the Summary API; `default` if it was not measured."""
        found: float | None = (self.details.get(part) or {}).get(field)
        return default if found is None else found

    @property
    def labels(self) -> Labels:
        meta = self.pod["metadata"]
        return {"container": self.name, "namespace": meta["namespace"], "pod": meta["name"]}

    @property
    def started(self) -> float:
        at = ((self.status.get("state") or {}).get("running") or {}).get("startedAt")
        return datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() if at else 0.0


async def metrics(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    families = await _BY_PATH["/".join(parts)](request, host, clock)
    return BufferedResponse(200, text(families).encode(), [("Content-Type", CONTENT_TYPE)])


def is_served(parts: list[str]) -> bool:
    """Return whether there are metrics at `/metrics/` followed by these segments."""
    return "/".join(parts) in _BY_PATH


def kubelet_families(host: NodeHost, nodes: Iterable[str]) -> list[Family]:
    """Return the metrics of one or several kubelets."""
    names = [*nodes]
    pods = [pod for name in names for pod in host.pods_on(name)]
    states = Counter(state for pod in pods for status in statuses_of(pod) for state in status.get("state") or ())
    running = sum(any("running" in (each.get("state") or {}) for each in statuses_of(pod)) for pod in pods)
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


async def _kubelet(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    return kubelet_families(host, [requested_node(request)])


async def _resource(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    try:
        usage = await host.usage(requested_node(request))
    except KubeletApiError as error:
        if error.status < 500:
            raise
        return [_scrape_error(1)]
    found = [*_running(usage)]
    pods = [
        ({"namespace": each.pod["metadata"]["namespace"], "pod": each.pod["metadata"]["name"]}, each.total)
        for each in usage.pods
    ]
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
            [({}, usage.total.cpu_seconds)],
        ),
        gauge(
            "node_memory_working_set_bytes",
            "[STABLE] Current working set of the node in bytes",
            [({}, usage.total.memory_bytes)],
        ),
        counter(
            "pod_cpu_usage_seconds_total",
            "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
            [(labels, total.cpu_seconds) for labels, total in pods],
        ),
        gauge(
            "pod_memory_working_set_bytes",
            "[STABLE] Current working set of the pod in bytes",
            [(labels, total.memory_bytes) for labels, total in pods],
        ),
        _scrape_error(0),
    ]


def _scrape_error(value: int) -> Family:
    help_text = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise"
    return gauge("resource_scrape_error", help_text, [({}, value)])


async def _cadvisor(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    node, now = host.node(requested_node(request)) or {}, clock.now().timestamp()
    capacity, info = (node.get("status") or {}).get("capacity") or {}, (node.get("status") or {}).get("nodeInfo") or {}
    usage = await host.usage(requested_node(request))
    found = [(_cadvisor_labels(each), each) for each in _running(usage)]

    def per_container(value: Callable[[_Container], float]) -> Measured:
        return [(labels, value(each)) for labels, each in found]

    def per_container_measured(part: str, field: str) -> Measured:
        return [(labels, value) for labels, each in found if (value := each.measured(part, field)) is not None]

    def memory_of(field: str) -> Measured:
        return [(labels, each.measured("memory", field, each.usage.memory_bytes) or 0) for labels, each in found]

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
    families = [
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
        gauge("container_memory_rss", "Size of RSS in bytes.", memory_of("rssBytes")),
        gauge(
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            memory_of("usageBytes"),
        ),
        gauge("container_memory_working_set_bytes", "Current working set in bytes.", memory_of("workingSetBytes")),
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
    measured = [
        gauge(
            "container_fs_usage_bytes",
            "Number of bytes that are consumed by the container on this filesystem.",
            per_container_measured("rootfs", "usedBytes"),
        ),
        *_network_families(usage),
    ]
    return families + [family for family in measured if family.samples]


_NETWORK = (
    ("receive_bytes", "rxBytes", "Cumulative count of bytes received"),
    ("receive_errors", "rxErrors", "Cumulative count of errors encountered while receiving"),
    ("transmit_bytes", "txBytes", "Cumulative count of bytes transmitted"),
    ("transmit_errors", "txErrors", "Cumulative count of errors encountered while transmitting"),
)
"""Name, field of the Summary API and help text of the metrics of network interfaces."""


def _network_families(usage: NodeUsage) -> Iterator[Family]:
    for name, field, help_text in _NETWORK:
        values: Measured = []
        for pod, _, _, details in usage.pods:
            meta = pod["metadata"]
            for each in (details.get("network") or {}).get("interfaces") or ():
                labels = {
                    "id": f"/kubepods/pod{meta['uid']}",
                    "interface": each["name"],
                    "namespace": meta["namespace"],
                    "pod": meta["name"],
                }
                values.append((labels, each[field]))
        yield counter(f"container_network_{name}_total", help_text, values)


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


async def _probes(request: NodeRequest, host: NodeHost, clock: Clock) -> list[Family]:
    counted: Measured = []
    for pod in host.pods_on(requested_node(request)):
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


_BY_PATH: dict[str, Callable[[NodeRequest, NodeHost, Clock], Awaitable[list[Family]]]] = {
    "": _kubelet,
    "cadvisor": _cadvisor,
    "resource": _resource,
    "probes": _probes,
}


def _running(usage: NodeUsage) -> Iterator[_Container]:
    for pod, _, measured, details in usage.pods:
        by_name = {each["name"]: each for each in details.get("containers") or ()}
        statuses = {each["name"]: each for each in statuses_of(pod)}
        spec: ObjView = pod["spec"]
        containers: dict[str, Any] = {}
        for field in ("initContainers", "containers", "ephemeralContainers"):
            containers |= {each["name"]: each for each in spec.get(field) or ()}
        for name, used in measured.items():
            yield _Container(pod, name, containers.get(name, {}), statuses.get(name, {}), used, by_name.get(name, {}))
