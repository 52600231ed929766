"""`exec`: run a command in a container."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import container_of, pod_running_timeout
from setpoint.cli.pod_session import STREAMS, Session, find_pod, must_live, run_session, with_terminal
from setpoint.cli.resources import FILES


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    name = invocation.args[:1] if invocation.dash != 0 else []
    command: list[str] = []
    if invocation.dash in (0, 1):
        command = invocation.args[invocation.dash :]
    elif len(invocation.args) > 1 or (invocation.args and flags.filename):
        invocation.usage("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead")
    if not name and not flags.filename:
        raise Failed("pod, type/name or --filename must be specified")
    if not command:
        raise Failed("you must specify at least one command for the container")
    words = name if not name or "/" in name[0] else ["pods", *name]
    pod = await find_pod(invocation, words, "attach to", flags.pod_running_timeout)
    must_live(pod, "exec into")
    container = container_of(invocation, pod, flags.container, quiet=flags.quiet)
    tty = with_terminal(invocation, flags.stdin, flags.tty, flags.quiet)
    await run_session(invocation, pod, "exec", container, Session(flags.stdin, tty), command)


COMMAND = Command(
    "Execute a command in a container",
    run,
    (*STREAMS, *FILES[:1], *pod_running_timeout(60.0)),
    usage="(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]",
    about="The exit code is the command's own.",
    examples="""
    # One command
    setpoint exec web -- date

    # A shell; leave it with Ctrl-D
    setpoint exec -it deploy/web -- sh

    # With what another program says as its input
    cat data.sql | setpoint exec -i db -c postgres -- psql
    """,
)
