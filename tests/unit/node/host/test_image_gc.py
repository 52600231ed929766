"""The removal of unused images and ended containers."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_answers import RuntimeAnswers
from stopped_clock import StoppedClock

from setpoint.node.host.image_gc import (
    DeadContainer,
    GarbageCollector,
    bytes_to_free,
    dead_containers_to_remove,
)
from setpoint.node.host.machine import Filesystem

GI = 1 << 30


def filesystem(available: int, capacity: int = 100 * GI) -> Filesystem:
    return Filesystem(1, capacity, available, capacity - available, 0, 0)


@pytest.mark.parametrize(
    ("available", "freed"),
    [(16 * GI, 0), (15 * GI, 5 * GI), (1 * GI, 19 * GI), (200 * GI, 0), (15 * GI + 1, 5 * GI - 1)],
)
def test_how_much_is_freed(available: int, freed: int) -> None:
    assert bytes_to_free(filesystem(available), 85, 80) == freed


def image(name: str, size: int = GI, **more: Any) -> dict[str, Any]:
    return {"id": f"sha256:{name}", "repo_tags": [f"r/{name}:1"], "size": size, **more}


def container(reference: str, **more: Any) -> dict[str, Any]:
    return {"id": f"c-{reference}", "image": {"image": reference}, "image_ref": reference, **more}


class Harness:
    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.client = RuntimeAnswers(RemoveImage={}, RemoveContainer={}, ListContainers={"containers": []})
        self.available = 50 * GI
        self.image_volumes: set[str] = set()
        self.warnings: list[tuple[str, str]] = []
        self.collector = GarbageCollector(
            "real-1",
            self.client,
            self.clock,
            self.measure,
            lambda: {"u-1"},
            lambda reason, message: self.warnings.append((reason, message)),
            sandbox_image="localhost/setpoint/pause:1",
            image_volumes=lambda: self.image_volumes,
        )

    async def measure(self) -> Filesystem:
        return filesystem(self.available)

    def set(self, *images: Any, used: tuple[str, ...] = ()) -> None:
        self.client.answers["ListImages"] = {"images": list(images)}
        self.client.answers["ListContainers"] = {"containers": [container(each) for each in used]}

    @property
    def removed(self) -> list[str]:
        return [request["image"]["image"] for method, request in self.client.calls if method == "RemoveImage"]


async def test_images_used_longest_ago_are_removed_until_there_is_space() -> None:
    harness = Harness()
    harness.set(image("a", 2 * GI), image("b", 4 * GI), image("c"), image("d"), used=("sha256:a", "r/b:1", "sha256:d"))
    await harness.collector.collect_images()
    await harness.clock.advance(100)
    harness.set(image("a", 2 * GI), image("b", 4 * GI), image("c"), image("d"), used=("sha256:b", "sha256:d"))
    await harness.collector.collect_images()
    await harness.clock.advance(100)
    harness.available = 15 * GI
    harness.set(
        image("a", 2 * GI), image("b", 4 * GI), image("c"), image("d"), image("new", 9 * GI), used=("sha256:d",)
    )
    await harness.collector.collect_images()
    # The one that was never used, then the others in the order of their last use, until 5Gi are free.
    assert harness.removed == ["sha256:c", "sha256:a", "sha256:b"]
    assert harness.warnings == []


async def test_too_little_can_be_removed() -> None:
    harness = Harness()
    harness.set(image("a"), image("used"), used=("sha256:used",))
    await harness.collector.collect_images()
    await harness.clock.advance(120)
    harness.available = 10 * GI
    await harness.collector.collect_images()
    assert harness.removed == ["sha256:a"]
    assert harness.warnings == [
        (
            "FreeDiskSpaceFailed",
            "Insufficient free disk space on the node's image filesystem (90% of 100.0 GiB used). Failed to free "
            f"sufficient space by deleting unused images (freed {GI} bytes). Investigate disk usage, as it could be used "
            "by active images, logs, volumes, or other data.",
        )
    ]


async def test_pinned_and_new_images_and_that_of_sandboxes_stay() -> None:
    harness = Harness()
    pause = image("pause") | {"repo_tags": ["localhost/setpoint/pause:1"]}
    images = [pause, image("pinned", pinned=True), image("a"), image("b")]
    harness.set(*images)
    await harness.collector.reclaim()
    assert harness.removed == []
    await harness.clock.advance(120)
    removed: list[bool] = []
    harness.collector.on_images_removed = lambda: removed.append(True)
    await harness.collector.reclaim()
    assert sorted(harness.removed) == ["sha256:a", "sha256:b"] and removed == [True]


async def test_an_image_that_cannot_be_removed_does_not_stop_the_others() -> None:
    harness = Harness()
    harness.set(image("a"))
    await harness.collector.collect_images()
    await harness.clock.advance(120)
    harness.client.answers["RemoveImage"] = None
    await harness.collector.reclaim()
    assert harness.removed == ["sha256:a"]


def test_of_each_container_the_newest_run_stays() -> None:
    dead = [
        DeadContainer("1", "u-1", "app", 10),
        DeadContainer("2", "u-1", "app", 30),
        DeadContainer("3", "u-1", "app", 20),
        DeadContainer("4", "u-1", "init", 5),
        DeadContainer("5", "gone", "app", 40),
    ]
    assert sorted(each.id for each in dead_containers_to_remove(dead, {"u-1"})) == ["1", "3", "5"]


async def test_containers_of_others_are_not_touched() -> None:
    harness = Harness()
    labels = {"io.kubernetes.pod.uid": "gone", "io.kubernetes.container.name": "app"}
    found = [container("a", labels=labels, state=2), container("b", state=2)]
    harness.client.answers["ListContainers"] = {"containers": found}
    await harness.collector.collect_containers()
    listed, removed = harness.client.calls
    assert listed[1]["filter"] == {"state": {"state": 2}, "label_selector": {"setpoint.dev/node": "real-1"}}
    assert removed == ("RemoveContainer", {"container_id": "c-a"})


async def test_images_that_are_mounted_as_volumes_are_in_use() -> None:
    harness = Harness()
    harness.image_volumes = {"r/a:1"}
    harness.set(image("a"), image("b"))
    await harness.collector.reclaim()
    await harness.clock.advance(200)
    await harness.collector.reclaim()
    assert harness.removed == ["sha256:b"]
