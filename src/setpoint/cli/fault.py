"""`setpoint fault`: injects faults into a cluster, lists those in effect, and undoes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.escaping import escaped
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, number, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.tabwriter import align
from setpoint.meta.errors import NotFound
from setpoint.meta.times import human_duration
from setpoint.view.faults import DEFAULT_SECONDS, FAULTS

_PATH = "/setpoint/v1/faults"
_OPTIONS = ("container", "seconds", "milliseconds", "percent", "code")


async def run(invocation: Invocation) -> None:
    """Inject a fault, or show what is possible and in effect."""
    if not invocation.args:
        await _show(invocation)
        return
    name, *words = invocation.args
    fault = FAULTS.get(name)
    if fault is None:
        invocation.usage(f"there is no fault {name}; `{invocation.command}` lists them")
    body: dict[str, Any] = {"fault": name}
    fields = _arguments(fault.fields)
    if len(words) != len(fields):
        invocation.usage(f"{name} needs {' '.join(each.upper() for each in fields) or 'no arguments'}")
    body |= dict(zip(fields, words, strict=True))
    if "pod" in fault.fields:
        namespace, _, pod = body["pod"].removeprefix("pod/").rpartition("/")
        body |= {"namespace": namespace or invocation.namespace, "pod": pod}
    if "node" in fault.fields:
        body["node"] = body["node"].removeprefix("node/")
    for option in _OPTIONS:
        if invocation.flags.given(option):
            body[option] = getattr(invocation.flags, option)
    found = (await _send(invocation, body))["injected"]
    invocation.print(escaped(f"{found['by']} {found['text']}."))
    if found["undo"]:
        ends = f" It ends after {(found['until'] - found['since']) / 1000:g} s." if found["until"] else ""
        invocation.print(f"`setpoint fault undo {found['id']}` ends it.{ends}")


def _arguments(fields: Sequence[str]) -> list[str]:
    """Return the fields that are arguments; the namespace of a Pod is a flag."""
    return [each for each in fields if each != "namespace" or "pod" not in fields]


async def undo(invocation: Invocation) -> None:
    wanted = invocation.args
    if not wanted:
        invocation.usage("name the faults, or all: setpoint fault undo ID ...")
    if wanted == ["all"]:
        wanted = [each["id"] for each in (await _read(invocation))["active"] if each["undo"]]
    for each in wanted:
        ended = (await _send(invocation, {"undo": each}))["ended"]
        invocation.print(escaped(f"Ended: {ended['by'] or 'a user'} {ended['text']}."))


async def _show(invocation: Invocation) -> None:
    found = await _read(invocation)
    rows = [["FAULT", "WHAT IT DOES"]]
    for each in found["possible"]:
        words = [each["id"], *(name.upper() for name in _arguments(each["fields"]))]
        rows.append([" ".join(words), f"{each['title']}. {each['about']}"])
    invocation.print(align("\n".join("\t".join(row) for row in rows), padding=3))
    if not found["simulatedNodes"]:
        invocation.print("\nNo node is simulated: faults of nodes, containers and images are not possible.")
    if found["active"]:
        rows = [["ID", "SINCE", "ENDS IN", "IN EFFECT"]]
        for each in found["active"]:
            since = human_duration((found["now"] - each["since"]) / 1000) if each["since"] else "-"
            ends = human_duration((each["until"] - found["now"]) / 1000) if each["until"] else "-"
            rows.append([each["id"], since, ends, f"{each['by'] or 'a user'} {each['text']}"])
        invocation.print("\n" + escaped(align("\n".join("\t".join(row) for row in rows), padding=3)))


async def _read(invocation: Invocation) -> dict[str, Any]:
    try:
        return await invocation.client.sender.json("GET", _PATH)
    except NotFound:
        raise Failed("faults can be injected only where the server runs the components: `setpoint up`") from None


async def _send(invocation: Invocation, body: dict[str, Any]) -> dict[str, Any]:
    await _read(invocation)  # says it if the server has no such path
    return await invocation.client.sender.json("POST", _PATH, body=body)


COMMAND = Command(
    "Inject a fault into the cluster: a node, container, image, component or the API server fails",
    run,
    (
        text("container", help="The container, if not all of the Pod."),
        duration("seconds", default=DEFAULT_SECONDS, help="How long a fault of the API server lasts."),
        number("milliseconds", default=200, least=1, most=10_000, help="The delay of api-slow."),
        number("percent", default=50, least=1, most=100, help="The part of requests that api-refuses refuses."),
        number("code", default=1, least=0, most=255, help="The exit code of container-crash."),
    ),
    usage="[FAULT [NAME]]",
    about="""Without arguments, it lists the faults that are possible and those that are in effect. Each fault is a
request with your rights or a command to a component; an Event records it. Most can be undone, the others end by
themselves. `setpoint loops` pauses single control loops.""",
    children={"undo": Command("End faults that are in effect", undo, usage="(ID ... | all)")},
    examples="""
    # A machine dies, and returns
    setpoint fault node-stop node-2
    setpoint fault undo all

    # What if the registry does not answer, or the API server is slow?
    setpoint fault registry-away
    setpoint fault api-slow --milliseconds 500 --seconds 2m

    # A container crashes
    setpoint fault container-crash web-7957885594-24j42 --code 137
    """,
)
