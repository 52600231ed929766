"""The volumes of a Pod: whether what they need is there, and the files that containers see in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from setpoint.node.environment import EnvironmentProblem
from setpoint.node.projection import KINDS, missing, project
from setpoint.node.runtime.expansion import expand
from setpoint.node.runtime.files import Mount, Volume
from setpoint.node.runtime.given_files import NODE_FILES, control_group

if TYPE_CHECKING:
    from setpoint.node.pod_worker import PodWorker
    from setpoint.node.tools import Lookup

Obj = Mapping[str, Any]


class VolumeProblem(Exception):
    """What the kubelet says about a volume that cannot be mounted."""


def mount_problem(pod: Obj, lookup: Lookup) -> VolumeProblem | None:
    volumes = pod["spec"].get("volumes")
    if not volumes:
        return None
    namespace = pod["metadata"]["namespace"]
    for volume in volumes:
        for source in (volume.get("projected") or {}).get("sources") or (volume,):
            problem = missing(source, namespace, lookup)
            if problem:
                return VolumeProblem(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}')
    return None


def check_mounts(worker: PodWorker, container: Obj) -> None:
    """Raises EnvironmentProblem when a path within a volume cannot be used."""
    for mount in container.get("volumeMounts") or ():
        if mount.get("subPath") or mount.get("subPathExpr"):
            _below(worker, container, mount)


_CONTROL_GROUP = "/sys/fs/cgroup"


def mounts_of(worker: PodWorker, container: Obj) -> list[Mount]:
    """Where the container sees its volumes. Volumes that Pods write to are shared by its containers."""
    volumes = {each["name"]: each for each in worker.spec.get("volumes") or ()}
    found: list[Mount] = []
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        if volume is None:
            continue
        path, read_only, below = mount["mountPath"], bool(mount.get("readOnly")), _below(worker, container, mount)
        if any(volume.get(kind) is not None for kind in KINDS):
            kept = _Kept(worker, container, volume)
            # What is below a path is mounted as it was when the container started.
            found.append(Mount(path, (lambda fixed: lambda: fixed)(kept()) if below else kept, below, read_only))
        else:
            shared = _shared(worker, volume)
            found.append(Mount(path, (lambda one: lambda: one)(shared), below, read_only))
            if below and below not in shared.files:
                shared.directories.add(below)
    if not any(each.path.rstrip("/") == _CONTROL_GROUP for each in found):
        slot = worker.slot(container["name"])
        limits = lambda: Volume(control_group(slot.allocated), file_system="cgroup2fs", read_only=True)  # noqa: E731
        found.append(Mount(_CONTROL_GROUP, limits))
    return found


class _Kept:
    """A volume that follows what it is made of. What goes missing, and may not, stays as it was."""

    def __init__(self, worker: PodWorker, container: Obj, volume: Obj) -> None:
        self._worker = worker
        self._container = container
        self._volume = volume
        self._last: Volume | None = None

    def __call__(self) -> Volume:
        worker, volume = self._worker, self._volume
        namespace = worker.pod["metadata"]["namespace"]
        sources = (volume.get("projected") or {}).get("sources") or (volume,)
        if self._last is None or not any(missing(each, namespace, worker.tools.lookup) for each in sources):
            self._last = project(worker.pod, self._container, volume, worker.situation, worker.tools)
        return self._last


def _below(worker: PodWorker, container: Obj, mount: Obj) -> str:
    path: str = mount.get("subPath") or ""
    if mount.get("subPathExpr"):
        path = expand(mount["subPathExpr"], worker.environment(container))
        if "$(" in path:
            name = path.partition("$(")[2].partition(")")[0]
            raise EnvironmentProblem(f'missing value for "{name}"')
    if path.startswith("/"):
        raise EnvironmentProblem(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        raise EnvironmentProblem(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path


def _shared(worker: PodWorker, volume: Obj) -> Volume:
    pod = worker.pod
    found = worker.tools.runtime.shared_volume(*_whose(pod, volume, worker.tools.lookup))
    host = volume.get("hostPath")
    if host is not None and host.get("type") in ("File", "FileOrCreate"):
        found.files.setdefault("", NODE_FILES.get(host.get("path", ""), ""))
    if host is None:
        found.mode |= 0o777
        if (volume.get("emptyDir") or {}).get("medium") == "Memory":
            found.file_system = "tmpfs"
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None and not found.group:
            found.give_to_group(group)
    return found


def _whose(pod: Obj, volume: Obj, lookup: Lookup) -> tuple[str, str]:
    """The owner of a volume, with which it goes, and its name there. A claim or a path on the node outlives the Pod,
    and others may see it too."""
    if volume.get("persistentVolumeClaim"):
        namespace, name = pod["metadata"]["namespace"], volume["persistentVolumeClaim"].get("claimName", "")
        claim = lookup.claim(namespace, name)
        return claim["metadata"]["uid"] if claim is not None else f"{namespace}/{name}", ""
    if volume.get("hostPath"):
        return node_owner(pod["spec"].get("nodeName", "")), volume["hostPath"].get("path", "")
    return pod["metadata"]["uid"], volume["name"]


def node_owner(node: str) -> str:
    """The owner of the directories of a node."""
    return f"node/{node}"
