"""`attach`: attach to the running program of a container."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, container_of, pod_running_timeout
from setpoint.cli.pod_session import (
    STREAMS,
    Detached,
    Session,
    detach_keys,
    find_pod,
    must_live,
    run_session,
    with_terminal,
)
from setpoint.client.resources import path_of, query_of
from setpoint.client.transport import Unreachable
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

DETACH = "ctrl-p,ctrl-q"
_RECORDED = (
    "All commands and output from this session will be recorded in container logs, including credentials and "
    "sensitive information passed through the command prompt.\n"
    "If you don't see a command prompt, try pressing enter."
)


async def run(invocation: Invocation) -> None:
    flags, words = invocation.flags, invocation.args
    if not words:
        raise Failed("at least 1 argument is required for attach")
    if len(words) > 2:
        saw = f"saw {len(words)}: [{' '.join(words)}]"
        raise Failed(f"expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) {saw}")
    if flags.pod_running_timeout <= 0:
        raise Failed("--pod-running-timeout must be higher than zero")
    if len(words) == 1 and "/" not in words[0]:
        words = ["pods", *words]
    pod = await find_pod(invocation, words, "attach to", flags.pod_running_timeout)
    must_live(pod, "attach")
    try:
        container = container_of(invocation, pod, flags.container, quiet=flags.quiet)
    except Failed as error:
        raise Failed(f"cannot attach to the container: {error}") from None
    await attach(
        invocation,
        pod,
        container,
        stdin=flags.stdin,
        tty=flags.tty,
        quiet=flags.quiet,
        keys=flags.detach_keys,
        resume=invocation.command,
    )


async def attach(
    invocation: Invocation,
    pod: Obj,
    container: str,
    *,
    stdin: bool,
    tty: bool,
    quiet: bool,
    keys: str = DETACH,
    resume: str,
) -> None:
    """Attach to a container; `resume` is the command that attaches again."""
    part, spec = _container(pod, container)
    if tty and not spec.get("tty"):
        tty = False
        if not quiet:
            invocation.print_err(f"error: Unable to use a TTY - container {container} did not allocate one")
    elif spec.get("tty"):
        tty = True  # its output is a terminal's in any case
    is_raw = with_terminal(invocation, stdin, tty, quiet)
    if not quiet:
        invocation.print_err(_RECORDED)
    detach = detach_keys(keys or DETACH) if is_raw else b""
    try:
        await run_session(invocation, pod, "attach", container, Session(stdin, is_raw, detach, redraw=True))
    except Detached:
        invocation.print("")
    if not is_raw or quiet:
        return
    meta = pod["metadata"]
    again = f"'{resume} {meta['name']} -c {container} -n {meta['namespace']} -i -t'"
    if part == "ephemeralContainers":
        left = "the ephemeral container will not be restarted but may be reattached using"
        invocation.print(f"Session ended, {left} {again} if it is still running")
    else:
        invocation.print(f"Session ended, resume using {again} command")


async def attach_to_pod(invocation: Invocation, pod: Obj, container: str = "") -> None:
    """Attach to a Pod that a command created, with the flags of that command.

    Print its logs so far; if it still runs, forward its input and output.
    """
    flags = invocation.flags
    container = container_of(invocation, pod, container, quiet=flags.quiet)
    statuses = ("containerStatuses", "ephemeralContainerStatuses", "initContainerStatuses")
    status: Obj = pod.get("status") or {}
    states = [one.get("state") or {} for part in statuses for one in status.get(part) or () if one["name"] == container]
    if any("terminated" in state for state in states):
        invocation.write(await _logs(invocation, pod, container))
        return
    since: Obj = {}
    try:
        invocation.write(await _logs(invocation, pod, container))
        since = {"sinceTime": format_time(invocation.io.clock.now())}
    except ApiError as error:
        invocation.print_err(f"warning: couldn't fetch pre-attach logs: {error.message}")
    invocation.flush()
    try:
        keys = getattr(flags, "detach_keys", DETACH)
        await attach(
            invocation,
            pod,
            container,
            stdin=flags.stdin,
            tty=flags.tty,
            quiet=flags.quiet,
            keys=keys,
            resume="setpoint attach",
        )
    except (Failed, ApiError, Unreachable) as error:
        name = pod["metadata"]["name"]
        invocation.print_err(f"warning: couldn't attach to pod/{name}, falling back to streaming logs: {error}")
        invocation.write(await _logs(invocation, pod, container, **since))


async def _logs(invocation: Invocation, pod: Obj, container: str, **more: Any) -> bytes:
    path = path_of(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], "log")
    reply = await invocation.client.sender.request(
        "GET", path, query_of({"container": container, **more}), accept="*/*"
    )
    return bytes(reply.body)


def _container(pod: Obj, name: str) -> tuple[str, Obj]:
    for part in ("containers", "initContainers", "ephemeralContainers"):
        for one in pod["spec"].get(part) or ():
            if one["name"] == name:
                return part, one
    return "", {}


COMMAND = Command(
    "Attach to a running container",
    run,
    (
        *STREAMS,
        text("detach-keys", default=DETACH, help="The keys that leave the container, which goes on."),
        *pod_running_timeout(60.0),
    ),
    usage="(POD | TYPE/NAME) -c CONTAINER",
    examples="""
    # What a Pod says from now on
    setpoint attach web

    # At its terminal; leave it with Ctrl-P Ctrl-Q
    setpoint attach -it shell -c main
    """,
)
