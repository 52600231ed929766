"""Eviction: thresholds, order, messages, conditions, and the loop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from stopped_clock import StoppedClock

from setpoint.node.host.disk_usage import DiskUsage, PodDiskUsage
from setpoint.node.host.eviction import (
    Eviction,
    EvictionManager,
    UsageView,
    eviction_message,
    is_critical,
    observe,
    rank,
    rejection,
    storage_violation,
)
from setpoint.node.host.eviction_signals import (
    DEFAULT_HARD,
    Observation,
    ThresholdError,
    parse_soft_thresholds,
    parse_thresholds,
    reserved_for_eviction,
    thresholds_met,
)
from setpoint.node.host.machine import Filesystem, Memory, Processes
from setpoint.node.host.stats import ContainerStats, CpuUsage, Measurement, MemoryUsage, NodeStats, PodStats

MI, GI = 1 << 20, 1 << 30


def pod(uid: str, *, priority: int = 0, request: str = "", storage: str = "", **spec: Any) -> Any:
    requests = {name: amount for name, amount in (("memory", request), ("ephemeral-storage", storage)) if amount}
    containers = [{"name": "app", "resources": {"requests": requests}}]
    return {"metadata": {"uid": uid, "name": uid}, "spec": {"containers": containers, "priority": priority, **spec}}


def stats(uid: str, memory: int = 0, disk: int = 0, processes: int = 0, inodes: int = 0) -> PodStats:
    measured = MemoryUsage(0, memory, memory)
    container = ContainerStats("app", "c", None, measured, disk, inodes)
    return PodStats(uid, uid, "default", None, measured, (), processes, {"app": container})


def filesystem(available: int, capacity: int = 100 * GI, device: int = 1, inodes_free: int = 900) -> Filesystem:
    return Filesystem(device, capacity, available, capacity - available, 1000, inodes_free)


def measurement(
    *pods: PodStats,
    available: int = 4 * GI,
    node_fs: Filesystem | None = None,
    image_fs: Filesystem | None = None,
    processes: int = 10,
    pods_cgroup: dict[str, int] | None = None,
) -> Measurement:
    node = NodeStats(
        CpuUsage(0, 0, None),
        Memory(8 * GI, available, 0, 0, 0),
        Processes(processes, 1000),
        node_fs or filesystem(50 * GI),
        image_fs or filesystem(50 * GI),
        None,
        0.0,
        (),
        pods_cgroup or {},
    )
    return Measurement(datetime(2030, 1, 1, tzinfo=UTC), node, {each.uid: each for each in pods})


# -- thresholds ----------------------------------------------------------------------------------------------------


def test_defaults() -> None:
    found = {each.signal: each for each in parse_thresholds(DEFAULT_HARD)}
    assert sorted(found) == [
        "allocatableMemory.available",
        "imagefs.available",
        "imagefs.inodesFree",
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
    ]
    assert found["memory.available"].amount(8 * GI).text == "100Mi"
    assert found["nodefs.available"].amount(20_629_221_376).value() == 2_062_922_168
    reserved = reserved_for_eviction(found.values(), {"memory": 8 * GI, "ephemeral-storage": 20_629_221_376})
    assert reserved == {"memory": 100 * MI, "ephemeral-storage": 2_062_922_168}


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ({"cpu.available": "1"}, "unsupported eviction signal cpu.available"),
        ({"memory.available": "-1Mi"}, "eviction threshold memory.available must be positive: -1Mi"),
        ({"memory.available": "0"}, "must be positive: 0"),
        ({"memory.available": "101%"}, "must be <= 100%: 101%"),
        ({"memory.available": "-1%"}, "must be >= 0%: -1%"),
        ({"memory.available": "x%"}, "is not a number: x%"),
        ({"memory.available": "nan%"}, "must be <= 100%"),
        ({"memory.available": "many"}, "quantities must match"),
    ],
)
def test_invalid_thresholds(statements: dict[str, str], message: str) -> None:
    with pytest.raises(ThresholdError, match=message.replace("(", r"\(")):
        parse_thresholds(statements)


def test_disabled_thresholds() -> None:
    assert parse_thresholds({"memory.available": "0%", "nodefs.available": "100%"}) == ()


def test_soft_thresholds() -> None:
    (found,) = parse_soft_thresholds({"memory.available": "1Gi"}, {"memory.available": "1m30s"})
    assert found.grace_seconds == 90
    with pytest.raises(ThresholdError, match="grace period must be specified for the soft eviction threshold memory"):
        parse_soft_thresholds({"memory.available": "1Gi"}, {})
    with pytest.raises(ThresholdError, match="invalid duration"):
        parse_soft_thresholds({"memory.available": "1Gi"}, {"memory.available": "soon"})


def test_which_thresholds_are_met() -> None:
    thresholds = parse_thresholds({"memory.available": "100Mi", "nodefs.available": "10%"}, allocatable=False)
    met = thresholds_met(thresholds, {"memory.available": Observation(100 * MI, GI)})
    assert met == ()
    seen = {"memory.available": Observation(100 * MI - 1, GI), "nodefs.available": Observation(9, 100)}
    assert thresholds_met(thresholds, seen) == thresholds


def test_observations() -> None:
    seen = observe(measurement(available=GI, pods_cgroup={"available": 5, "working_set": 7}))
    assert seen["memory.available"] == (GI, 8 * GI, "BinarySI")
    assert seen["allocatableMemory.available"][:2] == (5, 12)
    assert seen["nodefs.inodesFree"] == (900, 1000, "DecimalSI")
    assert seen["pid.available"] == (990, 1000, "DecimalSI")
    assert "allocatableMemory.available" not in observe(measurement())
    without_inodes = filesystem(1)._replace(inodes=0)
    assert "nodefs.inodesFree" not in observe(measurement(node_fs=without_inodes))


# -- order ---------------------------------------------------------------------------------------------------------


def names(pods: Any) -> list[str]:
    return [each["metadata"]["uid"] for each in pods]


def test_memory_pressure() -> None:
    pods = [
        pod("within", request="1Gi"),
        pod("above-important", priority=10, request="1Mi"),
        pod("above-little", request="100Mi"),
        pod("above-much"),
        pod("unmeasured", priority=5),
    ]
    usage = UsageView(
        {
            "within": stats("within", 900 * MI),
            "above-important": stats("above-important", 800 * MI),
            "above-little": stats("above-little", 200 * MI),
            "above-much": stats("above-much", 150 * MI),
        }
    )
    assert names(rank(pods, "memory.available", usage)) == [
        "unmeasured",
        "above-much",
        "above-little",
        "above-important",
        "within",
    ]


def test_process_pressure() -> None:
    pods = [pod("many-important", priority=1), pod("few"), pod("many")]
    usage = UsageView(
        {
            "many-important": stats("many-important", processes=900),
            "few": stats("few", processes=2),
            "many": stats("many", processes=50),
        }
    )
    assert names(rank(pods, "pid.available", usage)) == ["many", "few", "many-important"]


def test_disk_pressure_measures_the_file_system_that_is_full() -> None:
    pods = [pod("layers"), pod("volumes")]
    disks = {
        "layers": PodDiskUsage(0, {"v": DiskUsage(10, 1)}),
        "volumes": PodDiskUsage(0, {"v": DiskUsage(500, 1)}),
    }
    measured = {"layers": stats("layers", disk=600, inodes=5), "volumes": stats("volumes", disk=1, inodes=50)}
    together, apart = UsageView(measured, disks), UsageView(measured, disks, dedicated_image_fs=True)
    assert names(rank(pods, "nodefs.available", together)) == ["layers", "volumes"]
    assert names(rank(pods, "nodefs.available", apart)) == ["volumes", "layers"]
    assert names(rank(pods, "imagefs.available", apart)) == ["layers", "volumes"]
    assert names(rank(pods, "imagefs.inodesFree", apart)) == ["volumes", "layers"]
    requesting = [pod("layers", storage="1Ki"), pod("volumes")]
    assert names(rank(requesting, "nodefs.available", together)) == ["volumes", "layers"]


# -- messages ------------------------------------------------------------------------------------------------------


def test_the_message_of_a_node_without_memory() -> None:
    usage = UsageView({"a": stats("a", 200 * MI)})
    thresholds = parse_thresholds(DEFAULT_HARD)
    seen = {"memory.available": Observation(50 * MI, 8 * GI)}
    assert eviction_message("memory", pod("a", request="64Mi"), usage, thresholds, seen) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container app was using 200Mi, request is 64Mi, has larger consumption of memory. "
    )
    assert eviction_message("memory", pod("a", request="1Gi"), usage, thresholds, seen) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    level = pod("a", resources={"requests": {"memory": "10Mi"}}, request="1Gi")
    assert eviction_message("memory", level, usage, (), seen) == (
        "The node was low on resource: memory. Pod a was using 200Mi, request is 10Mi, has larger consumption of memory. "
    )
    assert eviction_message("pids", pod("b"), usage, (), {}) == "The node was low on resource: pids. "


def test_the_message_of_a_node_without_space() -> None:
    disks = {"a": PodDiskUsage(0, {}, {"app": DiskUsage(1024, 1)})}
    usage = UsageView({"a": stats("a", disk=1024)}, disks)
    seen = {"nodefs.available": Observation(5 * GI, 100 * GI)}
    thresholds = parse_thresholds({"nodefs.available": "10%"})
    assert eviction_message("ephemeral-storage", pod("a"), usage, thresholds, seen) == (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 10737418400, available: 5Gi. "
        "Container app was using 2Ki, request is 0, has larger consumption of ephemeral-storage. "
    )


def test_storage_limits() -> None:
    volumes = [{"name": "cache", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "ram", "emptyDir": {"medium": "Memory"}}]
    made = pod("a", volumes=volumes)
    usage = UsageView({"a": stats("a")}, {"a": PodDiskUsage(0, {"cache": DiskUsage(MI + 1, 1)})})
    assert storage_violation(made, usage) == 'Usage of EmptyDir volume "cache" exceeds the limit "1Mi". '
    usage = UsageView({"a": stats("a")}, {"a": PodDiskUsage(0, {"cache": DiskUsage(MI, 1)})})
    assert storage_violation(made, usage) == ""
    assert storage_violation(made, UsageView({})) == ""

    limited = pod("a")
    limited["spec"]["containers"][0]["resources"] = {"limits": {"ephemeral-storage": "1Ki"}}
    usage = UsageView({"a": stats("a", disk=1000)}, {"a": PodDiskUsage(0, {}, {"app": DiskUsage(25, 1)})})
    assert storage_violation(limited, usage) == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. "
    )
    limited["spec"]["containers"].append({"name": "b", "resources": {"limits": {"ephemeral-storage": "1Mi"}}})
    assert storage_violation(limited, usage) == 'Container app exceeded its local ephemeral storage limit "1Ki". '
    assert storage_violation(limited, UsageView(usage.pods, usage.disks, dedicated_image_fs=True)) == ""


def test_admission() -> None:
    burstable = pod("a", request="1Mi")
    assert rejection(pod("a"), ()) == ""
    assert rejection(pod("a"), ["MemoryPressure"]) == "The node had condition: [MemoryPressure]. "
    assert rejection(burstable, ["MemoryPressure"]) == ""
    assert rejection(burstable, ["MemoryPressure", "DiskPressure"]) == (
        "The node had condition: [DiskPressure MemoryPressure]. "
    )
    tolerating = pod("a", tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}])
    assert rejection(tolerating, ["MemoryPressure"]) == ""
    assert rejection(tolerating, ["DiskPressure"]) != ""
    assert rejection(pod("a", priority=2_000_000_000), ["DiskPressure"]) == ""


def test_critical_pods() -> None:
    assert not is_critical(pod("a", priority=1_999_999_999))
    assert is_critical(pod("a", priority=2_000_001_000))
    for annotation in ({"kubernetes.io/config.mirror": "x"}, {"kubernetes.io/config.source": "file"}):
        static = pod("a")
        static["metadata"]["annotations"] = annotation
        assert is_critical(static)


# -- the manager ---------------------------------------------------------------------------------------------------


class Harness:
    def __init__(self, *pods: Any, thresholds: Any = None, **options: Any) -> None:
        self.clock = StoppedClock()
        self.pods = list(pods)
        self.measured = measurement()
        self.disks: dict[str, PodDiskUsage] = {}
        self.evicted: list[Eviction] = []
        self.events: list[tuple[str, str]] = []
        self.reclaims = 0
        self.after_reclaim: Measurement | None = None
        self.manager = EvictionManager(
            self.clock,
            parse_thresholds(DEFAULT_HARD) if thresholds is None else thresholds,
            self.measure,
            lambda: self.pods,
            self.evict,
            lambda uid: uid not in names(self.pods),
            self.reclaim,
            lambda reason, message: self.events.append((reason, message)),
            **options,
        )

    async def measure(self) -> tuple[Measurement, dict[str, PodDiskUsage]]:
        return self.measured, self.disks

    async def evict(self, eviction: Eviction) -> None:
        self.evicted.append(eviction)

    async def reclaim(self) -> None:
        self.reclaims += 1
        self.measured = self.after_reclaim or self.measured


async def test_one_pod_is_evicted_for_memory_and_the_condition_stays() -> None:
    harness = Harness(pod("critical", priority=2_000_000_000), pod("small"), pod("large"))
    assert await harness.manager.synchronize() == []
    assert harness.manager.conditions() == frozenset()
    harness.measured = measurement(stats("small", MI), stats("large", GI), available=50 * MI)
    assert await harness.manager.synchronize() == ["large"]
    (eviction,) = harness.evicted
    assert (eviction.grace_seconds, eviction.disruption) == (1, True)
    assert eviction.message.startswith(
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    assert harness.events == [("EvictionThresholdMet", "Attempting to reclaim memory")]
    assert harness.reclaims == 0
    harness.measured = measurement()
    await harness.clock.advance(299)
    assert await harness.manager.synchronize() == []
    assert harness.manager.conditions() == {"MemoryPressure"}
    await harness.clock.advance(1)
    assert harness.manager.conditions() == frozenset()


async def test_disk_space_is_reclaimed_before_pods_are_evicted() -> None:
    harness = Harness(pod("a"))
    full = filesystem(GI)
    harness.measured = measurement(stats("a"), node_fs=full, image_fs=full)
    harness.after_reclaim = measurement(stats("a"))
    assert await harness.manager.synchronize() == []
    assert (harness.reclaims, harness.evicted) == (1, [])
    assert harness.manager.conditions() == {"DiskPressure"}
    harness.after_reclaim = None
    harness.measured = measurement(stats("a"), node_fs=full, image_fs=full)
    assert await harness.manager.synchronize() == ["a"]
    assert harness.evicted[0].message.startswith("The node was low on resource: ephemeral-storage. ")


async def test_images_are_not_removed_for_another_file_system() -> None:
    harness = Harness(pod("a"))
    harness.measured = measurement(stats("a"), node_fs=filesystem(GI), image_fs=filesystem(50 * GI, device=2))
    assert await harness.manager.synchronize() == ["a"]
    assert harness.reclaims == 0


async def test_a_soft_threshold_waits() -> None:
    thresholds = parse_soft_thresholds({"memory.available": "1Gi"}, {"memory.available": "1m"})
    harness = Harness(pod("a", terminationGracePeriodSeconds=30), thresholds=thresholds, max_pod_grace_seconds=20)
    harness.measured = measurement(stats("a", MI), available=100 * MI)
    assert await harness.manager.synchronize() == []
    assert harness.manager.conditions() == {"MemoryPressure"}
    await harness.clock.advance(59)
    harness.measured = measurement(stats("a", MI))
    assert await harness.manager.synchronize() == []
    harness.measured = measurement(stats("a", MI), available=100 * MI)
    assert await harness.manager.synchronize() == []
    await harness.clock.advance(60)
    assert await harness.manager.synchronize() == ["a"]
    assert harness.evicted[0].grace_seconds == 20


async def test_pods_above_their_own_limits_are_evicted_together() -> None:
    volumes = [{"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}]
    critical = pod("d", volumes=volumes, priority=2_000_000_000)
    harness = Harness(pod("a", volumes=volumes), pod("b", volumes=volumes), pod("c", volumes=volumes), critical)
    harness.disks = {
        uid: PodDiskUsage(0, {"v": DiskUsage(size, 1)})
        for uid, size in (("a", 2000), ("b", 1), ("c", 9999), ("d", 9999))
    }
    harness.measured = measurement(*(stats(uid) for uid in "abcd"))
    assert await harness.manager.synchronize() == ["a", "c"]
    assert [each.disruption for each in harness.evicted] == [False, False]


async def test_memory_comes_first() -> None:
    harness = Harness(pod("a"))
    full = filesystem(GI)
    harness.measured = measurement(stats("a"), node_fs=full, image_fs=full, available=MI)
    await harness.manager.synchronize()
    assert "resource: memory" in harness.evicted[0].message
    assert harness.manager.conditions() == {"MemoryPressure", "DiskPressure"}


async def test_the_loop_waits_until_the_pod_is_gone_and_survives_errors() -> None:
    harness = Harness(pod("a"), pod("b"))
    harness.measured = measurement(stats("a", GI), stats("b", MI), available=MI)
    task = asyncio.ensure_future(harness.manager.run())
    await harness.clock.advance(5)
    assert names(each.pod for each in harness.evicted) == ["a"]
    harness.pods = [harness.pods[1]]
    await harness.clock.advance(1)
    assert names(each.pod for each in harness.evicted) == ["a", "b"]

    harness.pods, harness.measured = [], measurement()
    fails = True

    async def measure() -> tuple[Measurement, dict[str, PodDiskUsage]]:
        if fails:
            raise OSError("the runtime is away")
        return measurement(available=MI), {}

    harness.manager.measure = measure
    await harness.clock.advance(20)
    fails = False
    await harness.clock.advance(10)
    assert harness.events[-1] == ("EvictionThresholdMet", "Attempting to reclaim memory")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
