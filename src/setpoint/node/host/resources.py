"""Resources of sandboxes and containers, as limits of cgroups and scores of the kernel's OOM killer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from setpoint.kinds.core.podspec.annotations import MIRROR
from setpoint.kinds.core.podspec.resources import (
    BEST_EFFORT,
    GUARANTEED,
    Amounts,
    aggregate_limits,
    aggregate_requests,
    is_sidecar,
    qos_class,
)
from setpoint.kinds.core.resources import is_huge_page, is_pod_level
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import parse
from setpoint.node.host.pod_settings import PodConfigSettings
from setpoint.node.host.runtime_labels import CONFIG_SOURCE

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

CPU_PERIOD = 100_000
"""The period of CPU quotas in microseconds."""
_MIN_CPU_QUOTA = 1000
_SHARES_PER_CPU, _MIN_SHARES, _MAX_SHARES = 1024, 2, 262_144
_GUARANTEED_SCORE, _BEST_EFFORT_SCORE = -997, 1000
_SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
_HUGE_PAGES = "hugepages-"
_MAX_INT64 = 2**63 - 1
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def cpu_shares(milli_cpu: int) -> int:
    return min(max(milli_cpu * _SHARES_PER_CPU // 1000, _MIN_SHARES), _MAX_SHARES)


def cpu_quota(milli_cpu: int) -> int:
    """Return the CPU time in microseconds per period; 0 means that it is not limited."""
    return min(max(milli_cpu * CPU_PERIOD // 1000, _MIN_CPU_QUOTA), _MAX_INT64) if milli_cpu else 0


def page_size_name(size: int) -> str:
    """Return a size of huge pages in bytes as the names of cgroup files contain it, such as `2MB`."""
    unit = 0
    while size and size % 1024 == 0 and unit < len(_UNITS) - 1:
        size //= 1024
        unit += 1
    return f"{size}{_UNITS[unit]}"


def pod_requests(pod: Pod) -> Amounts:
    """Return the requests of a Pod without its overhead: its own, or else the sum of its containers'."""
    return _with_pod_level(pod, "requests", aggregate_requests(pod["spec"]))


def pod_limits(pod: Pod) -> Amounts:
    """Return the limits of a Pod without its overhead: its own, or else the sum of its containers'."""
    return _with_pod_level(pod, "limits", aggregate_limits(pod["spec"]))


def sandbox_resources(pod: Pod, settings: PodConfigSettings) -> Obj:
    """Return CRI's LinuxContainerResources of the whole Pod, without its overhead."""
    requests, limits = pod_requests(pod), pod_limits(pod)
    cpu_limit = _milli(limits, "cpu")
    cpu_request = _milli(requests, "cpu") if "cpu" in requests else cpu_limit
    return _linux_resources(cpu_request, cpu_limit, _value(limits, "memory"), settings)


def sandbox_overhead(pod: Pod, settings: PodConfigSettings) -> Obj | None:
    """Return CRI's LinuxContainerResources of the Pod's overhead, or None if it has none."""
    overhead = pod["spec"].get("overhead")
    if overhead is None:
        return None
    cpu = _milli(overhead, "cpu")
    return _linux_resources(cpu, cpu, _value(overhead, "memory"), settings)


def container_resources(pod: Pod, spec: ObjView, settings: PodConfigSettings) -> Obj:
    """Return CRI's LinuxContainerResources of a container. Limits that it does not have are those of the Pod."""
    requests, limits = _amounts(spec, "requests"), _amounts(spec, "limits")
    level = _amounts(pod["spec"], "limits")
    cpu_limit = _milli(limits, "cpu") or _milli(level, "cpu")
    cpu_request = _milli(requests, "cpu") if "cpu" in requests else cpu_limit
    memory_limit = _value(limits, "memory") or _value(level, "memory")
    found = _linux_resources(cpu_request, cpu_limit, memory_limit, settings)
    found["oom_score_adj"] = oom_score_adj(pod, spec, settings)
    if settings.huge_page_sizes:
        every = _huge_pages(level) | _huge_pages(limits)
        found["hugepage_limits"] = [
            {"page_size": size, "limit": every.get(size, 0)} for size in settings.huge_page_sizes
        ]
    if settings.cgroup_version == 2:
        # Nothing is reserved: another value would be kept from reclaim even while other Pods lack memory.
        found["unified"] |= {"memory.min": "0", "memory.low": "0"}
        if settings.swap_controller:
            found["unified"]["memory.swap.max"] = "0"
    elif settings.swap_controller and memory_limit:
        found["memory_swap_limit_in_bytes"] = memory_limit
    return found


def oom_score_adj(pod: Pod, spec: ObjView, settings: PodConfigSettings) -> int:
    """Return the adjustment of the OOM killer's score: the smaller a container's share of the machine's memory that it
    requested, the earlier the kernel kills it for memory that it uses."""
    score = _oom_score_adj(pod, spec, settings.memory_capacity)
    floor = settings.min_oom_score_adj
    return score if floor is None else max(score, floor)


def _oom_score_adj(pod: Pod, spec: ObjView, capacity: int) -> int:
    quality = qos_class(pod)
    if _is_node_critical(pod) or quality == GUARANTEED:
        return _GUARANTEED_SCORE
    if quality == BEST_EFFORT:
        return _BEST_EFFORT_SCORE
    request = _value(_amounts(spec, "requests"), "memory")
    containers, init_containers = pod["spec"]["containers"], pod["spec"].get("initContainers") or ()
    if is_sidecar(spec) and any(each["name"] == spec["name"] for each in init_containers):
        # A sidecar outlives the containers that depend on it.
        smallest = min(_value(_amounts(each, "requests"), "memory") for each in containers)
        request = max(request, smallest)
    request += _unassigned_memory(pod) // (len(containers) + len(init_containers))
    score = 1000 - 1000 * request // max(capacity, 1)
    return min(max(score, 1000 + _GUARANTEED_SCORE), _BEST_EFFORT_SCORE - 1)


def _unassigned_memory(pod: Pod) -> int:
    """Return the memory that the Pod itself requests and none of its containers."""
    request = _value(_amounts(pod["spec"], "requests"), "memory")
    return max(request - _value(aggregate_requests(pod["spec"]), "memory"), 0) if request else 0


def _is_node_critical(pod: Pod) -> bool:
    if pod["spec"].get("priorityClassName") != "system-node-critical":
        return False
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(CONFIG_SOURCE, "api") != "api" or MIRROR in annotations:
        return True
    return (pod["spec"].get("priority") or 0) >= _SYSTEM_CRITICAL_PRIORITY


def _linux_resources(cpu_request: int, cpu_limit: int, memory_limit: int, settings: PodConfigSettings) -> Obj:
    found: Obj = {
        "cpu_shares": cpu_shares(cpu_request),
        "cpu_quota": cpu_quota(cpu_limit),
        "cpu_period": CPU_PERIOD,
    }
    if memory_limit:
        found["memory_limit_in_bytes"] = memory_limit
    if settings.cgroup_version == 2:
        # The kernel kills all processes of a container, not one of them that the others may wait for.
        found["unified"] = {"memory.oom.group": "1"}
    return found


def _with_pod_level(pod: Pod, which: str, total: Amounts) -> Amounts:
    level = _amounts(pod["spec"], which)
    return total | {name: amount for name, amount in level.items() if is_pod_level(name)}


def _amounts(owner: ObjView, which: str) -> Mapping[str, str]:
    return (owner.get("resources") or {}).get(which) or {}


def _milli(amounts: Mapping[str, str], name: str) -> int:
    return parse(amounts[name]).milli_value() if name in amounts else 0


def _value(amounts: Mapping[str, str], name: str) -> int:
    return _bounded(amounts[name]) if name in amounts else 0


def _bounded(amount: str) -> int:
    """Return a value in whole units, or the largest one of 64 bits if it is larger."""
    return min(parse(amount).value(), _MAX_INT64)


def _huge_pages(limits: Mapping[str, str]) -> dict[str, int]:
    """Return the limits of huge pages in bytes by the name of their size."""
    return {
        page_size_name(parse(name.removeprefix(_HUGE_PAGES)).value()): _bounded(amount)
        for name, amount in limits.items()
        if is_huge_page(name)
    }
