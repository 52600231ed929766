"""ImageLocality: prefers nodes that have the Pod's images, weighted by size and spread."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from setpoint.scheduler.demand import Demand
from setpoint.scheduler.framework import MAX_SCORE, Cycle, Interest
from setpoint.scheduler.node_table import Ints, Mask, NodeTable

_MIN_THRESHOLD = 23 * 1024 * 1024
_MAX_CONTAINER_THRESHOLD = 1000 * 1024 * 1024


class ImageLocality:
    name = "ImageLocality"

    def interests(self) -> Iterable[Interest]:
        return ()

    def score(self, cycle: Cycle, feasible: Mask) -> Ints | None:
        if not cycle.table.images:
            return None
        known = cycle.demand.cache.get(self)
        version = (cycle.table.version, cycle.table.images_version)
        if known is None or known[0] != version:
            known = cycle.demand.cache[self] = (version, _scores(cycle.demand, cycle.table))
        scores: Ints | None = known[1]
        return scores


def _scores(demand: Demand, table: NodeTable) -> Ints | None:
    spec = demand.spec
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    wanted = [container.get("image") or "" for container in containers]
    wanted += [volume["image"].get("reference") or "" for volume in demand.volumes if "image" in volume]
    sums: Ints | None = None
    for image in wanted:
        holders = table.images.get(_with_tag(image))
        if holders:
            if sums is None:
                sums = np.zeros(table.capacity, dtype=np.int64)
            size = next(iter(holders.values()))
            sums[list(holders)] += int(float(size) * (len(holders) / len(table)))
    if sums is None:
        return None
    max_threshold = _MAX_CONTAINER_THRESHOLD * len(wanted)
    return (
        MAX_SCORE * (np.clip(sums, _MIN_THRESHOLD, max_threshold) - _MIN_THRESHOLD) // (max_threshold - _MIN_THRESHOLD)
    )


def _with_tag(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
