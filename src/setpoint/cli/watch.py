"""`setpoint watch`: a live view of a cluster, as large as the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from setpoint.cli.call import Call
from setpoint.cli.command import Command
from setpoint.cli.failures import Failed, first_of
from setpoint.cli.flags import switch
from setpoint.cli.resources import ALL_NAMESPACES
from setpoint.client.resources import builtin
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import ApiError, Forbidden

if TYPE_CHECKING:
    from setpoint.cli.watching.model import Model
    from setpoint.client import Resource

_FRAME = 0.125
_KINDS = (
    ("nodes", ""), ("pods", ""), ("deployments", "apps"), ("replicasets", "apps"), ("statefulsets", "apps"),
    ("daemonsets", "apps"), ("jobs", "batch"), ("events", ""),
)  # fmt: skip


async def run(call: Call) -> None:
    # Here, because nobody else draws.
    from setpoint.cli.watching.model import Model

    call.no_arguments()
    if not (call.flags.once or call.around.out_is_terminal):
        raise Failed("a live view needs a terminal; `setpoint get --watch` tells changes line by line")
    try:
        await _watch(call, Model())
    except* (ApiError, Unreachable) as found:
        raise first_of(found) from None


async def _watch(call: Call, model: Model) -> None:
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        waiting = {plural for plural, _ in _KINDS}

        def arrived(plural: str) -> None:
            waiting.discard(plural)
            if not waiting:
                ready.set()

        followers = [tasks.create_task(_follow(call, model, builtin(*kind), arrived)) for kind in _KINDS]
        try:
            await ready.wait()
            if call.flags.once:
                _once(call, model)
            else:
                await _show(call, model)
        finally:
            for follower in followers:
                follower.cancel()


async def _follow(call: Call, model: Model, resource: Resource, arrived: Callable[[str], None]) -> None:
    """What is there, and then what happens, for as long as it takes. What may not be seen is not shown."""
    clock, client = call.around.clock, call.client
    namespace = "" if call.flags.all_namespaces or not resource.namespaced else call.namespace
    seen = False
    while True:
        try:
            found = await client.list(resource, namespace)
            seen = True
            for obj in found.items:
                model.see(resource.kind, "ADDED", obj, clock.now(), news=False)
            arrived(resource.plural)
            async for type_, obj in client.watch(resource, namespace, resource_version=found.resource_version):
                if type_ != "BOOKMARK":
                    model.see(resource.kind, type_, obj, clock.now())
        except Forbidden:
            arrived(resource.plural)
            return
        except (ApiError, Unreachable):
            if call.flags.once or not seen:
                raise  # nothing is there to be shown until it is back
            await clock.sleep(1.0)


def _once(call: Call, model: Model) -> None:
    import io

    from rich.console import Console

    from setpoint.cli.watching.screen import draw

    text = io.StringIO()
    console = Console(file=text, width=120, height=30, color_system=None, legacy_windows=False)
    console.print(draw(model, _where(call), call.around.clock.now(), 30), end="")
    call.say("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


async def _show(call: Call, model: Model) -> None:
    import io

    from rich.console import Console
    from rich.live import Live

    from setpoint.cli.watching.screen import draw

    out = io.TextIOWrapper(call.around.stdout, encoding="utf-8", write_through=True)
    console = Console(file=out, force_terminal=True)
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            async with _keys(call) as leave:
                while not leave.is_set():
                    now = call.around.clock.now()
                    live.update(draw(model, _where(call), now, console.size.height), refresh=True)
                    await call.around.clock.sleep(_FRAME)
    finally:
        out.detach()


def _where(call: Call) -> str:
    return f"{call.access.server}  {'all namespaces' if call.flags.all_namespaces else call.namespace}"


@asynccontextmanager
async def _keys(call: Call) -> AsyncIterator[asyncio.Event]:
    """Set when somebody presses q or Ctrl-C. The terminal is as it was afterwards."""
    import termios
    import tty

    leave = asyncio.Event()
    if not call.around.in_is_terminal:
        yield leave
        return
    descriptor = call.around.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        if call.around.stdin.read(1) in (b"q", b"Q", b"\x03", b"\x1b", b""):
            leave.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield leave
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


COMMAND = Command(
    "Watch a cluster live, on the whole screen: desired against observed, changes, events",
    run,
    (*ALL_NAMESPACES, switch("once", help="Show it as it is now, as text, and end.")),
)
