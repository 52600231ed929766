"""`setpoint watch`: a live full-screen view of a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, first_of
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES
from setpoint.client.resources import builtin
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import ApiError, Forbidden

if TYPE_CHECKING:
    from setpoint.cli.watching.model import Authors, Model
    from setpoint.cli.watching.screen import View
    from setpoint.client import ObjectList, Resource

_FRAME = 0.125
_AGES = 1.0
"""Seconds after which the screen is redrawn without changes, because ages grow."""
_PLAIN = (120, 40)
"""Columns and lines without a terminal."""
_USUAL = (80, 24)
"""Columns and lines of a terminal of unknown size."""
_KINDS = (
    ("nodes", ""),
    ("pods", ""),
    ("deployments", "apps"),
    ("replicasets", "apps"),
    ("statefulsets", "apps"),
    ("daemonsets", "apps"),
    ("jobs", "batch"),
    ("replicationcontrollers", ""),
    ("events", ""),
)


async def run(invocation: Invocation) -> None:
    # Imported here because only this command draws.
    from setpoint.cli.watching.model import Model

    invocation.no_arguments()
    if not (invocation.flags.once or invocation.io.out_is_terminal):
        raise Failed("a live view needs a terminal; `setpoint get --watch` prints changes line by line")
    try:
        await _watch(invocation, Model())
    except* (ApiError, Unreachable) as found:
        raise first_of(found) from None


async def _watch(invocation: Invocation, model: Model) -> None:
    """Show the current objects and follow their changes. Kinds that the user may not read are not shown."""
    from setpoint.cli.watching.model import Authors

    kinds = [builtin(*kind) for kind in _KINDS]
    async with asyncio.TaskGroup() as tasks:
        listing = {kind: tasks.create_task(_listed(invocation, kind)) for kind in kinds}
    there = {kind: found for kind, task in listing.items() if (found := task.result()) is not None}
    model.begin(((kind.kind, obj) for kind, found in there.items() for obj in found.items), invocation.io.clock.now())
    authors = Authors(invocation.client)
    await _attribute(model, authors)
    if invocation.flags.once:
        _once(invocation, model)
        return
    async with asyncio.TaskGroup() as tasks:
        followers = [tasks.create_task(_follow(invocation, model, kind, found)) for kind, found in there.items()]
        followers.append(tasks.create_task(_follow_authors(invocation, model, authors)))
        try:
            await _show(invocation, model)
        finally:
            for follower in followers:
                follower.cancel()


def _namespace(invocation: Invocation, resource: Resource) -> str:
    return "" if invocation.flags.all_namespaces or not resource.namespaced else invocation.namespace


async def _listed(invocation: Invocation, resource: Resource) -> ObjectList | None:
    """Return the current objects; None if the user may not read them."""
    try:
        return await invocation.client.list(resource, _namespace(invocation, resource))
    except Forbidden:
        return None


async def _follow(invocation: Invocation, model: Model, resource: Resource, found: ObjectList) -> None:
    """Feed watch events into the model. A connection that is lost is retried."""
    clock, client, namespace = invocation.io.clock, invocation.client, _namespace(invocation, resource)
    while True:
        try:
            async for type_, obj in client.watch(resource, namespace, resource_version=found.resource_version):
                if type_ != "BOOKMARK":
                    model.see(resource.kind, type_, obj, clock.now())
        except (ApiError, Unreachable):
            await clock.sleep(1.0)
        try:
            found = await client.list(resource, namespace)
            model.see_again(resource.kind, found.items, clock.now())
        except (ApiError, Unreachable):
            await clock.sleep(1.0)


async def _follow_authors(invocation: Invocation, model: Model, authors: Authors) -> None:
    while True:
        await invocation.io.clock.sleep(_FRAME)
        await _attribute(model, authors)


async def _attribute(model: Model, authors: Authors) -> None:
    from setpoint.cli.watching.model import MAX

    if unattributed := model.unattributed(MAX):
        found = await authors.of(unattributed)
        if found is not None:
            model.attribute(found, unattributed)


def _once(invocation: Invocation, model: Model) -> None:
    import io

    from rich.console import Console

    from setpoint.cli.terminal import size
    from setpoint.cli.watching.screen import View, draw

    width, height = size(invocation.io.stdout) or _PLAIN
    text = io.StringIO()
    console = Console(file=text, width=width, height=height, color_system=None, legacy_windows=False)
    console.print(draw(model, View(), _where(invocation), invocation.io.clock.now(), height), end="")
    invocation.print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


async def _show(invocation: Invocation, model: Model) -> None:
    import io

    from rich.console import Console, ConsoleDimensions
    from rich.live import Live

    from setpoint.cli.terminal import size
    from setpoint.cli.watching.screen import View, draw

    clock, view = invocation.io.clock, View()
    out = io.TextIOWrapper(invocation.io.stdout, encoding="utf-8", write_through=True)
    console = Console(file=out, force_terminal=True)
    drawn: tuple[object, ...] = ()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            async with _keys(invocation, view) as leave:
                while not leave.is_set():
                    now, dimensions = clock.now(), size(invocation.io.stdout) or _USUAL
                    state = (model.version, view.presses, dimensions, int(clock.monotonic() / _AGES))
                    if state != drawn:
                        # The library checks other streams, and only once: the terminal may change its size.
                        console.size = ConsoleDimensions(*dimensions)
                        live.update(draw(model, view, _where(invocation), now, dimensions[1]), refresh=True)
                        drawn = state
                    await clock.sleep(_FRAME)
    finally:
        out.detach()


def _where(invocation: Invocation) -> str:
    return (
        f"{invocation.access.server}  {'all namespaces' if invocation.flags.all_namespaces else invocation.namespace}"
    )


@asynccontextmanager
async def _keys(invocation: Invocation, view: View) -> AsyncIterator[asyncio.Event]:
    """Move the view by keys. The event is set by q and Ctrl-C. The terminal is restored afterwards."""
    import termios
    import tty

    from setpoint.cli.watching.screen import keys_of

    leave = asyncio.Event()
    if not invocation.io.in_is_terminal:
        yield leave
        return
    descriptor = invocation.io.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        data = os.read(descriptor, 1024)
        for key in keys_of(data):
            view.press(key)
            if key == "quit":
                leave.set()
        if not data:
            leave.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield leave
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


COMMAND = Command(
    "Watch a cluster live, on the whole screen: desired against observed, changes and their authors, events",
    run,
    (*ALL_NAMESPACES, switch("once", help="Print the current view as text, and exit.")),
    about="""
    Arrow keys, Page Up and Page Down scroll a panel, Tab switches to the next one, q or Ctrl-C leaves. The authors of
    changes are those that the server has recorded; where it records none, the field managers of the objects.
    """,
)
