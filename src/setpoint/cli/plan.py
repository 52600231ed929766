"""`setpoint plan`: what would every loop of a cluster do if this changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.flags import UsageProblem, array, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.simulating import ONLY, SECRETS, SNAPSHOT, copy_of, in_virtual_time, run_commands
from setpoint.meta.times import parse_duration

if TYPE_CHECKING:
    from setpoint.cluster.virtual.conditions import Unfinished
    from setpoint.cluster.virtual.plan import Interruption, ObjectChange, PlannedEvent, PlanResult
    from setpoint.cluster.virtual.simulation import Simulation

_DRAIN_TIMEOUT = "10m"
_SETTLED = "settled"
_MAX_EVENTS = 60
_MERGED_SECONDS = 1.0
_FOLLOWING = ("Endpoints", "EndpointSlice")
"""Kinds that follow from others: the report counts them, and does not list them."""
LIMITS = (
    "Nodes and containers are simulated: programs start and answer as well-behaved ones do, and latencies are assumed.",
    "Custom controllers, autoscalers outside of the cluster, admission webhooks and aggregated APIs are not simulated.",
    "Names and nodes of new Pods are examples. What CronJobs start meanwhile is left out.",
)


async def run(invocation: Invocation) -> int:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.virtual.plan import as_json, plan
    from setpoint.node.pace import PACES

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
    until = _until(flags.until)
    stdin = invocation.io.stdin.read() if "-" in flags.filename else b""
    namespace = flags.namespace or ("default" if flags.snapshot else invocation.namespace)
    copy = await copy_of(invocation)
    invocation.print_err(f"Simulating a copy of {len(copy.objects)} objects at revision {copy.revision} ...")

    async def change(simulation: Simulation) -> list[str]:
        return await run_commands(simulation, commands, namespace, invocation.io.home, stdin)

    async def main(interrupted: Callable[[], bool]) -> PlanResult:
        return await plan(copy, change, until=until, stopped=stopped, pace=pace, interrupted=interrupted)

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


# -- text -------------------------------------------------------------------------------------------------------------


def text_report(result: PlanResult, namespace: str, *, every_event: bool = False) -> list[str]:
    """Return the lines for a terminal."""
    lines = [_verdict(result), ""]
    if result.refused:
        lines += ["Refused:", *(f"  {each}" for each in result.refused), ""]
    if result.changes:
        lines += ["What would differ at the end:", *(f"  {each}" for each in _changes(result, namespace)), ""]
    if result.events:
        every = event_lines(result.events, namespace, every_event)
        events = every if every_event else every[:_MAX_EVENTS]
        lines += ["What would happen:", *(f"  {_time(at):>9}  {line}" for at, line in events)]
        if len(events) < len(every):
            lines.append(f"  ... and {len(every) - len(events)} more; --all shows them")
        lines.append("")
    for title, found in _sections(result, namespace):
        lines += [title, *(f"  {each}" for each in found), ""]
    lines += ["Limits:", *(f"  {each}" for each in (*LIMITS, *result.left_out))]
    return lines


def markdown_report(result: PlanResult, namespace: str, *, every_event: bool = False) -> list[str]:
    """Return the lines of a comment for a pull request."""
    lines = ["## Plan", "", _verdict(result), ""]
    if result.refused:
        lines += ["### Refused", "", *(f"- `{each}`" for each in result.refused), ""]
    if result.changes:
        lines += ["### What would differ at the end", "", "```diff"]
        lines += [*_changes(result, namespace, diff=True), "```", ""]
    if result.events:
        every = event_lines(result.events, namespace, every_event)
        events = every if every_event else every[:_MAX_EVENTS]
        lines += ["<details><summary>What would happen</summary>", "", "| after | what |", "|---|---|"]
        lines += [f"| {_time(at)} | {line.replace('|', '&#124;')} |" for at, line in events]
        if len(events) < len(every):
            lines.append(f"| | and {len(every) - len(events)} more |")
        lines += ["", "</details>", ""]
    for title, found in _sections(result, namespace):
        lines += [f"### {title.rstrip(':')}", "", *(f"- {each}" for each in found), ""]
    lines += ["<details><summary>Limits</summary>", "", *(f"- {each}" for each in (*LIMITS, *result.left_out)), ""]
    lines.append("</details>")
    return lines


def _verdict(result: PlanResult) -> str:
    if result.refused:
        return "The change would be refused."
    if not result.changes and result.converges:
        return "Nothing would change."
    counts = Counter(each.action for each in result.changes)
    what = ", ".join(f"{count} {action}" for action, count in sorted(counts.items())) or "nothing changed"
    if not result.settled:
        return f"The cluster would not settle within {_time(result.seconds)[1:]}: {what} so far."
    if result.problems:
        return f"The cluster would not converge: {what}, and {len(result.problems)} not as desired at the end."
    return f"The cluster would converge in {_time(result.seconds)[1:]}: {what}."


def _sections(result: PlanResult, namespace: str) -> list[tuple[str, list[str]]]:
    found = [
        ("In between:", [_interruption(each, namespace) for each in result.interruptions]),
        ("Not reached at the end:", problem_lines(result.problems, namespace)),
        ("On stopped nodes, as the change asks for:", problem_lines(result.expected, namespace)),
        ("Already so before the change:", problem_lines(result.earlier, namespace)),
        (
            "Changed by the loops before the change, because the cluster was not at rest:",
            [line for _, line in event_lines(result.first_look, namespace)[:_MAX_EVENTS]],
        ),
    ]
    return [(title, lines) for title, lines in found if lines]


def problem_lines(found: Sequence[Unfinished], namespace: str) -> list[str]:
    """Return a line for each object; objects of one owner with the same problem share a line."""
    alike = Counter((each.kind, each.namespace, each.owner, each.problem) for each in found)
    lines = []
    for each in found:
        count = alike.pop((each.kind, each.namespace, each.owner, each.problem), 0)
        if count > 1 and each.owner:
            kind, _, name = each.owner.partition("/")
            lines.append(f"{count} {each.kind}s of {_name(kind, each.namespace, name, namespace)}: {each.problem}")
        elif count == 1 or not each.owner:
            lines.append(f"{_name(*each[:3], namespace)} {each.problem}")
    return lines


def event_lines(events: Sequence[PlannedEvent], namespace: str, single: bool = False) -> list[tuple[float, str]]:
    """Return a time and a sentence for each event; what happens to several objects of one owner within a second is one
    sentence, unless `single` is set. Namespaces are named unless they are `namespace`."""
    if single:
        return [(event.at, _event_line(event, 1, namespace)) for event in events]
    found: list[tuple[PlannedEvent, int]] = []
    places: dict[PlannedEvent, int] = {}
    for event in events:
        alike = event._replace(name="", at=0.0)
        place = places.get(alike, -1)
        if event.owner and place >= 0 and event.at - found[place][0].at <= _MERGED_SECONDS:
            found[place] = (found[place][0], found[place][1] + 1)
        else:
            places[alike] = len(found)
            found.append((event, 1))
    return [(event.at, _event_line(event, count, namespace)) for event, count in found]


def _changes(result: PlanResult, namespace: str, *, diff: bool = False) -> list[str]:
    """Return a line for each object; created and deleted objects of one owner share a line."""
    from setpoint.view.changes import summary

    owned: Counter[tuple[str, str, str, str]] = Counter(
        (each.action, each.kind, each.namespace, each.owner) for each in result.changes if _is_counted(each)
    )
    lines = []
    for each in result.changes:
        if each.kind in _FOLLOWING:
            continue
        mark = {"created": "+", "deleted": "-", "changed": "!" if diff else "~"}.get(each.action, "±")
        if _is_counted(each):
            count = owned.pop((each.action, each.kind, each.namespace, each.owner), 0)
            if count:
                kind, _, name = each.owner.partition("/")
                plural = each.kind if count == 1 else f"{each.kind}s"
                lines.append(f"{mark} {count} {plural} of {_name(kind, each.namespace, name, namespace)}")
            continue
        if each.action == "replaced":
            lines.append(f"{mark} {_name(each.kind, each.namespace, each.name, namespace)}  replaced by another one")
            continue
        desired = [field for field in each.fields if field.path[0] != "status"]
        text = summary(desired or each.fields)
        lines.append(f"{mark} {_name(each.kind, each.namespace, each.name, namespace)}{f'  {text}' if text else ''}")
    return lines


def _is_counted(change: ObjectChange) -> bool:
    return bool(change.owner) and change.kind == "Pod" and change.action in ("created", "deleted")


def _event_line(event: PlannedEvent, count: int, namespace: str) -> str:
    what = _name(event.kind, event.namespace, event.name, namespace)
    if count > 1:
        kind, _, name = event.owner.partition("/")
        what = f"{count} {event.kind}s of {_name(kind, event.namespace, name, namespace)}"
    if event.kind == "Pod" and event.text:
        return f"{event.actor}: {what} {'is' if count == 1 else 'are'} {event.text}"
    return f"{event.actor} {event.action} {what}{f': {event.text}' if event.text else ''}"


def _interruption(each: Interruption, namespace: str) -> str:
    what = "had no ready endpoints" if each.kind == "Service" else "was violated"
    lasting = "until the end" if each.seconds is None else f"for {_time(each.seconds)[1:]}"
    return f"{_name(each.kind, each.namespace, each.name, namespace)} {what} {lasting}, from {_time(each.since)} on"


def _name(kind: str, namespace: str, name: str, own: str) -> str:
    shown = f"{kind.lower()}/{name}"
    return shown if not namespace or namespace == own else f"{shown} -n {namespace}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"+{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"+{minutes}m{rest:02d}s"


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

The exit code is 0 if nothing would change, 2 if something would, and 1 if the cluster would not converge or the change
would be refused.""",
    examples="""
    # What would a new image do?
    setpoint plan --image deployment/web=nginx:1.28

    # Can this node be drained, and what if it fails?
    setpoint plan --drain node-2
    setpoint plan --stop node-2

    # The manifests of a pull request, as a comment
    setpoint plan -f deploy/ -o markdown
    """,
)
