"""Nodes are annotated with the time for which they may cache ConfigMaps and Secrets."""

from __future__ import annotations

from itertools import accumulate

import pytest

from setpoint.client.resources import builtin
from setpoint.controllers.node_ttl import STEPS, step_for
from setpoint.testing import VirtualCluster, virtual


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [
        ([0, 100], [0, 0]),
        ([101, 90, 89], [15, 15, 0]),
        ([5000, 1800, 1799, 2000, 2001], [300, 300, 60, 60, 300]),
        ([5000, 0], [300, 0]),
    ],
)
def test_thresholds_overlap(sizes: list[int], seconds: list[int]) -> None:
    steps = accumulate(sizes, lambda step, size: step_for(size, step), initial=0)
    assert [STEPS[step].seconds for step in list(steps)[1:]] == seconds


@virtual(nodes=2)
async def test_every_node_is_annotated(cluster: VirtualCluster) -> None:
    async def annotated() -> bool:
        nodes = await cluster.all(builtin("nodes"), "")
        return {node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] for node in nodes} == {"0"}

    await cluster.instant()
    assert await annotated()
