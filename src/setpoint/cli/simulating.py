"""Commands that run a copy of a cluster in virtual time: where the copy comes from, and the thread that runs it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from setpoint.cli.failures import Failed
from setpoint.cli.flags import UsageProblem, array, text, texts
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.client.kubeconfig import Access
from setpoint.meta.errors import ApiError

if TYPE_CHECKING:
    from setpoint.cluster.cluster_copy import ClusterCopy
    from setpoint.cluster.virtual.simulation import Simulation
    from setpoint.view.fault_plan import Plan

T = TypeVar("T")
FAULTS = array(
    "faults", help="Inject faults into controllers, scheduler or nodes: controllers=drop-watch:1+conflict:2."
)
SNAPSHOT = text("snapshot", help="Start from the state in this file instead of a cluster.")
SECRETS = text(
    "secrets",
    default="redact",
    help="What is copied of Secrets: redact (names and keys without values), copy, or none.",
)
ONLY = texts("only", help="Copy only these namespaces, and what belongs to none.")


def fault_plans(given: Sequence[str]) -> dict[str, Plan]:
    """Return the fault plans of the flag --faults by component. Raise UsageProblem."""
    # Imported here because `--help` does not need it.
    from setpoint.view.fault_plan import BadPlan, plans_of_components

    try:
        return plans_of_components(fault_texts(given))
    except BadPlan as error:
        raise UsageProblem(f"--faults: {error}") from None


def fault_texts(given: Sequence[str]) -> dict[str, str]:
    """Return the texts of the flag --faults by component. Raise UsageProblem."""
    found: dict[str, str] = {}
    for each in given:
        component, _, plan = each.partition("=")
        if not component or not plan:
            raise UsageProblem(f"--faults must be COMPONENT=FAULT, such as controllers=drop-watch:1, not {each!r}")
        found[component] = f"{found[component]}+{plan}" if component in found else plan
    return found


def secrets_of(invocation: Invocation) -> str:
    """Return how Secrets are copied, in the words of the file format."""
    # Imported here because `--help` does not need it.
    from setpoint.cluster.snapshot_file import INCLUDED, LEFT_OUT, REDACTED

    known = {"redact": REDACTED, "copy": INCLUDED, "none": LEFT_OUT}
    if invocation.flags.secrets not in known:
        raise Failed(f"--secrets must be one of {', '.join(known)}")
    return known[invocation.flags.secrets]


def loaded(path: Path, now: datetime) -> ClusterCopy:
    """Return the state at the end of a file of any format. Raise Failed."""
    from setpoint.cluster.cluster_copy import last_copy
    from setpoint.cluster.manifest_reader import opened_state
    from setpoint.cluster.snapshot_file import InvalidSnapshot

    try:
        return last_copy(opened_state(path, now))
    except InvalidSnapshot as error:
        raise Failed(str(error)) from None


async def copy_of(invocation: Invocation) -> ClusterCopy:
    """Return the copy that the flags ask for: of a file, or of the cluster."""
    from setpoint.cluster.cluster_copy import copied

    if invocation.flags.snapshot:
        return loaded(Path(invocation.flags.snapshot), invocation.io.clock.now())
    client = invocation.client
    client.sender.on_warning = lambda text: None  # of deprecated kinds, which are copied too
    try:
        return await copied(
            client,
            invocation.io.clock.now(),
            secrets=secrets_of(invocation),
            namespaces=invocation.flags.only,
        )
    except ApiError as error:
        raise Failed(f"the cluster cannot be copied: {error.message}") from None


async def in_virtual_time(main: Callable[[Callable[[], bool]], Awaitable[T]]) -> T:
    """Run `main` on a virtual event loop, in a thread of its own.

    It is called with a function that says whether the command was interrupted."""
    from setpoint.cluster.klog import is_about_cluster
    from setpoint.cluster.virtual.time import run_virtual

    if logging.lastResort is not None:
        logging.lastResort.addFilter(is_about_cluster)
    stop = threading.Event()
    try:
        return await asyncio.to_thread(run_virtual, main, stop.is_set)
    finally:
        stop.set()


async def run_commands(
    simulation: Simulation, commands: Sequence[Sequence[str]], namespace: str, home: Path, stdin: bytes = b""
) -> list[str]:
    """Run command lines against a simulated cluster, as its administrator, and return the messages of those that
    failed."""
    from setpoint.cli.main import run_within  # it imports the commands

    refused = []
    for words in commands:
        stdout, stderr = BytesIO(), BytesIO()
        io = CommandIO(
            stdin=BytesIO(stdin),
            stdout=stdout,
            stderr=stderr,
            environment={"HOME": str(home)},
            home=home,
            clock=simulation.clock,
            connect=lambda access, timeout: simulation.client.named("setpoint"),
            access=Access("https://copy.invalid"),
        )
        code = await run_within(["--namespace", namespace, *words], io)
        if code:
            output = stderr.getvalue() or stdout.getvalue()
            lines = output.decode("utf-8", "replace").strip().splitlines()
            refused.append(f"{' '.join(words)}: {lines[-1] if lines else f'exit code {code}'}")
    return refused
