"""A cluster to play on, commands typed on it before an audience, and the audience's patience."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from textwrap import fill, indent
from typing import TYPE_CHECKING

from setpoint.cli.call import Call, Surroundings
from setpoint.cli.failures import Failed

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.client.access import Access
    from setpoint.cluster.embedded import EmbeddedCluster

_WIDTH = 88
_LOOK_EVERY, _LONGEST = 0.05, 60.0
_BOLD, _DIM, _GREEN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


class Stage:
    def __init__(self, call: Call, cluster: EmbeddedCluster, wait: bool) -> None:
        self.call = call
        self.cluster = cluster
        self.client = cluster.client
        self._wait = wait
        self._colour = call.around.colour

    def title(self, text: str) -> None:
        self.call.say(f"\n{self._painted(text, _BOLD)}\n{'=' * len(text)}\n")

    def explain(self, text: str) -> None:
        """A paragraph."""
        self.call.say(fill(" ".join(text.split()), _WIDTH) + "\n")
        self.call.flush()

    async def pause(self) -> None:
        """Until somebody presses Enter, if anybody is there."""
        if not self._wait:
            return
        import asyncio

        self.call.say(self._painted("[Enter]", _DIM), end="")
        self.call.flush()
        line = await asyncio.to_thread(self.call.around.stdin.readline)
        if not line:
            self._wait = False
        self.call.say("")

    async def type(self, line: str, stdin: str = "") -> str:
        """A command, as the audience could type it, and what it answers. It may fail: that is shown too."""
        from setpoint.cli.main import run_within

        shown = f"$ setpoint {line}"
        if stdin:
            shown += " <<EOF\n" + stdin.strip("\n") + "\nEOF"
        self.call.say(self._painted(shown, _GREEN))
        out = io.BytesIO()
        around = Surroundings(
            stdin=io.BytesIO(stdin.encode()),
            stdout=out,
            stderr=out,
            environment=self.call.around.environment,
            home=self.call.around.home,
            clock=self.call.around.clock,
            connect=self._connect,
        )
        # No file of the user's: its current context may have a namespace of its own, or be broken.
        await run_within(["--kubeconfig", os.devnull, "--server", "https://stage", *shlex.split(line)], around)
        text = out.getvalue().decode("utf-8", "replace")
        self.call.say(indent(text, "  "))
        self.call.flush()
        return text

    async def until(self, check: Callable[[], Awaitable[bool]], within: float = _LONGEST) -> None:
        """Raises Failed: on the stage everything is known to happen."""
        clock = self.call.around.clock
        end = clock.monotonic() + within
        while not await check():
            if clock.monotonic() > end:
                raise Failed("what was to happen next did not: please report this, with the lines above")
            await clock.sleep(_LOOK_EVERY)

    def _connect(self, _: Access, __: float) -> Client:
        return self.client.named("setpoint-demo")

    def _painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._colour else text


@asynccontextmanager
async def stage(call: Call, nodes: int = 3) -> AsyncIterator[Stage]:
    """With a cluster of its own, in this process and in memory: nobody else's is touched, and nothing is left."""
    from dataclasses import replace

    from setpoint.cluster.allinone import controller_options
    from setpoint.cluster.component_logs import component_logs
    from setpoint.cluster.components import ComponentOptions
    from setpoint.cluster.embedded import EmbeddedOptions, embedded_cluster
    from setpoint.node.options import FleetOptions, NodeTemplate
    from setpoint.system import RandomIds

    # A cluster waits long before it gives up a node; an audience does not.
    settings = replace(
        controller_options(None, nodes=nodes, services="10.96.0.0/12"),
        node_monitor_period=0.5,
        node_monitor_grace_period=4.0,
    )
    fleet = FleetOptions(nodes, NodeTemplate(lease_seconds=4))
    wait = call.around.in_is_terminal and not call.flags.no_wait
    with component_logs(call.around.clock) as logs:
        components = ComponentOptions(nodes=nodes, controller_options=settings, fleet=fleet, logs=logs)
        async with embedded_cluster(call.around.clock, RandomIds(), EmbeddedOptions(components)) as cluster:
            yield Stage(call, cluster, wait)
