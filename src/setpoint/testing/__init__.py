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
    from setpoint.testing.snapshot import Snapshot, prepared
    from setpoint.testing.virtual_time import VirtualClock, VirtualLoop, run_virtual
    from setpoint.view.fault_plan import Plan

_MODULES = {
    "Diverged": "testing.exploring",
    "Exploration": "testing.exploring",
    "LiveCluster": "testing.live",
    "Plan": "view.fault_plan",
    "Snapshot": "testing.snapshot",
    "VirtualClock": "testing.virtual_time",
    "VirtualCluster": "testing.cluster",
    "VirtualLoop": "testing.virtual_time",
    "explore": "testing.exploring",
    "live_cluster": "testing.live",
    "prepared": "testing.snapshot",
    "run_virtual": "testing.virtual_time",
    "virtual": "testing.cluster",
    "virtual_cluster": "testing.cluster",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"setpoint.{_MODULES[name]}"), name)


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
