"""Whatever happens to a controller on the way, the cluster comes to the same in the end.

Every scenario is what users do. It runs once in peace, and then again and again with something going wrong.
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
def test_a_crash_after_any_write_changes_nothing_in_the_end(crashing: Crashing, name: str) -> None:
    crashing.crash(name, 1)


@each_scenario
def test_nor_does_it_when_what_is_listed_afterwards_is_stale(crashing: Crashing, name: str) -> None:
    crashing.crash(name, 1, "rewind")


@pytest.mark.parametrize("seed", SEEDS)
@each_scenario
def test_nor_do_refusals_lost_answers_and_watches_that_break(crashing: Crashing, name: str, seed: int) -> None:
    crashing.noise(name, seed)
