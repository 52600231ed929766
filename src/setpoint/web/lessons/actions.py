"""The actions of a lesson itself in the learner's cluster: its faults, and starting and stopping its operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.node.simulation_annotations import PARTITIONED, STATE, STOPPED
from setpoint.view.course.blocks import Fault
from setpoint.view.course.facts import LESSON_AGENT

_NODES: Final = builtin("nodes")
_STATES: Final[Mapping[str, str | None]] = {"stop": STOPPED, "partition": PARTITIONED, "start": None}

Control = Callable[[Mapping[str, Any]], Awaitable[object]]
"""Starts or stops a part of the cluster: `{"component": "controllers", "running": false}`, or an operator. Raises
ApiError."""


class LessonActions:
    """The actions of a lesson in one cluster."""

    def __init__(self, client: Client, control: Control) -> None:
        self._client = client.named(LESSON_AGENT)
        self._control = control

    async def fault(self, fault: Fault) -> None:
        """Disturb the cluster. Raises ApiError."""
        if fault.target == "node":
            annotations = {STATE: _STATES[fault.action]}
            await self._client.patch(_NODES, fault.name, {"metadata": {"annotations": annotations}})
        else:
            await self._control({"component": fault.target, "running": fault.action == "start"})

    async def run_operator(self, name: str, running: bool) -> None:
        """Start or stop an operator of the lessons. Raises ApiError."""
        await self._control({"operator": name, "running": running})
