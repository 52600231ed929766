"""Print the important events of a cluster during `setpoint up`, one line each, with the author of the change that led
to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import print_line
from setpoint.cli.watching.model import Authors
from setpoint.client.resources import builtin
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import ApiError

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.cluster.allinone import RunningCluster

_MAX_A_SECOND = 10
_ROUTINE_REASONS = {
    "Pulling",
    "Pulled",
    "Created",
    "Starting",
    "NodeAllocatableEnforced",
    "RegisteredNode",
    "NodeHasSufficientMemory",
    "NodeHasNoDiskPressure",
    "NodeHasSufficientPID",
    "LeaderElection",
}
"""Reasons that occur for every Pod or node and are not printed; `setpoint events` shows them."""


@asynccontextmanager
async def print_events(invocation: Invocation, running: RunningCluster) -> AsyncIterator[None]:
    """Print new events of the cluster while the block runs."""
    client = running.components.event_reader()
    async with asyncio.TaskGroup() as tasks:
        # An event that cannot be printed must not end the cluster.
        keep = running.apiserver.supervisor.run
        telling = tasks.create_task(keep("log of events", partial(_follow, invocation, client)))
        try:
            yield
        finally:
            telling.cancel()


async def _follow(invocation: Invocation, client: Client) -> None:
    events, authors = builtin("events"), Authors(client)
    clock = invocation.io.clock
    second, printed, more = 0, 0, 0
    while True:
        try:
            begin = (await client.list_page(events, limit=1)).resource_version
            async for kind, event in client.watch(events, resource_version=begin):
                if kind not in ("ADDED", "MODIFIED") or event.get("reason") in _ROUTINE_REASONS:
                    continue
                now = int(clock.monotonic())
                if now != second:
                    if more:
                        print_line(invocation, f"          … and {more} more")
                    second, printed, more = now, 0, 0
                printed += 1
                if printed > _MAX_A_SECOND:
                    more += 1
                else:
                    origin = await authors.origin(int(event["metadata"]["resourceVersion"]))
                    print_line(invocation, _line(invocation, event, origin))
        except (ApiError, Unreachable):
            await clock.sleep(1.0)


def _line(invocation: Invocation, event: dict[str, Any], origin: str) -> str:
    """Return the line of an Event; `origin` is the author of the change that led to it, or empty."""
    about = event.get("involvedObject") or {}
    name = f"{(about.get('kind') or '').lower()}/{about.get('name') or ''}"
    if about.get("namespace") not in ("", "default", None):
        name = f"{about['namespace']} {name}"
    when = invocation.io.clock.now().astimezone().strftime("%H:%M:%S")
    text = " ".join(str(event.get("message") or "").split())
    line = f"{when}  {name}  {event.get('reason') or ''}: {text}{f'  <- {origin}' if origin else ''}"
    line = "".join(char if char.isprintable() else "�" for char in line)[:300]
    if invocation.io.colour:
        return f"\x1b[33m{line}\x1b[0m" if event.get("type") == "Warning" else f"\x1b[2m{line[:8]}\x1b[0m{line[8:]}"
    return line
