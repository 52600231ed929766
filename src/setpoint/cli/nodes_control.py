"""`setpoint nodes add|stop|...`: simulate failures and changes of nodes, through the API."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import array, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.client.resources import builtin
from setpoint.meta.goformat import quote
from setpoint.meta.quantity import QuantityError, parse

NODES = builtin("nodes")
_SIMULATED = "simulate.setpoint.dev/node"
_STATE = "simulate.setpoint.dev/state"
_NUMBERED = re.compile(r"node-(\d{1,9})")
_MOST = 50_000


async def add(call: Invocation) -> None:
    # Imported here because the other node commands do not need it.
    from setpoint.node.registration import default_labels

    flags = call.flags
    if call.args and flags.given("count"):
        raise Failed("set either names or --count, not both")
    names = call.args or await _next_names(call, flags.count)
    labels, taints = dict(_pair(entry, "--label") for entry in flags.label), [_taint(entry) for entry in flags.taint]
    capacity = {key: value for key in ("cpu", "memory", "pods") if (value := _amount(key, getattr(flags, key)))}
    for name in names:
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {_SIMULATED: "true"}, "labels": default_labels(name) | labels},
            "spec": {"taints": taints} if taints else {},
        }
        if capacity:
            node["status"] = {"capacity": capacity, "allocatable": capacity}
        await call.client.create(node)
        call.print(f"node/{name} added")


async def remove(call: Invocation) -> None:
    async def one(name: str) -> None:
        await call.client.delete(NODES, name)
        call.print(f"node/{name} removed")

    await _each(call, one)


def _becomes(state: str | None, outcome: str) -> Callable[[Invocation], Awaitable[None]]:
    async def run(call: Invocation) -> None:
        async def one(name: str) -> None:
            await call.client.patch(NODES, name, {"metadata": {"annotations": {_STATE: state}}})
            call.print(f"node/{name} {outcome}")

        await _each(call, one)

    return run


async def _each(call: Invocation, act: Callable[[str], Awaitable[None]]) -> None:
    """Apply `act` to the named nodes, or to all. A failure for one node does not stop the others."""
    if call.args and call.flags.all:
        raise Failed("set either names or --all, not both")
    names = call.args
    if call.flags.all:
        names = [node["metadata"]["name"] for node in (await call.client.list(NODES)).items]
    elif not names:
        call.usage("which nodes? Say their names, or --all")
    errors: list[Exception] = []
    for name in names:
        try:
            await act(name.removeprefix("node/"))
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _next_names(call: Invocation, count: int) -> list[str]:
    found = [node["metadata"]["name"] for node in (await call.client.list(NODES, metadata_only=True)).items]
    taken = {int(match[1]) for name in found if (match := _NUMBERED.fullmatch(name))}
    first = max(taken, default=0) + 1
    return [f"node-{at}" for at in range(first, first + count)]


def _pair(entry: str, flag: str) -> tuple[str, str]:
    key, equals, value = entry.partition("=")
    if not key or not equals:
        raise Failed(f"{flag} {entry}: expected key=value")
    return key, value


def _taint(entry: str) -> dict[str, str]:
    before, colon, effect = entry.rpartition(":")
    if not colon:
        raise Failed(f"--taint {entry}: expected key=value:Effect")
    key, _, value = before.partition("=")
    return {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}


def _amount(name: str, value: str) -> str:
    try:
        if value:
            parse(value)
    except QuantityError:
        raise Failed(f"--{name} {quote(value)} is not a quantity such as 4, 500m or 16Gi") from None
    return value


_ALL = (switch("all", help="All nodes."),)

CHILDREN = {
    "add": Command(
        "Add simulated nodes",
        add,
        (
            number("count", default=1, least=1, most=_MOST, help="Number of nodes, named node-4, node-5 and so on."),
            text("cpu", help="CPU capacity of each node."),
            text("memory", help="Memory capacity of each node."),
            text("pods", help="Pod capacity of each node."),
            array("label", help="A label, key=value; repeat for several."),
            array("taint", help="A taint, key=value:Effect; repeat for several."),
        ),
        usage="[NAME ...] [flags]",
        local=True,
        examples="""
        # Two more nodes like the others
        setpoint nodes add --count 2

        # A large one in another zone
        setpoint nodes add big --cpu 64 --memory 512Gi --label topology.kubernetes.io/zone=b
        """,
    ),
    "stop": Command(
        "Power nodes off: their containers die", _becomes("stopped", "stopped"), _ALL, usage="NAME ...", local=True
    ),
    "start": Command(
        "Bring nodes back, stopped or cut off", _becomes(None, "started"), _ALL, usage="NAME ...", local=True
    ),
    "partition": Command(
        "Cut nodes off from the control plane: their containers run on, unheard",
        _becomes("partitioned", "partitioned"),
        _ALL,
        usage="NAME ...",
        local=True,
    ),
    "remove": Command("Take nodes away for good", remove, _ALL, usage="NAME ...", local=True),
}
