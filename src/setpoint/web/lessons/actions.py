"""The actions of a lesson itself in the learner's cluster: its faults, and starting and stopping its operator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, BadRequest, NotFound
from setpoint.meta.objects import ObjView
from setpoint.node.simulation_annotations import PARTITIONED, STATE, STOPPED
from setpoint.view.course.blocks import Fault
from setpoint.view.course.facts import LESSON_AGENT
from setpoint.view.course.lesson import Lesson

_NODES: Final = builtin("nodes")
_STATES: Final[Mapping[str, str | None]] = {"stop": STOPPED, "partition": PARTITIONED, "start": None}

_SERVED_WITHIN: Final = 10.0
"""Seconds until a kind whose definition was just created must be served."""
_POLL: Final = 0.1

Control = Callable[[Mapping[str, Any]], Awaitable[object]]
"""Starts or stops a part of the cluster: `{"component": "controllers", "running": false}`, or an operator. Raises
ApiError."""


async def create_objects(client: Client, clock: Clock, objects: Iterable[ObjView]) -> None:
    """Create objects in their order, by default in the namespace `default`. One that exists already is left as it is;
    one of a kind that was just defined waits until it is served. Raises BadRequest, which names the object."""
    client = client.named(LESSON_AGENT)
    client.default_namespace = "default"
    for obj in objects:
        named = f"{obj.get('kind', '')} {(obj.get('metadata') or {}).get('name', '')}"
        deadline = clock.monotonic() + _SERVED_WITHIN
        while True:
            try:
                await client.create(obj)
                break
            except AlreadyExists:
                break
            except NotFound as error:
                if clock.monotonic() > deadline:
                    raise BadRequest(f"{named}: {error.message}") from None
                await clock.sleep(_POLL)
            except ApiError as error:
                raise BadRequest(f"{named}: {error.message}") from None


class LessonActions:
    """The actions of a lesson in one cluster."""

    def __init__(self, client: Client, clock: Clock, control: Control) -> None:
        self._client = client.named(LESSON_AGENT)
        self._clock = clock
        self._control = control

    async def begin(self, lesson: Lesson) -> None:
        """Create what the lesson begins with, beyond its start state. Raises ApiError."""
        await create_objects(self._client, self._clock, lesson.start.broken)

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
