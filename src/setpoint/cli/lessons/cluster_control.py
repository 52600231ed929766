"""Starts and stops parts of the cluster that a lesson in a terminal is taken on: components, and the operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from setpoint.client import Client
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, Forbidden, NotFound, ServiceUnavailable
from setpoint.tasks import child_tasks
from setpoint.view.course.facts import LESSON_AGENT

_FAULTS: Final = "/setpoint/v1/faults"
_STOP: Final = "component-stop"


class ClusterControl:
    """Controls the user's own cluster: its components by faults of the server, and operators in this process."""

    def __init__(self, client: Client, clock: Clock, ids: Ids) -> None:
        self._client = client
        self._clock = clock
        self._ids = ids
        self._tasks: asyncio.TaskGroup | None = None
        self._operators: dict[str, asyncio.Task[None]] = {}

    @property
    def operators(self) -> list[str]:
        """The operators that run."""
        return [*self._operators]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run operators while the block runs."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                for task in self._operators.values():
                    task.cancel()

    async def change(self, wanted: Mapping[str, Any]) -> None:
        """Start or stop a part (`web/lessons/actions.py`). Raises ApiError."""
        if "operator" in wanted:
            await self._set_operator(wanted["operator"], wanted["running"])
            return
        try:
            await self._set_component(wanted["component"], wanted["running"])
        except (NotFound, Forbidden):
            raise ServiceUnavailable(
                f"this server does not let you stop its {wanted['component']}; a cluster of `setpoint up` does"
            ) from None

    async def _set_component(self, name: str, running: bool) -> None:
        sender = self._client.sender
        active = [
            each
            for each in (await sender.json("GET", _FAULTS))["active"]
            if each["fault"] == _STOP and each["args"].get("component") == name
        ]
        if running:
            for each in active:
                await sender.json("POST", _FAULTS, body={"undo": each["id"]})
        elif not active:
            await sender.json("POST", _FAULTS, body={"fault": _STOP, "component": name})

    async def _set_operator(self, name: str, running: bool) -> None:
        task = self._operators.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if running and self._tasks is not None:
            ready = asyncio.Event()
            task = self._operators[name] = self._tasks.create_task(self._run(name, ready))
            async with child_tasks(_waited(ready)) as (waiting,):
                await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                self._operators.pop(name, None)
                task.result()

    async def _run(self, name: str, ready: asyncio.Event) -> None:
        from setpoint.lessons.operators import OPERATORS  # only one lesson needs it

        operator = OPERATORS[name]()
        try:
            await operator.install(self._client.named(LESSON_AGENT), self._clock)
            async with operator.running(self._client.named(operator.name), self._clock, self._ids):
                ready.set()
                await asyncio.Event().wait()
        except ApiError as error:
            raise ServiceUnavailable(f"the operator {name} ended: {error.message}") from None


async def _waited(event: asyncio.Event) -> None:
    await event.wait()
