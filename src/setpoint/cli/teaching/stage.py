"""The environment of a demo: a cluster, commands that are typed on it, and pauses."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from textwrap import fill, indent
from typing import TYPE_CHECKING

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import CommandIO, Invocation

if TYPE_CHECKING:
    from setpoint.client import Client
    from setpoint.client.access import Access
    from setpoint.cluster.embedded import EmbeddedCluster

_WIDTH = 88
_LOOK_EVERY, _LONGEST = 0.05, 60.0
_BOLD, _DIM, _GREEN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[0m"


class Stage:
    def __init__(self, call: Invocation, cluster: EmbeddedCluster, wait: bool) -> None:
        self.call = call
        self.cluster = cluster
        self.client = cluster.client
        self._wait = wait
        self._colour = call.io.colour

    def title(self, text: str) -> None:
        self.call.print(f"\n{self._painted(text, _BOLD)}\n{'=' * len(text)}\n")

    def explain(self, text: str) -> None:
        """Print a paragraph."""
        self.call.print(fill(" ".join(text.split()), _WIDTH) + "\n")
        self.call.flush()

    async def pause(self) -> None:
        """Wait for Enter if there is a terminal."""
        if not self._wait:
            return
        import asyncio

        self.call.print(self._painted("[Enter]", _DIM), end="")
        self.call.flush()
        line = await asyncio.to_thread(self.call.io.stdin.readline)
        if not line:
            self._wait = False
        self.call.print("")

    async def type(self, line: str, stdin: str = "") -> str:
        """Run a command line as a user would, and print its output, also if it fails."""
        from setpoint.cli.main import run_within

        shown = f"$ setpoint {line}"
        if stdin:
            shown += " <<EOF\n" + stdin.strip("\n") + "\nEOF"
        self.call.print(self._painted(shown, _GREEN))
        out = BytesIO()
        io = CommandIO(
            stdin=BytesIO(stdin.encode()),
            stdout=out,
            stderr=out,
            environment=self.call.io.environment,
            home=self.call.io.home,
            clock=self.call.io.clock,
            connect=self._connect,
        )
        # No file of the user is read: its current context may have its own namespace, or be broken.
        await run_within(["--kubeconfig", os.devnull, "--server", "https://stage", *shlex.split(line)], io)
        text = out.getvalue().decode("utf-8", "replace")
        self.call.print(indent(text, "  "))
        self.call.flush()
        return text

    async def until(self, check: Callable[[], Awaitable[bool]], within: float = _LONGEST) -> None:
        """Wait until `check` is true. Raise Failed after `within` seconds."""
        clock = self.call.io.clock
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
async def stage(call: Invocation, nodes: int = 3) -> AsyncIterator[Stage]:
    """Run a cluster in this process and in memory: no other cluster is touched, and nothing is left behind."""
    from dataclasses import replace

    from setpoint.cluster.allinone import controller_options
    from setpoint.cluster.component_logs import component_logs
    from setpoint.cluster.components import ComponentOptions
    from setpoint.cluster.embedded import EmbeddedOptions, embedded_cluster
    from setpoint.node.options import FleetOptions, NodeTemplate
    from setpoint.system import RandomIds

    # The default timeouts for lost nodes are too long for a demo.
    settings = replace(
        controller_options(None, nodes=nodes, services="10.96.0.0/12"),
        node_monitor_period=0.5,
        node_monitor_grace_period=4.0,
    )
    fleet = FleetOptions(nodes, NodeTemplate(lease_seconds=4))
    wait = call.io.in_is_terminal and not call.flags.no_wait
    with component_logs(call.io.clock) as logs:
        components = ComponentOptions(nodes=nodes, controller_options=settings, fleet=fleet, logs=logs)
        async with embedded_cluster(call.io.clock, RandomIds(), EmbeddedOptions(components)) as cluster:
            yield Stage(call, cluster, wait)
