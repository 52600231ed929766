"""What all Pods of a fleet share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from setpoint.meta.clock import Ids
from setpoint.node.node_state import NodeState
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.reconcile import EventRecorder

Obj = Mapping[str, Any]


class Lookup(Protocol):
    """What the agent knows of other objects."""

    def config_map(self, namespace: str, name: str) -> Obj | None: ...

    def claim(self, namespace: str, name: str) -> Obj | None:
        """A PersistentVolumeClaim."""
        ...

    def secret(self, namespace: str, name: str) -> Obj | None: ...

    def trust_bundles(self) -> list[Obj]: ...

    def services(self, namespace: str) -> list[Obj]: ...


@dataclass(slots=True)
class Tools:
    runtime: SimulatedRuntime
    events: EventRecorder
    lookup: Lookup
    ids: Ids
    nodes: dict[str, NodeState] = field(default_factory=dict)
