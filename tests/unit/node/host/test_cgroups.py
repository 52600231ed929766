"""Cgroups of Pods, of both versions, in directories that stand for the kernel's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stopped_clock import StoppedClock

from setpoint.node.host import cgroup_files
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cgroup_files import (
    UNLIMITED,
    CgroupError,
    CgroupsV1,
    CgroupsV2,
    Limits,
    cpu_weight,
    find_cgroups,
    remove_once,
)
from setpoint.node.host.cgroups import CgroupManager, pod_cgroup_limits, read_usage

MI = 1 << 20
MOUNTS_V1 = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
FILES_V1 = {
    "cpu": ("cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "cpuset": ("cpuset.cpus", "cpuset.mems"),
    "memory": ("memory.limit_in_bytes",),
    "pids": ("pids.max",),
}
FILES_V2 = ("cpu.weight", "cpu.max", "memory.max", "pids.max", "cgroup.subtree_control", "cgroup.controllers")


def pod(*containers: Any, uid: str = "u-1", **spec: Any) -> Any:
    listed = [{"name": f"c{number}", "resources": each} for number, each in enumerate(containers)]
    return {"metadata": {"uid": uid}, "spec": {"containers": listed, **spec}}


def resources(cpu: str = "", memory: str = "", cpu_limit: str = "", memory_limit: str = "") -> dict[str, Any]:
    requests, limits = {"cpu": cpu, "memory": memory}, {"cpu": cpu_limit, "memory": memory_limit}
    return {
        "requests": {name: amount for name, amount in requests.items() if amount},
        "limits": {name: amount for name, amount in limits.items() if amount},
    }


GUARANTEED = resources("500m", "64Mi", "500m", "64Mi")


@pytest.mark.parametrize(
    ("made", "limits"),
    [
        (pod({}), Limits(2, UNLIMITED, UNLIMITED, UNLIMITED)),
        (pod(GUARANTEED), Limits(512, 50_000, 64 * MI, UNLIMITED)),
        (pod(resources("100m", "1Mi")), Limits(102, UNLIMITED, UNLIMITED, UNLIMITED)),
        # The sum of the limits bounds the Pod only if all containers have one.
        (pod(GUARANTEED, resources("250m", cpu_limit="1")), Limits(768, 150_000, UNLIMITED, UNLIMITED)),
        (pod(GUARANTEED, {}), Limits(512, UNLIMITED, UNLIMITED, UNLIMITED)),
        (
            pod({}, resources=resources("1", "8Mi", "2", "16Mi")),
            Limits(1024, 200_000, 16 * MI, UNLIMITED),
        ),
        (
            pod(GUARANTEED, overhead={"cpu": "250m", "memory": "16Mi"}),
            Limits(768, 75_000, 80 * MI, UNLIMITED),
        ),
    ],
)
def test_limits_of_a_pod(made: Any, limits: Limits) -> None:
    assert pod_cgroup_limits(made) == limits


def test_processes_and_huge_pages() -> None:
    made = pod({"requests": {"hugepages-2Mi": "4Mi", "cpu": "1"}, "limits": {"hugepages-2Mi": "4Mi"}})
    found = pod_cgroup_limits(made, 100, (2 * MI, 1 << 30))
    assert found.pids == 100
    assert found.huge_pages == {2 * MI: 4 * MI, 1 << 30: 0}


def test_the_status_does_not_count() -> None:
    made = pod(GUARANTEED)
    made["status"] = {
        "containerStatuses": [{"name": "c0", "allocatedResources": {"cpu": "4"}}],
        "qosClass": "Guaranteed",
    }
    assert pod_cgroup_limits(made).cpu_shares == 512


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 100), (262_144, 10_000), (102, 17), (512, 59)])
def test_weights(shares: int, weight: int) -> None:
    assert cpu_weight(shares) == weight


def test_the_version_is_found_by_the_mounts() -> None:
    first = find_cgroups(MOUNTS_V1)
    assert first.version == 1
    assert {str(each) for each in first.directories("/a")} == {
        "/sys/fs/cgroup/cpu,cpuacct/a",
        "/sys/fs/cgroup/memory/a",
        "/sys/fs/cgroup/systemd/a",
        "/sys/fs/cgroup/unified/a",
    }
    second = find_cgroups("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    assert (second.version, second.directories("/a/b")) == (2, [Path("/sys/fs/cgroup/a/b")])
    with pytest.raises(CgroupError, match="no cgroup file system"):
        find_cgroups("proc /proc proc rw 0 0\n")


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    made = BlockingPool(2)
    yield made
    made.close()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let directories have the kernel's files when they are created, and be removed with them."""
    original, remove = Path.mkdir, Path.rmdir

    def mkdir(self: Path, *args: Any, **options: Any) -> None:
        missing = [each for each in (self, *self.parents) if not each.exists()]
        original(self, *args, **options)
        for each in missing:
            for controller, names in FILES_V1.items():
                if f"/v1/{controller}/" in f"{each}/":
                    for name in names:
                        (each / name).touch()
            if "/v2/" in f"{each}/":
                for name in FILES_V2:
                    (each / name).touch()
                (each / "cgroup.controllers").write_text("cpu memory pids io")

    def rmdir(self: Path) -> None:
        if any(each.is_dir() for each in self.iterdir()):
            raise OSError(16, "Device or resource busy")
        for each in self.iterdir():
            each.unlink()
        remove(self)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)


def read(path: Path) -> str:
    return path.read_text().strip()


async def test_version_1(tmp_path: Path, kernel: None, pool: BlockingPool) -> None:
    base = tmp_path / "v1"
    for name in FILES_V1:
        (base / name).mkdir(parents=True)
    (base / "devices").mkdir()
    (base / "cpuset/cpuset.cpus").write_text("0-3\n")
    (base / "cpuset/cpuset.mems").write_text("0\n")
    tree = CgroupsV1({name: base / name for name in (*FILES_V1, "devices")})
    manager = CgroupManager(pool, StoppedClock(), "/own", tree=tree, pod_pids_limit=50)
    await manager.start(4000, 1 << 30)
    assert read(base / "cpu/own/kubepods/cpu.shares") == "4096"
    assert read(base / "memory/own/kubepods/memory.limit_in_bytes") == str(1 << 30)
    assert read(base / "cpu/own/kubepods/besteffort/cpu.shares") == "2"

    made = pod(GUARANTEED, resources("250m"))
    assert manager.parent(made) == "/own/kubepods/burstable/podu-1"
    await manager.create_pod(made)
    path = "own/kubepods/burstable/podu-1"
    assert read(base / "cpu" / path / "cpu.shares") == "768"
    assert read(base / "cpu" / path / "cpu.cfs_quota_us") == "-1"
    assert read(base / "memory" / path / "memory.limit_in_bytes") == "-1"
    assert read(base / "pids" / path / "pids.max") == "50"
    assert read(base / "cpuset" / path / "cpuset.cpus") == "0-3"
    await manager.update_qos([made, pod(resources("1"), uid="u-2"), pod(GUARANTEED, uid="u-3")])
    assert read(base / "cpu/own/kubepods/burstable/cpu.shares") == str(1750 * 1024 // 1000)

    whole = pod(GUARANTEED, uid="u-4")
    await manager.create_pod(whole)
    assert manager.parent(whole) == "/own/kubepods/podu-4"
    assert read(base / "memory/own/kubepods/podu-4/memory.limit_in_bytes") == str(64 * MI)
    whole["spec"]["containers"][0]["resources"] = resources("1", "128Mi", "1", "128Mi")
    await manager.update_pod(whole)
    assert read(base / "cpu/own/kubepods/podu-4/cpu.cfs_quota_us") == "100000"
    assert await manager.pods() == {"u-1", "u-4"}

    # The runtime makes cgroups in hierarchies in which the manager makes none.
    (base / "devices" / path / "container").mkdir(parents=True)
    await manager.remove_pod("u-1")
    assert not (base / "devices" / path).exists() and not (base / "cpu" / path).exists()
    assert await manager.pods() == {"u-4"}
    await manager.remove_pod("u-1")
    await manager.remove_all()
    assert not (base / "cpu/own").exists() and not (base / "devices/own").exists()


async def test_version_2(tmp_path: Path, kernel: None, pool: BlockingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "v2"
    base.mkdir()
    written: list[tuple[str, str]] = []
    write = cgroup_files._write

    def record(path: Path, value: str) -> None:
        written.append((str(path.relative_to(base)), value))
        write(path, value)

    monkeypatch.setattr(cgroup_files, "_write", record)
    manager = CgroupManager(pool, StoppedClock(), "/own", tree=CgroupsV2(base))
    await manager.start(2000, 1 << 30)
    assert ("cgroup.subtree_control", "+memory") in written
    assert ("own/kubepods/cgroup.subtree_control", "+pids") in written
    assert not any(value == "+cpuset" for _, value in written)
    await manager.create_pod(pod(GUARANTEED))
    path = base / "own/kubepods/podu-1"
    assert read(path / "cpu.weight") == "59"
    assert read(path / "cpu.max") == "50000 100000"
    assert read(path / "memory.max") == str(64 * MI)
    assert read(path / "pids.max") == "max"
    await manager.create_pod(pod({}, uid="u-2"))
    assert read(base / "own/kubepods/besteffort/podu-2/cpu.max") == "max 100000"
    assert await manager.pods() == {"u-1", "u-2"}
    (path / "pids.current").write_text("7\n")
    assert await manager.process_counts() == {"u-1": 7}
    await manager.remove_all()
    assert not (base / "own").exists() and base.exists()


async def test_a_cgroup_that_cannot_be_removed(tmp_path: Path, kernel: None, pool: BlockingPool) -> None:
    """The manager kills what is left, retries while processes end, and gives up after some time."""

    class Ready(StoppedClock):
        async def sleep(self, seconds: float) -> None:
            self._elapsed += seconds

    base = tmp_path / "v2"
    (base / "own/kubepods/podu-1").mkdir(parents=True)
    (base / "own/kubepods/podu-1/cgroup.procs").write_text("0\n")
    clock = Ready()
    manager = CgroupManager(pool, clock, "/own", tree=CgroupsV2(base))

    def busy(self: Path) -> None:
        raise OSError(16, "Device or resource busy")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rmdir", busy)
        with pytest.raises(CgroupError, match=r"cannot remove the cgroup /own/kubepods/podu-1: .* busy"):
            await manager.remove_pod("u-1")
    assert 1 < clock.monotonic() < 10
    await manager.remove_pod("u-1")


def test_processes_are_killed_before_the_removal(tmp_path: Path, kernel: None) -> None:
    base = tmp_path / "v2"
    (base / "own/nested").mkdir(parents=True)
    process = subprocess.Popen(["sleep", "1000"])
    (base / "own/nested/cgroup.procs").write_text(f"{process.pid}\n")
    assert remove_once(CgroupsV2(base), "/own") == []
    assert process.wait(10) == -9


async def test_a_limit_below_the_usage_is_an_error(tmp_path: Path, kernel: None, pool: BlockingPool) -> None:
    base = tmp_path / "v2"
    base.mkdir()
    manager = CgroupManager(pool, StoppedClock(), "/own", tree=CgroupsV2(base))
    with pytest.raises(CgroupError, match="cannot write"):
        await manager.update_pod(pod(GUARANTEED))


@pytest.mark.parametrize("root", ["own", "/", "/a/../b", "/a//b", "", "/a b"])
def test_a_root_that_is_not_a_path(root: str, pool: BlockingPool) -> None:
    with pytest.raises(ValueError, match="cgroup root"):
        CgroupManager(pool, StoppedClock(), root)


async def test_a_uid_is_not_a_path(pool: BlockingPool, tmp_path: Path) -> None:
    manager = CgroupManager(pool, StoppedClock(), "/own", tree=CgroupsV2(tmp_path))
    with pytest.raises(CgroupError, match="is not a uid"):
        await manager.remove_pod("../../x")


def test_usage(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path, content in {
        first / "a/memory.usage_in_bytes": "1000\n",
        first / "a/memory.limit_in_bytes": "5000\n",
        first / "a/memory.stat": "total_rss 600\ntotal_inactive_file 100\nhierarchical_x y\n",
        first / "a/cpuacct.usage": "77\n",
        second / "a/memory.current": "1000\n",
        second / "a/memory.max": "max\n",
        second / "a/memory.stat": "anon 600\ninactive_file 2000\n",
        second / "a/cpu.stat": "usage_usec 5\nnr_periods 0\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert read_usage(CgroupsV1({"memory": first, "cpuacct": first}), "/a") == {
        "usage": 1000,
        "working_set": 900,
        "rss": 600,
        "available": 4100,
        "cpu_nano_seconds": 77,
    }
    assert read_usage(CgroupsV2(second), "/a") == {
        "usage": 1000,
        "working_set": 0,
        "rss": 600,
        "cpu_nano_seconds": 5000,
    }
    assert read_usage(CgroupsV2(second), "/missing") == {}
