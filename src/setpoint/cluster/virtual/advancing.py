"""Lets virtual time pass in a copy of a cluster, and returns the copy as it is afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from setpoint.cluster.cluster_copy import ClusterCopy, copied_items
from setpoint.cluster.embedded import EmbeddedCluster
from setpoint.cluster.virtual.component_faults import ComponentFaults
from setpoint.cluster.virtual.simulation import simulation
from setpoint.view.fault_plan import Plan
from setpoint.view.fault_report import FaultReport

_SETTLE_WITHIN = 24 * 3600.0


class Passed(NamedTuple):
    """The result of letting virtual time pass."""

    copy: ClusterCopy
    """The state at the end."""
    writes: int
    """The number of writes."""
    settled: bool
    """Whether the loops settled; true if they did not have to."""
    faults: FaultReport | None
    """The effects of the faults; None if there were none."""


async def advanced(
    copy: ClusterCopy, seconds: float | None, plans: Mapping[str, Plan], seed: int, interrupted: Callable[[], bool]
) -> Passed:
    """Let time pass, or the loops settle if `seconds` is None, with the faults of these plans; requires a virtual
    loop. Raises Interrupted, Livelock."""
    # The loops act as soon as they start: faults have to be in effect before.
    begin = simulation(copy, seed=seed, max_writes=0, interrupted=interrupted, linked=bool(plans), paused=bool(plans))
    async with begin as running:
        faults, settled = ComponentFaults(running, plans), True
        async with faults.injected():
            running.resume()
            if seconds is None:
                settled = await faults.settle(_SETTLE_WITHIN)
            else:
                await running.advance(seconds)
        writes, report = len(running.writes) + running.dropped, faults.report() if plans else None
        return Passed(state_of_cluster(running.embedded, running.clock.now(), copy), writes, settled, report)


def state_of_cluster(cluster: EmbeddedCluster, now: datetime, before: ClusterCopy) -> ClusterCopy:
    """Return a copy of a cluster that started from the copy `before`."""
    copy = copied_items(cluster.store.entries().values(), cluster.store.revision, now)
    return replace(copy, left_out=before.left_out, secrets=before.secrets, toleration_seconds=before.toleration_seconds)
