"""Manages the cgroups of Pods with the kubelet's hierarchy and values, in a tree of its own.

    <cgroup root>/kubepods                       limited to what is allocatable
    <cgroup root>/kubepods/pod<uid>              Guaranteed
    <cgroup root>/kubepods/burstable/pod<uid>
    <cgroup root>/kubepods/besteffort/pod<uid>

The container runtime creates the cgroups of containers below those of their Pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.kinds.core.pod_demand import has_pod_level_resources, pod_limits, pod_requests
from setpoint.kinds.core.podspec.resources import BEST_EFFORT, BURSTABLE, GUARANTEED, qos_class
from setpoint.kinds.core.resources import is_huge_page
from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import parse
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cgroup_files import UNLIMITED, CgroupError, CgroupTree, Limits, find_cgroups, remove_once
from setpoint.node.host.resources import cpu_quota, cpu_shares

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

DEFAULT_CGROUP_ROOT = "/setpoint"
_KUBEPODS = "kubepods"
_QOS_DIRECTORIES = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}
_MIN_SHARES = 2
_UNBOUNDED_HUGE_PAGES = 1 << 62
_POD_DIRECTORY = re.compile(r"pod([A-Za-z0-9-]+)")
_UID = re.compile(r"[A-Za-z0-9-]+")
_ROOT = re.compile(r"(?:/[A-Za-z0-9_][A-Za-z0-9_.:@-]*)+")
_REMOVAL_ATTEMPTS, _REMOVAL_PAUSE = 40, 0.05
"""The number of attempts to remove a cgroup, and the seconds between them."""


def pod_cgroup_limits(pod: ObjView, pids_limit: int | None = None, huge_page_sizes: Iterable[int] = ()) -> Limits:
    """Return the limits of a Pod's cgroup, as the kubelet calculates them from the spec."""
    spec: ObjView = {"spec": pod["spec"]}  # the status may contain resources that are not yet applied
    requests, limits, qos = pod_requests(spec), pod_limits(spec), _qos(pod)
    shares = cpu_shares(parse(requests["cpu"]).milli_value() if "cpu" in requests else 0)
    pages = dict.fromkeys(huge_page_sizes, 0)
    for name, amount in limits.items():
        if is_huge_page(name):
            pages[parse(name.removeprefix("hugepages-")).value()] = parse(amount).value()
    if qos == BEST_EFFORT:
        return Limits(_MIN_SHARES, UNLIMITED, UNLIMITED, pids_limit or UNLIMITED, pages)
    quota = memory = UNLIMITED
    if "cpu" in limits and (qos == GUARANTEED or _all_limited(pod["spec"], "cpu")):
        quota = cpu_quota(parse(limits["cpu"]).milli_value()) or UNLIMITED
    if "memory" in limits and (qos == GUARANTEED or _all_limited(pod["spec"], "memory")):
        memory = parse(limits["memory"]).value() or UNLIMITED
    return Limits(shares, quota, memory, pids_limit or UNLIMITED, pages)


def _all_limited(spec: ObjView, resource: str) -> bool:
    """Return whether the Pod, or else every container, has a limit, so that their sum is one of the Pod."""
    if has_pod_level_resources(spec) and resource in (spec["resources"].get("limits") or {}):
        return True
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    found = (((each.get("resources") or {}).get("limits") or {}).get(resource) for each in containers)
    return all(amount and parse(amount).sign() for amount in found)


def _qos(pod: ObjView) -> str:
    return str((pod.get("status") or {}).get("qosClass") or qos_class(pod))


class CgroupManager:
    """Creates, changes and removes the cgroups of the node and its Pods. Only cgroups below its own root are touched.

    Raises CgroupError."""

    def __init__(
        self,
        pool: BlockingPool,
        clock: Clock,
        root: str = DEFAULT_CGROUP_ROOT,
        *,
        tree: CgroupTree | None = None,
        mounts: Path = Path("/proc/self/mounts"),
        pod_pids_limit: int | None = None,
        huge_page_sizes: Iterable[int] = (),
    ) -> None:
        """Create the manager. Without a tree, that of the machine is found when it is needed. `pod_pids_limit` is the
        maximum number of processes of each Pod; None means no limit."""
        if not _ROOT.fullmatch(root):
            raise ValueError(f"the cgroup root must be an absolute path of names, not {root!r}")
        self._pool = pool
        self._clock = clock
        self._root = root
        self._tree = tree
        self._mounts = mounts
        self._pids_limit = pod_pids_limit
        self._huge_page_sizes = tuple(huge_page_sizes)

    def parent(self, pod: Pod) -> str:
        """Return the Pod's cgroup, which is the parent of its containers' cgroups: CRI's `cgroup_parent`."""
        return self._pod_path(pod["metadata"]["uid"], _qos(pod))

    @property
    def kubepods(self) -> str:
        """Return the path of the cgroup of all Pods."""
        return f"{self._root}/{_KUBEPODS}"

    async def tree(self) -> CgroupTree:
        if self._tree is None:
            self._tree = find_cgroups(await self._pool.run(self._mounts.read_text))
        return self._tree

    async def start(self, milli_cpu: int, memory_bytes: int, pids: int | None = None) -> None:
        """Create the cgroups above those of Pods, limited to what all Pods together may use."""
        tree = await self.tree()
        unbounded = dict.fromkeys(self._huge_page_sizes, _UNBOUNDED_HUGE_PAGES)

        def create() -> None:
            tree.create(self.kubepods)
            tree.apply(self.kubepods, Limits(cpu_shares(milli_cpu), None, memory_bytes, pids))
            for qos in (BURSTABLE, BEST_EFFORT):
                path = f"{self.kubepods}/{_QOS_DIRECTORIES[qos]}"
                tree.create(path)
                tree.apply(path, Limits(_MIN_SHARES if qos == BEST_EFFORT else None, huge_pages=unbounded))

        await self._pool.run(create)

    async def update_qos(self, pods: Iterable[ObjView]) -> None:
        """Set the CPU shares of all Burstable Pods together to the sum of their requests."""
        total = 0
        for pod in pods:
            if _qos(pod) == BURSTABLE:
                amount = pod_requests({"spec": pod["spec"]}).get("cpu")
                total += parse(amount).milli_value() if amount else 0
        tree = await self.tree()
        await self._pool.run(tree.apply, f"{self.kubepods}/{_QOS_DIRECTORIES[BURSTABLE]}", Limits(cpu_shares(total)))

    async def create_pod(self, pod: Pod) -> None:
        """Create the Pod's cgroup with its limits. One that exists gets the limits."""
        tree, path = await self.tree(), self.parent(pod)
        limits = pod_cgroup_limits(pod, self._pids_limit, self._huge_page_sizes)

        def create() -> None:
            tree.create(path)
            tree.apply(path, limits)

        await self._pool.run(create)

    async def update_pod(self, pod: Pod) -> None:
        """Apply changed resources of the Pod to its cgroup. Memory cannot be limited to less than what is in use."""
        tree = await self.tree()
        limits = pod_cgroup_limits(pod, self._pids_limit, self._huge_page_sizes)
        await self._pool.run(tree.apply, self.parent(pod), limits)

    async def remove_pod(self, uid: str) -> None:
        """Remove the Pod's cgroups, whatever its QoS class is; processes in them are killed first."""
        for qos in _QOS_DIRECTORIES:
            await self._remove(self._pod_path(uid, qos))

    async def remove_all(self) -> None:
        """Remove the whole tree with everything in it, as when the node leaves its cluster."""
        await self._remove(self._root)

    async def pods(self) -> set[str]:
        """Return the uids of the Pods that have a cgroup."""
        tree = await self.tree()

        def find() -> set[str]:
            found = set()
            for qos in _QOS_DIRECTORIES.values():
                for directory in tree.directories(f"{self.kubepods}/{qos}".rstrip("/")):
                    for entry in directory.iterdir() if directory.is_dir() else ():
                        if match := _POD_DIRECTORY.fullmatch(entry.name):
                            found.add(match[1])
            return found

        return await self._pool.run(find)

    async def process_counts(self) -> dict[str, int]:
        """Return the number of processes and threads of each Pod by uid; empty without the controller of processes."""
        tree = await self.tree()

        def count() -> dict[str, int]:
            found = {}
            for qos in _QOS_DIRECTORIES.values():
                directory = tree.pids_directory(f"{self.kubepods}/{qos}".rstrip("/"))
                for entry in directory.iterdir() if directory is not None and directory.is_dir() else ():
                    if (match := _POD_DIRECTORY.fullmatch(entry.name)) is not None:
                        number = _number(entry / "pids.current")
                        if number is not None:
                            found[match[1]] = number
            return found

        return await self._pool.run(count)

    async def usage(self, path: str) -> Mapping[str, int]:
        """Return memory and CPU usage of a cgroup; see `read_usage`."""
        tree = await self.tree()
        return await self._pool.run(read_usage, tree, path)

    def _pod_path(self, uid: str, qos: str) -> str:
        if not _UID.fullmatch(uid):
            raise CgroupError(f"{uid!r} is not a uid")
        return "/".join(part for part in (self.kubepods, _QOS_DIRECTORIES[qos], f"pod{uid}") if part)

    async def _remove(self, path: str) -> None:
        tree = await self.tree()
        problems: list[str] = []
        for attempt in range(_REMOVAL_ATTEMPTS):
            if attempt:
                await self._clock.sleep(_REMOVAL_PAUSE)
            problems = await self._pool.run(remove_once, tree, path)
            if not problems:
                return
        raise CgroupError(f"cannot remove the cgroup {path}: {'; '.join(problems[:3])}")


def read_usage(tree: CgroupTree, path: str) -> dict[str, int]:
    """Return the usage of a cgroup: `usage`, `working_set`, `rss` and `available` in bytes, `cpu_nano_seconds`. What
    cannot be read is missing."""
    found: dict[str, int] = {}
    directory = tree.memory_directory(path)
    if directory is not None:
        first = tree.version == 1
        statistics = _key_values(directory / "memory.stat")
        usage = _number(directory / ("memory.usage_in_bytes" if first else "memory.current"))
        limit = _number(directory / ("memory.limit_in_bytes" if first else "memory.max"))
        if usage is not None:
            inactive = statistics.get("total_inactive_file" if first else "inactive_file", 0)
            found |= {"usage": usage, "working_set": max(0, usage - inactive)}
            found["rss"] = statistics.get("total_rss" if first else "anon", 0)
            if limit is not None and limit < 1 << 60:
                found["available"] = max(0, limit - found["working_set"])
    directory = tree.cpu_directory(path)
    if directory is not None:
        if tree.version == 1:
            nano = _number(directory / "cpuacct.usage")
        else:
            micro = _key_values(directory / "cpu.stat").get("usage_usec")
            nano = micro * 1000 if micro is not None else None
        if nano is not None:
            found["cpu_nano_seconds"] = nano
    return found


def _key_values(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split(" ", 1) for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
