"""`setpoint` typed by a test: in this process, with its streams in the test's hand."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from local_server import TOKEN, LocalServer

from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run, run_within
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Transport
from setpoint.meta.clock import Clock


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


class Typed:
    """Lines typed against a LocalServer, as its administrator."""

    def __init__(self, server: LocalServer, home: Path, namespace: str = "default") -> None:
        self.server = server
        self.home = home
        self.namespace = namespace
        self.transport: Transport = InProcessTransport(server.entrance, TOKEN)

    async def run(self, line: str, stdin: str = "", **environment: str) -> Result:
        """`line` is taken apart as a shell does."""
        words = shlex.split(line)
        server = self.server

        def connect(access: Access, _: float) -> Client:
            return Client(self.transport, server.clock, impersonate=access.impersonate, user_agent="cli")

        io, result = surroundings(self.home, server.clock, stdin, environment, connect)
        code = await run_within(["--server", "https://local", "--namespace", self.namespace, *words], io)
        return result(code)

    async def while_time_passes(self, line: str, seconds: float) -> Result:
        """The line is typed, and while it is at work the server's clock goes on."""
        running = asyncio.ensure_future(self.run(line))
        for _ in range(60):
            await asyncio.sleep(0)
        await self.server.clock.advance(seconds)
        return await asyncio.wait_for(running, 10)

    async def __call__(self, line: str, stdin: str = "", **environment: str) -> str:
        """What it prints; it must succeed."""
        done = await self.run(line, stdin, **environment)
        assert done.code == 0, f"setpoint {line}: {done.err or done.out}"
        return done.out

    async def refused(self, line: str, stdin: str = "", **environment: str) -> str:
        """What it says when it fails; it must fail."""
        done = await self.run(line, stdin, **environment)
        assert done.code != 0, f"setpoint {line} succeeded: {done.out}"
        return done.err


def typed_offline(line: str, home: Path, stdin: str = "", **environment: str) -> Result:
    """A line for which no server is there, or one that is named by the environment's KUBECONFIG."""
    io, result = surroundings(home, None, stdin, environment, None)
    return result(run(shlex.split(line), io))


def surroundings(
    home: Path,
    clock: Clock | None,
    stdin: str,
    environment: dict[str, str],
    connect: Callable[[Access, float], Client] | None,
) -> tuple[CommandIO, Callable[[int], Result]]:
    out, err = BytesIO(), BytesIO()
    io = CommandIO(
        stdin=BytesIO(stdin.encode()),
        stdout=out,
        stderr=err,
        environment={"HOME": str(home), **environment},
        home=home,
        clock=clock,
        connect=connect,
    )
    return io, lambda code: Result(code, out.getvalue().decode(), err.getvalue().decode())
