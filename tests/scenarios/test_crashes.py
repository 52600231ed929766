"""Faults of a controller do not change the end state of a cluster.

Every scenario is what users do. It runs once without faults, and then again and again with something going wrong.
"""

from __future__ import annotations

import pytest
from crash_jobs import JOBS
from crash_nodes import NODE_LOSS
from crash_workloads import WORKLOADS
from crashing import SEEDS, Crashing

each_scenario = pytest.mark.parametrize(
    ("crashing", "name"),
    [pytest.param(crashing, name, id=name) for crashing in (WORKLOADS, JOBS, NODE_LOSS) for name in crashing.names],
)


@each_scenario
def test_a_crash_after_any_write_does_not_change_the_end_state(crashing: Crashing, name: str) -> None:
    crashing.crash(name, 1)


@each_scenario
def test_a_crash_followed_by_stale_lists_does_not_change_the_end_state(crashing: Crashing, name: str) -> None:
    crashing.crash(name, 1, "rewind")


@pytest.mark.parametrize("seed", SEEDS)
@each_scenario
def test_rejections_lost_responses_and_broken_watches_do_not_change_the_end_state(
    crashing: Crashing, name: str, seed: int
) -> None:
    crashing.noise(name, seed)
