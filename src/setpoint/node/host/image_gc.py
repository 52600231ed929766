"""Removes images that are not used when the disk is nearly full, and ended containers of which nothing is needed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.node.host.machine import Filesystem
from setpoint.node.host.node_report import RuntimeClient
from setpoint.node.host.runtime_labels import CONTAINER_NAME, NODE, POD_UID

log = logging.getLogger("setpoint.node")

_IMAGE_PERIOD, _CONTAINER_PERIOD = 300.0, 60.0
_TIMEOUT = 60.0
_EXITED = 2
"""CRI's number of the state of a container that has ended."""
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class StoredImage(NamedTuple):
    """An image as the garbage collection sees it."""

    id: str
    size: int
    first_seen: float
    """Monotonic seconds."""
    last_used: float
    """Monotonic seconds; -inf if it was not seen in use."""


class DeadContainer(NamedTuple):
    id: str
    uid: str
    name: str
    created_at: int


def bytes_to_free(filesystem: Filesystem, high_percent: int, low_percent: int) -> int:
    """Return the number of bytes by which images must shrink; 0 if the usage is below the high threshold."""
    capacity, available = filesystem.capacity_bytes, min(filesystem.available_bytes, filesystem.capacity_bytes)
    if not capacity or usage_percent(filesystem) < high_percent:
        return 0
    return max(0, capacity * (100 - low_percent) // 100 - available)


def usage_percent(filesystem: Filesystem) -> int:
    available = min(filesystem.available_bytes, filesystem.capacity_bytes)
    return 100 - available * 100 // filesystem.capacity_bytes


def removal_order(images: Collection[StoredImage], now: float, min_age: float) -> list[StoredImage]:
    """Return the images that may be removed: not in use, and not new; those used longest ago first."""
    idle = [each for each in images if each.last_used < now and now - each.first_seen >= min_age]
    return sorted(idle, key=lambda each: (each.last_used, each.first_seen))


def dead_containers_to_remove(dead: Collection[DeadContainer], kept_pods: Collection[str]) -> list[DeadContainer]:
    """Return the ended containers to remove: all of Pods that are not kept, and of other Pods all but the newest one of
    each container."""
    removed = []
    kept: set[tuple[str, str]] = set()
    for each in sorted(dead, key=lambda each: each.created_at, reverse=True):
        if each.uid in kept_pods and (each.uid, each.name) not in kept:
            kept.add((each.uid, each.name))
        else:
            removed.append(each)
    return removed


@dataclass(slots=True)
class GarbageCollector:
    """Removes unused images and ended containers of the node, periodically and when the disk is full."""

    node_name: str
    client: RuntimeClient
    clock: Clock
    image_fs: Callable[[], Awaitable[Filesystem]]
    """Measures the file system of the images."""
    kept_pods: Callable[[], Collection[str]]
    """Returns the uids of Pods whose newest ended containers are still needed, for their status and logs."""
    warn: Callable[[str, str], None]
    """Records a Warning Event about the Node, from reason and message."""
    sandbox_image: str = ""
    """The name of an image that is never removed."""
    high_percent: int = 85
    low_percent: int = 80
    min_age: float = 120.0
    """Seconds for which a new image is not removed."""
    on_images_removed: Callable[[], None] = lambda: None
    image_volumes: Callable[[], Collection[str]] = tuple
    """Returns the names of the images that Pods of this node mount as volumes; they are in use."""
    _images: dict[str, StoredImage] = field(default_factory=dict)
    """Images by id, as seen last."""

    async def run(self) -> None:
        """Collect garbage periodically. Failures are logged and repeated in the next period."""
        images_at = float("-inf")
        while True:
            try:
                await self.collect_containers()
                if self.clock.monotonic() - images_at >= _IMAGE_PERIOD:
                    images_at = self.clock.monotonic()
                    await self.collect_images()
            except Exception as error:  # such as while the runtime is restarted
                log.warning("the garbage collection failed: %s", error)
            await self.clock.sleep(_CONTAINER_PERIOD)

    async def reclaim(self) -> None:
        """Remove all unused images, and all ended containers that are not needed, whatever the usage is."""
        await self.collect_containers()
        await self._remove_images(await self._removable(), None)

    # -- images --------------------------------------------------------------------------------------------------------

    async def collect_images(self) -> None:
        """Remove unused images until the usage is at the low threshold, if it is above the high one."""
        removable = await self._removable()
        filesystem = await self.image_fs()
        if not filesystem.capacity_bytes:
            self.warn("InvalidDiskCapacity", "invalid capacity 0 on image filesystem")
            return
        wanted = bytes_to_free(filesystem, self.high_percent, self.low_percent)
        if not wanted:
            return
        freed = await self._remove_images(removable, wanted)
        if freed < wanted:
            self.warn(
                "FreeDiskSpaceFailed",
                f"Insufficient free disk space on the node's image filesystem ({usage_percent(filesystem)}% of "
                f"{_size_text(filesystem.capacity_bytes)} used). Failed to free sufficient space by deleting unused "
                f"images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs, "
                "volumes, or other data.",
            )

    async def _removable(self) -> list[StoredImage]:
        """Update what is known about the images, and return those that may be removed."""
        # Images are listed before containers: one that is pulled and used in between is not seen as unused.
        images = (await self.client.call("ListImages", {}, timeout=_TIMEOUT)).images
        containers = (await self.client.call("ListContainers", {}, timeout=_TIMEOUT)).containers
        used = {reference for each in containers for reference in _references(each)} | {*self.image_volumes()}
        now, known = self.clock.monotonic(), self._images
        self._images = {}
        for each in images:
            before = known.get(each.id)
            names = {each.id, *each.repo_tags, *each.repo_digests}
            if getattr(each, "pinned", False) or self.sandbox_image in names:
                continue
            last_used = now if names & used else before.last_used if before is not None else float("-inf")
            first_seen = before.first_seen if before is not None else now
            self._images[each.id] = StoredImage(each.id, int(each.size), first_seen, last_used)
        return removal_order(self._images.values(), now, self.min_age)

    async def _remove_images(self, images: list[StoredImage], wanted: int | None) -> int:
        """Remove images until `wanted` bytes are free; None means all of them. Return the bytes that were freed."""
        freed = 0
        for each in images:
            if wanted is not None and freed >= wanted:
                break
            try:
                await self.client.call("RemoveImage", {"image": {"image": each.id}}, timeout=_TIMEOUT)
            except Exception as error:  # other images may be removable
                log.warning("cannot remove the image %s: %s", each.id, error)
                continue
            log.info("removed the image %s to free %d bytes", each.id, each.size)
            self._images.pop(each.id, None)
            freed += each.size
        if freed:
            self.on_images_removed()
        return freed

    # -- containers ----------------------------------------------------------------------------------------------------

    async def collect_containers(self) -> None:
        """Remove ended containers of this node that are not needed; those of others are never touched."""
        selector: Mapping[str, Obj] = {"state": {"state": _EXITED}, "label_selector": {NODE: self.node_name}}
        found = await self.client.call("ListContainers", {"filter": selector}, timeout=_TIMEOUT)
        dead = [
            DeadContainer(each.id, each.labels[POD_UID], each.labels[CONTAINER_NAME], each.created_at)
            for each in found.containers
            if POD_UID in each.labels and CONTAINER_NAME in each.labels
        ]
        for each in dead_containers_to_remove(dead, self.kept_pods()):
            try:
                await self.client.call("RemoveContainer", {"container_id": each.id}, timeout=_TIMEOUT)
            except Exception as error:
                log.warning("cannot remove the container %s: %s", each.id, error)


def _references(container: Any) -> tuple[str, ...]:
    return tuple(
        text for text in (container.image.image, container.image_ref, getattr(container, "image_id", "")) if text
    )


def _size_text(size: int) -> str:
    """Return a size as the kubelet shows it, such as 250.4 GiB."""
    number, unit = float(size), 0
    while number >= 1024 and unit < len(_SIZE_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.1f} {_SIZE_UNITS[unit]}" if unit else f"{size} B"
