"""Test support for controllers and operators: a cluster in virtual time, fault injection, and a pytest plugin.

Names are imported on first access, because pytest loads the plugin in every run and most runs need no cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from setpoint.testing.cluster import VirtualCluster, virtual, virtual_cluster
    from setpoint.testing.exploring import Diverged, Exploration, explore
    from setpoint.testing.live import LiveCluster, live_cluster
    from setpoint.testing.plan import Plan
    from setpoint.testing.snapshot import Snapshot, prepared
    from setpoint.testing.virtual_time import VirtualClock, VirtualLoop, run_virtual

_MODULES = {
    "Diverged": "exploring",
    "Exploration": "exploring",
    "LiveCluster": "live",
    "Plan": "plan",
    "Snapshot": "snapshot",
    "VirtualClock": "virtual_time",
    "VirtualCluster": "cluster",
    "VirtualLoop": "virtual_time",
    "explore": "exploring",
    "live_cluster": "live",
    "prepared": "snapshot",
    "run_virtual": "virtual_time",
    "virtual": "cluster",
    "virtual_cluster": "cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Diverged",
    "Exploration",
    "LiveCluster",
    "Plan",
    "Snapshot",
    "VirtualClock",
    "VirtualCluster",
    "VirtualLoop",
    "explore",
    "live_cluster",
    "prepared",
    "run_virtual",
    "virtual",
    "virtual_cluster",
]
