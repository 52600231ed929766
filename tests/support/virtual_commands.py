"""`setpoint` commands that a test runs against a cluster in virtual time, in its own process."""

from __future__ import annotations

import shlex
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run_within
from setpoint.client import Client
from setpoint.testing import VirtualCluster


class Result(NamedTuple):
    code: int
    out: str
    err: str


_OFFLINE = (["snapshot", "show"], ["replay"])
"""The commands that use no cluster, and have no flags for one."""


async def run_command(
    cluster: VirtualCluster, line: str, home: Path, stdin: str = "", client: Client | None = None
) -> Result:
    """Run a command line as the administrator of the cluster, or with the client of another user."""
    words = shlex.split(line)
    if not any(words[: len(each)] == each for each in _OFFLINE):
        words = ["--server", "https://virtual.invalid", "--namespace", "default", *words]
    stdout, stderr = BytesIO(), BytesIO()
    io = CommandIO(
        stdin=BytesIO(stdin.encode()),
        stdout=stdout,
        stderr=stderr,
        environment={"HOME": str(home)},
        home=home,
        clock=cluster.clock,
        connect=lambda access, timeout: client or cluster.client.named("setpoint"),
    )
    code = await run_within(words, io)
    return Result(code, stdout.getvalue().decode(), stderr.getvalue().decode())


async def run_successfully(cluster: VirtualCluster, line: str, home: Path, stdin: str = "") -> str:
    """Run a command that must succeed, and return its output."""
    result = await run_command(cluster, line, home, stdin)
    assert result.code == 0, f"setpoint {line}: {result.err or result.out}"
    return result.out
