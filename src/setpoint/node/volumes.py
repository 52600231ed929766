"""The volumes of a Pod: whether they can be mounted, the files that containers see in them, and service account tokens.

Tokens of projected volumes are requested as the kubelet does, bound to one Pod. Most simulated containers never read
their token: it is requested when a program is about to run whose arguments contain the path where it is mounted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import ObjView
from setpoint.node.projection import (
    DEFAULT_MODE,
    DEFAULT_TOKEN_SECONDS,
    common_user,
    missing_source,
    on_disk,
    projection_of,
    source_files,
    sources_of,
    sub_path_of,
    token_request,
    token_sources,
)
from setpoint.node.runtime.files import STICKY, Mount, Volume
from setpoint.node.runtime.managed_files import NODE_FILES, cgroup_files

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.dependencies import ObjectLister
    from setpoint.node.pod_status import PodState
    from setpoint.node.pod_worker import PodWorker


_CGROUP_PATH = "/sys/fs/cgroup"
_OPTIONAL = ("kube-root-ca.crt",)
"""The ConfigMap with the cluster's CA. It is not required, so that Pods run in clusters without the controller that
publishes it."""
_ACCOUNTS = builtin("serviceaccounts")
_MAX_LIFETIME = 24 * 3600.0


def _project(pod: Pod, container: ObjView, volume: ObjView, pod_state: PodState, lister: ObjectLister) -> Volume:
    """Return the current content of a projected volume; missing sources are left out."""
    found = Volume(mode=0o777 | STICKY, file_system="ext4" if on_disk(volume) else "tmpfs", read_only=True)
    default = (projection_of(volume) or {}).get("defaultMode", DEFAULT_MODE)
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    for source in sources_of(volume):
        for name, content, mode in source_files(source, pod, container, pod_state, lister):
            found.files[name] = content.decode(errors="surrogateescape")
            if (mode or default) != DEFAULT_MODE:
                found.modes[name] = mode or default
        wanted = source.get("serviceAccountToken") or {}
        token = pod_state.tokens.get((volume["name"], wanted.get("path", "")))
        if token is not None:
            found.files[wanted["path"]] = token[0]
            user = common_user(pod["spec"])
            if user is not None or group is not None:
                found.modes[wanted["path"]] = 0o600
                found.owners[wanted["path"]] = (user or 0, 0)
            elif default != DEFAULT_MODE:
                found.modes[wanted["path"]] = default
    if group is not None:
        found.apply_fs_group(group)
    return found


def mount_error(pod: Pod, lister: ObjectLister) -> str:
    """Return the kubelet's message if a volume of the Pod cannot be mounted; empty otherwise."""
    volumes = pod["spec"].get("volumes")
    if not volumes:
        return ""
    namespace = pod["metadata"]["namespace"]
    for volume in volumes:
        for source in (volume.get("projected") or {}).get("sources") or (volume,):
            problem = missing_source(source, namespace, lister, _OPTIONAL)
            if problem:
                return f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem}'
    return ""


def check_mounts(worker: PodWorker, container: ObjView) -> None:
    """Raise ContainerConfigError if the sub-path of a mount is invalid."""
    for mount in container.get("volumeMounts") or ():
        if mount.get("subPath") or mount.get("subPathExpr"):
            _sub_path(worker, container, mount)


def mounts_of(worker: PodWorker, container: ObjView) -> list[Mount]:
    """Return the mounts of a container. The containers of a Pod share writable volumes."""
    volumes = {each["name"]: each for each in worker.spec.get("volumes") or ()}
    found: list[Mount] = []
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        if volume is None:
            continue
        path, read_only, sub_path = mount["mountPath"], bool(mount.get("readOnly")), _sub_path(worker, container, mount)
        if projection_of(volume) is not None:
            projected = _ProjectedVolume(worker, container, volume)
            # A sub-path is mounted with the content at the start of the container.
            found.append(
                Mount(path, (lambda fixed: lambda: fixed)(projected()) if sub_path else projected, sub_path, read_only)
            )
        else:
            shared = _shared_volume(worker, volume)
            found.append(Mount(path, (lambda one: lambda: one)(shared), sub_path, read_only))
            if sub_path and sub_path not in shared.files:
                shared.directories.add(sub_path)
    if not any(each.path.rstrip("/") == _CGROUP_PATH for each in found):
        state = worker.container(container["name"])
        limits = lambda: Volume(cgroup_files(state.allocated), file_system="cgroup2fs", read_only=True)  # noqa: E731
        found.append(Mount(_CGROUP_PATH, limits))
    return found


class _ProjectedVolume:
    """A volume that follows the objects it is projected from. It keeps its content while a required source is
    missing."""

    def __init__(self, worker: PodWorker, container: ObjView, volume: ObjView) -> None:
        self._worker = worker
        self._container = container
        self._volume = volume
        self._last: Volume | None = None

    def __call__(self) -> Volume:
        worker, volume = self._worker, self._volume
        namespace = worker.pod["metadata"]["namespace"]
        sources = (volume.get("projected") or {}).get("sources") or (volume,)
        if self._last is None or not any(
            missing_source(each, namespace, worker.dependencies.lister, _OPTIONAL) for each in sources
        ):
            self._last = _project(worker.pod, self._container, volume, worker.pod_state, worker.dependencies.lister)
        return self._last


def _sub_path(worker: PodWorker, container: ObjView, mount: ObjView) -> str:
    return sub_path_of(mount, worker.environment(container) if mount.get("subPathExpr") else {})


class _SharedVolumes(Protocol):
    """The simulated runtime, which alone requests simulated mounts."""

    def shared_volume(self, owner: str, volume: str) -> Volume: ...


def _shared_volume(worker: PodWorker, volume: ObjView) -> Volume:
    pod = worker.pod
    runtime = cast("_SharedVolumes", worker.dependencies.runtime)
    found = runtime.shared_volume(*_volume_key(pod, volume, worker.dependencies.lister))
    host = volume.get("hostPath")
    if host is not None and host.get("type") in ("File", "FileOrCreate"):
        found.files.setdefault("", NODE_FILES.get(host.get("path", ""), ""))
    if host is None:
        found.mode |= 0o777
        if (volume.get("emptyDir") or {}).get("medium") == "Memory":
            found.file_system = "tmpfs"
        group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        if group is not None and not found.group:
            found.apply_fs_group(group)
    return found


def _volume_key(pod: Pod, volume: ObjView, lister: ObjectLister) -> tuple[str, str]:
    """Return the owner of a volume and its name there. Volumes of a claim or a host path outlive the Pod and may be
    shared with other Pods."""
    if volume.get("persistentVolumeClaim"):
        namespace, name = pod["metadata"]["namespace"], volume["persistentVolumeClaim"].get("claimName", "")
        claim = lister.claim(namespace, name)
        return claim["metadata"]["uid"] if claim is not None else f"{namespace}/{name}", ""
    if volume.get("hostPath"):
        return node_volumes_owner(pod["spec"].get("nodeName", "")), volume["hostPath"].get("path", "")
    return pod["metadata"]["uid"], volume["name"]


def node_volumes_owner(node: str) -> str:
    """Return the owner of the host path volumes of a node."""
    return f"node/{node}"


class TokenManager:
    """Requests and renews the tokens of a fleet's Pods."""

    def __init__(self, client_for: Callable[[str], Client], clock: Clock) -> None:
        self._client_for = client_for
        self._clock = clock

    async def ensure_tokens(self, worker: PodWorker, command: Sequence[str] = ()) -> None:
        """Request the tokens that a command, or the Pod's containers, may read. A command of one word is an interactive
        shell."""
        spec = worker.spec
        sources = [*token_sources(spec)]
        if not sources:
            return
        words = [*(command or _command_words(spec))]
        if not words:
            return
        mount_paths = {
            mount["name"]: mount["mountPath"] for each in _containers(spec) for mount in each["volumeMounts"]
        }
        now = self._clock.now().timestamp()
        for volume, source in sources:
            mount_path, cached = mount_paths.get(volume, ""), worker.pod_state.tokens.get((volume, source["path"]))
            first = mount_path.strip("/").partition("/")[0]
            is_used = len(command) == 1 or any(first in each for each in words)
            if first and is_used and (cached is None or now >= cached[1]):
                token = await self._request(worker, source)
                if token:
                    lifetime = min(0.8 * (source.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS), _MAX_LIFETIME)
                    worker.pod_state.tokens[(volume, source["path"])] = (token, now + lifetime)

    async def _request(self, worker: PodWorker, source: ObjView) -> str:
        name = worker.spec.get("serviceAccountName") or "default"
        try:
            made = await self._client_for(worker.node.name).create(
                token_request(worker.pod, source),
                resource=_ACCOUNTS,
                namespace=worker.pod["metadata"]["namespace"],
                name=name,
                subresource="token",
            )
        except ApiError:
            return ""  # the service account may have been deleted; the container then finds no token
        return str(made["status"]["token"])


def _containers(spec: ObjView) -> Iterator[ObjView]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from (each for each in spec.get(field) or () if each.get("volumeMounts"))


def _command_words(spec: ObjView) -> Iterator[str]:
    for container in _containers(spec):
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        if words:
            yield from words
            yield from (each["value"] for each in container.get("env") or () if each.get("value"))
