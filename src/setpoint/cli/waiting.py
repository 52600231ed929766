"""Wait for a state of an object, or for its deletion."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.cli.resources import Target
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import Expired, NotFound
from setpoint.meta.objects import Obj

T = TypeVar("T")
FOREVER = 168 * 3600.0
"""The seconds that kubectl uses for an unlimited wait: one week."""
TIMED_OUT = "timed out waiting for the condition"
_PAUSE = 0.5


class TimedOut(Exception):
    """The awaited state was not reached in time."""


async def within(io: CommandIO, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Raise TimedOut and cancel it if it takes longer."""
    try:
        if io.limits is not None:
            async with io.limits.within(seconds):
                return await work
        from setpoint import tasks  # most commands do without an event loop

        return await tasks.within(io.clock, seconds, work)
    except TimeoutError:
        raise TimedOut(TIMED_OUT) from None


class Deadline:
    """One time limit for everything that a command waits for."""

    def __init__(self, invocation: Invocation, seconds: float) -> None:
        self._io = invocation.io
        self._end = self._io.clock.monotonic() + seconds

    async def bound(self, target: Target, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` within the limit. Raise Failed, naming the target, when the time is over."""
        try:
            return await within(self._io, max(self._end - self._io.clock.monotonic(), 0.0), work)
        except TimedOut:
            raise Failed(f"{TIMED_OUT} on {target.resource.plural}/{target.name}") from None


async def follow(invocation: Invocation, target: Target, enough: Callable[[Obj | None], bool]) -> Obj | None:
    """Return the object as soon as `enough` accepts its state; None stands for a deleted object. There is no time
    limit."""
    only = f"metadata.name={target.name}"
    seen: Obj | None = None
    while True:
        found = await invocation.client.list(target.resource, target.namespace, field_selector=only)
        seen = found.items[0] if found.items else None
        if enough(seen):
            return seen
        try:
            version = found.resource_version
            async with invocation.client.watch(
                target.resource, target.namespace, resource_version=version, field_selector=only
            ) as watch:
                async for kind, obj in watch:
                    if kind == "BOOKMARK":
                        continue
                    seen = None if kind == "DELETED" else obj
                    if enough(seen):
                        return obj
        except (Expired, Unreachable):
            await invocation.io.clock.sleep(_PAUSE)


async def until_gone(invocation: Invocation, target: Target, uid: str = "") -> Obj | None:
    """Wait until an object is deleted and return its last state. A new object of the same name counts as deleted."""
    last: Obj | None = None

    def gone(obj: Obj | None) -> bool:
        nonlocal last
        if obj is None or (uid and obj["metadata"].get("uid") != uid):
            return True
        last = obj
        return False

    try:
        first = await invocation.client.get(target.resource, target.name, target.namespace)
    except NotFound:
        return target.obj
    if not gone(first):
        await follow(invocation, target, gone)
    return last or first
