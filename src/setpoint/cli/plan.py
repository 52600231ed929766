"""`setpoint plan`: what would every loop of a cluster do if this changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import UsageProblem, array, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.simulating import FAULTS, ONLY, SECRETS, SNAPSHOT, copy_of, fault_plans, in_virtual_time, run_commands
from setpoint.meta.times import parse_duration

if TYPE_CHECKING:
    from setpoint.cluster.virtual.simulation import Simulation
    from setpoint.view.plan import PlanResult

_DRAIN_TIMEOUT = "10m"
_SETTLED = "settled"


async def run(invocation: Invocation) -> int:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.virtual.plan import plan
    from setpoint.node.pace import PACES
    from setpoint.view.plan import as_json, markdown_report, text_report

    invocation.no_arguments()
    flags = invocation.flags
    if flags.output not in ("text", "json", "markdown"):
        raise UsageProblem(f"--output must be text, json or markdown, not {flags.output!r}")
    if flags.pace not in ("real", "instant"):
        raise UsageProblem(f"--pace must be real or instant, not {flags.pace!r}")
    pace = PACES[flags.pace]
    commands, stopped = _commands(invocation)
    if not commands:
        invocation.usage("name a change: -f FILE, --delete, --drain, --stop, --scale or --image")
    until, faults = _until(flags.until), fault_plans(flags.faults)
    stdin = invocation.io.stdin.read() if "-" in flags.filename else b""
    namespace = flags.namespace or ("default" if flags.snapshot else invocation.namespace)
    copy = await copy_of(invocation)
    if copy.lacks_nodes:
        raise Failed(
            "the copy has no nodes, so that all Pods would be lost in it: a plan needs the right to list nodes, "
            "or a snapshot that someone with this right has saved"
        )
    invocation.print_err(f"Simulating a copy of {len(copy.objects)} objects at revision {copy.revision} ...")

    async def change(simulation: Simulation) -> list[str]:
        return await run_commands(simulation, commands, namespace, invocation.io.home, stdin)

    async def main(interrupted: Callable[[], bool]) -> PlanResult:
        return await plan(copy, change, until=until, stopped=stopped, pace=pace, interrupted=interrupted, faults=faults)

    result = await in_virtual_time(main)
    if flags.output == "json":
        invocation.print(json.dumps(as_json(result), indent=2))
    else:
        render = text_report if flags.output == "text" else markdown_report
        invocation.print("\n".join(render(result, namespace, every_event=flags.all)))
    return result.exit_code


def _until(given: str) -> float | None:
    if given == _SETTLED:
        return None
    try:
        return parse_duration(given) / 1e9
    except ValueError:
        raise UsageProblem(f"--until must be settled or a duration such as 10m, not {given!r}") from None


def _commands(invocation: Invocation) -> tuple[list[list[str]], list[str]]:
    """Return the command lines that make the change, in the order of the flags, and the nodes that are stopped."""
    commands: list[list[str]] = []
    stopped: list[str] = []
    for flag, value in invocation.flags.occurrences:
        match flag.name:
            case "filename":
                commands.append(["apply", "-f", value])
            case "delete":
                commands.append(["delete", _named(value, "--delete"), "--wait=false"])
            case "drain":
                options = ["--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={_DRAIN_TIMEOUT}"]
                commands.append(["drain", value, *options])
            case "stop":
                stopped.append(value)
                commands.append(["annotate", "node", value, "simulate.setpoint.dev/state=stopped", "--overwrite"])
            case "scale":
                what, _, count = _named(value, "--scale").rpartition("=")
                if not what or not count.isdecimal():
                    raise UsageProblem(f"--scale must be KIND/NAME=N, not {value!r}")
                commands.append(["scale", what, f"--replicas={count}"])
            case "image":
                what, _, image = _named(value, "--image").partition("=")
                if not image:
                    raise UsageProblem(f"--image must be KIND/NAME=IMAGE or KIND/NAME=CONTAINER=IMAGE, not {value!r}")
                commands.append(["set", "image", what, image if "=" in image else f"*={image}"])
    return commands, stopped


def _named(value: str, flag: str) -> str:
    if "/" not in value or value.startswith(("/", "-")):
        raise UsageProblem(f"{flag} must begin with KIND/NAME, not {value!r}")
    return value


COMMAND = Command(
    "Predict what every loop of the cluster would do about a change, on a copy and in virtual time",
    run,
    (
        array("filename", "f", help="Apply the objects in this file or directory, or - for stdin."),
        array("delete", help="Delete KIND/NAME."),
        array("drain", help="Drain this node, without its DaemonSet Pods."),
        array("stop", help="Let this node fail."),
        array("scale", help="Set the size: KIND/NAME=N."),
        array("image", help="Set the image of all containers, or of one: KIND/NAME=IMAGE, KIND/NAME=CONTAINER=IMAGE."),
        FAULTS,
        text("until", default=_SETTLED, help="When to end: settled, or a duration of virtual time such as 10m."),
        text("output", "o", default="text", help="The form of the report: text, json or markdown."),
        switch("all", help="Show every event."),
        text("pace", default="real", help="How long containers take to start and stop: real or instant."),
        SNAPSHOT,
        SECRETS,
        ONLY,
    ),
    usage="(-f FILE | --delete KIND/NAME | --drain NODE | --stop NODE | --scale KIND/NAME=N | --image KIND/NAME=IMAGE)",
    about="""Reads the cluster with get and list requests, and runs a copy of it in virtual time: API server,
controllers, scheduler and simulated nodes. The change is made to the copy. The report says what differs at the end,
what happened in which order, and what is not reached. Nothing is written to the cluster. It works with any Kubernetes
cluster.

With --faults, faults are injected between components of the copy and its API server, from the change on. `conflict:2`
is the second write of the component, `drop-watch:1` the first change that it receives; the report says where each fault
occurred, and whether the cluster ends as without faults. The faults are those of docs/test-your-operator.md.

The exit code is 0 if nothing would change, 2 if something would, and 1 if the cluster would not converge, the change
would be refused, or faults would change the end.""",
    examples="""
    # What would a new image do?
    setpoint plan --image deployment/web=nginx:1.28

    # Can this node be drained, and what if it fails?
    setpoint plan --drain node-2
    setpoint plan --stop node-2

    # And if the controllers see a change late, and are killed after their third write?
    setpoint plan --scale deployment/web=5 --faults controllers=delay-watch:1/30s+crash-after:3

    # The manifests of a pull request, as a comment
    setpoint plan -f deploy/ -o markdown
    """,
)
