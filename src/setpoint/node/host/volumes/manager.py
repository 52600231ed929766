"""Mounts, refreshes and unmounts the volumes of Pods on a real node."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.volumes import empty_dir
from setpoint.node.host.volumes.builder import NodeIdentity, VolumeBuilder, checked_uid
from setpoint.node.host.volumes.claims import ClaimLister, uses
from setpoint.node.host.volumes.container_mounts import VolumeFeatures, plan_mounts, prepare_mounts
from setpoint.node.host.volumes.file_tree import remove_tree
from setpoint.node.host.volumes.interface import HostVolume, ProcessingError, SetUpError, VolumeError, VolumeUsage
from setpoint.node.host.volumes.local_volumes import reconcile_directories, unused_directories
from setpoint.node.host.volumes.payload import Contents, contents_of
from setpoint.node.host.volumes.pod_certificates import CredentialsReader
from setpoint.node.host.volumes.projected import ProjectedVolume
from setpoint.node.host.volumes.teardown import remove_volumes, unmount_below
from setpoint.node.host.volumes.tokens import TokenCache, TokenRequester
from setpoint.node.projection import SourceLister, projection_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.pod_status import PodState

_UNMOUNT_DELAYS = (0.1, 0.4)
"""Seconds before each further attempt to unmount a busy volume; after the last one it is unmounted lazily."""
log = logging.getLogger("setpoint.node")


class VolumeLister(SourceLister, ClaimLister, Protocol):
    """Read access to the objects that volumes refer to."""


class StateProvider(Protocol):
    """Provides the state of a Pod that contents of volumes depend on."""

    @property
    def pod_state(self) -> PodState: ...


class VolumeManager:
    """The volumes of all Pods on the node. Calls for one Pod run one after the other."""

    def __init__(
        self,
        directories: NodeDirectories,
        pool: BlockingPool,
        clock: Clock,
        lister: VolumeLister,
        request_token: TokenRequester,
        credentials: CredentialsReader,
        node: NodeIdentity,
        features: Callable[[], VolumeFeatures] = VolumeFeatures,
    ) -> None:
        self._directories = directories
        self._pool = pool
        self._clock = clock
        self._lister = lister
        self._tokens = TokenCache(request_token, clock)
        self._credentials = credentials
        self._builder = VolumeBuilder(directories, clock, lister, node)
        self._features = features
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._mounted: dict[str, dict[str, HostVolume]] = {}
        """The volumes that were mounted since the agent started, by uid of the Pod and name."""

    # -- mounting ------------------------------------------------------------------------------------------------------

    async def mount(self, pod: Pod, provider: StateProvider) -> None:
        """Mount all volumes that containers of the Pod use, and update the contents of projected volumes. Volumes that
        an earlier run of the agent mounted are adopted. Raise VolumeError if a volume is not mounted afterwards; the
        others are."""
        messages = await self._set_up(pod, provider, mounted_is_enough=True)
        if messages:
            raise VolumeError(*messages)

    async def refresh(self, pod: Pod, provider: StateProvider) -> None:
        """Update the contents of projected volumes and renew tokens that are due. Files are written only if a content
        changed; sub-paths keep their content until the container is restarted. Raise VolumeError if a source is
        missing: that volume keeps its content."""
        messages = await self._set_up(pod, provider, mounted_is_enough=False)
        if messages:
            raise VolumeError(*messages)

    def next_renewal(self, uid: str) -> float | None:
        """Return when `refresh` has to renew a token, in seconds since the epoch; None if the Pod has no token."""
        return self._tokens.next_renewal(uid)

    async def _set_up(self, pod: Pod, provider: StateProvider, *, mounted_is_enough: bool) -> list[str]:
        """Set up the volumes and return the messages of those that failed."""
        used = _used_volumes(pod)
        if not used:
            return []
        uid = pod["metadata"]["uid"]
        async with self._lock(uid):
            mounted = self._mounted.get(uid, {})
            volumes: dict[str, HostVolume] = {}
            failed: dict[str, str] = {}
            unprocessed: dict[str, str] = {}
            for spec in used:
                name = spec["name"]
                if name in mounted and projection_of(spec) is None:
                    continue
                try:
                    volume = await self._volume(pod, spec, provider.pod_state)
                except SetUpError as error:
                    failed[name] = error.message(name)
                except ProcessingError as error:
                    unprocessed[name] = str(error)
                else:
                    if volume is not None:
                        volumes[name] = volume
            failed |= await self._pool.run(_set_up_all, volumes, mounted_is_enough)
            done = {name: _without_content(volume) for name, volume in volumes.items() if name not in failed}
            self._mounted[uid] = {**mounted, **done}
        messages = [*failed.values()]
        if unprocessed:
            messages.append(_unprocessed_message([*failed, *unprocessed], unprocessed))
        return messages

    async def _volume(self, pod: Pod, spec: ObjView, pod_state: PodState) -> HostVolume | None:
        contents = Contents(None)
        if projection_of(spec) is not None:
            contents = await contents_of(spec, pod, pod_state, self._lister, self._tokens, self._credentials)
        return self._builder.build(pod, spec, contents, pod_state.allocatable.get("memory"))

    # -- containers ----------------------------------------------------------------------------------------------------

    async def container_mounts(
        self, pod: Pod, container: ObjView, environment: Mapping[str, str], image_volumes: Mapping[str, str]
    ) -> list[Obj]:
        """Return the mounts of a container, as dicts of CRI's Mount, with all sub-paths prepared. `image_volumes` are
        the ids of images by the name of the volume. Raise ContainerConfigError if a mount is invalid."""
        uid = pod["metadata"]["uid"]
        names = {each["name"] for each in container.get("volumeMounts") or ()}
        if not names:
            return []
        volumes = dict(self._mounted.get(uid, {}))
        images: dict[str, tuple[str, str]] = {}
        for spec in pod["spec"].get("volumes") or ():
            image: ObjView | None = spec.get("image")
            if image is not None:
                reference = image.get("reference", "")
                images[spec["name"]] = image_volumes.get(spec["name"]) or reference, reference
            elif spec["name"] in names and spec["name"] not in volumes:
                with suppress(SetUpError, ProcessingError):
                    volume = self._builder.build(pod, spec, Contents(None), None)
                    if volume is not None:
                        volumes[spec["name"]] = volume
        sub_paths = self._directories.sub_paths(checked_uid(uid))
        planned = plan_mounts(container, volumes, images, environment, self._features(), sub_paths)
        if not any(each.sub_path for each in planned):
            return prepare_mounts(planned)
        async with self._lock(uid):
            return await self._pool.run(prepare_mounts, planned)

    # -- unmounting ----------------------------------------------------------------------------------------------------

    async def unmount(self, uid: str) -> None:
        """Unmount all volumes of a Pod and remove them with their data, except persistent volumes and host paths. The
        Pod need not be known. Raise VolumeError if that is not complete; the call may be repeated."""
        directory = self._directories.pod(checked_uid(uid))
        async with self._lock(uid):
            problems = await self._pool.run(unmount_below, directory)
            for delay in _UNMOUNT_DELAYS:
                if not problems:
                    break
                await self._clock.sleep(delay)
                problems = await self._pool.run(unmount_below, directory)
            if problems:
                problems = await self._pool.run(unmount_below, directory, lazy=True)
            if problems:
                raise VolumeError(*problems)
            try:
                await self._pool.run(remove_volumes, self._directories, uid)
            except OSError as error:
                raise VolumeError(f"the volumes of Pod {uid} cannot be removed: {error}") from error
            self._mounted.pop(uid, None)
            self._tokens.forget(uid)

    async def remove(self, uid: str) -> None:
        """Unmount all volumes of a Pod, and remove its directory with everything in it."""
        await self.unmount(uid)
        async with self._lock(uid):
            try:
                await self._pool.run(remove_tree, self._directories.pod(uid))
            except OSError as error:
                raise VolumeError(f"the directory of Pod {uid} cannot be removed: {error}") from error

    async def pods(self) -> set[str]:
        """Return the uids of all Pods that have a directory on this node, including those of an earlier run."""
        return await self._pool.run(_names_in, self._directories.pods)

    # -- measuring, provisioned volumes --------------------------------------------------------------------------------

    async def usage(self, uid: str) -> dict[str, VolumeUsage]:
        """Measure the emptyDir volumes of a Pod. The size limit of those on disk is enforced by eviction."""
        return await self._pool.run(
            _usage_below, self._directories.pod(checked_uid(uid)) / "volumes" / empty_dir.PLUGIN
        )

    async def unused_local_volumes(self) -> set[str]:
        """Return the names of provisioned volumes on this node that no Pod uses. There is nothing to reconcile if it
        is empty."""
        return await self._pool.run(unused_directories, self._directories)

    async def reconcile_local_volumes(self, volumes: Iterable[ObjView]) -> None:
        """Remove the directories of provisioned volumes whose PersistentVolume was deleted. `volumes` must contain all
        PersistentVolumes of the cluster; an incomplete list loses data."""
        removed = await self._pool.run(reconcile_directories, self._directories, [*volumes])
        for name in removed:
            log.info("Removed the directory of the deleted volume %s", name)

    def _lock(self, uid: str) -> asyncio.Lock:
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock


def _used_volumes(pod: Pod) -> list[ObjView]:
    """Return the volumes that a container mounts; the kubelet ignores all others."""
    volumes: list[ObjView] = [*(pod["spec"].get("volumes") or ())]
    return [
        each for each in volumes if uses(pod, each["name"], "volumeMounts") or uses(pod, each["name"], "volumeDevices")
    ]


def _set_up_all(volumes: Mapping[str, HostVolume], mounted_is_enough: bool) -> dict[str, str]:
    """Set up volumes and return the messages of those that failed, by name. A projected volume that has content keeps
    it if a source is missing, which is not a failure if `mounted_is_enough`. Blocks."""
    failed = {}
    for name, volume in volumes.items():
        try:
            volume.set_up()
        except SetUpError as error:
            if mounted_is_enough and isinstance(volume, ProjectedVolume) and volume.has_content:
                log.info("%s", error.message(volume.name))
            else:
                failed[name] = error.message(volume.name)
        except OSError as error:
            failed[name] = SetUpError(str(error)).message(volume.name)
    return failed


def _without_content(volume: HostVolume) -> HostVolume:
    return replace(volume, payload=None) if isinstance(volume, ProjectedVolume) else volume


def _unprocessed_message(unmounted: Iterable[str], problems: Mapping[str, str]) -> str:
    """Return the kubelet's message about volumes of which it cannot determine what they refer to."""
    return (
        f"Unable to attach or mount volumes: unmounted volumes=[{' '.join(sorted(unmounted))}], unattached volumes=[], "
        f"failed to process volumes=[{' '.join(sorted(problems))}]: {'; '.join(problems.values())}"
    )


def _names_in(directory: Path) -> set[str]:
    with suppress(FileNotFoundError):
        return set(os.listdir(directory))
    return set()


def _usage_below(directory: Path) -> dict[str, VolumeUsage]:
    found = {}
    for name in sorted(_names_in(directory)):
        with suppress(FileNotFoundError):
            found[name] = empty_dir.usage(directory / name)
    return found
