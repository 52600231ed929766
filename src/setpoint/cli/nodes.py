"""`setpoint nodes`: simulated nodes alone, for any Kubernetes API server.

The subcommands (`add`, `stop`, ...) simulate failures and changes of nodes, through the API.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.component_options import SERVER_CHOICE
from setpoint.cli.failures import EXPECTED, Failed, raise_all
from setpoint.cli.flags import array, number, switch, text
from setpoint.cli.fleet_file import FLEET, fleet_of
from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import ready, serve, server
from setpoint.client.resources import builtin
from setpoint.meta.goformat import quote
from setpoint.meta.quantity import QuantityError, parse

NODES = builtin("nodes")
_SIMULATED = "simulate.setpoint.dev/node"
_STATE = "simulate.setpoint.dev/state"
_NUMBERED = re.compile(r"node-(\d{1,9})")
_MAX = 50_000
_IN_SERVER = (
    "the server runs simulated nodes itself, among them {}, and this process would run them a second time. "
    "`setpoint get nodes` lists them, `setpoint nodes add` adds more"
)


async def add(invocation: Invocation) -> None:
    # Imported here because the other node commands do not need it.
    from setpoint.node.registration import default_labels

    flags = invocation.flags
    if invocation.args and flags.given("count"):
        raise Failed("set either names or --count, not both")
    names = invocation.args or await _next_names(invocation, flags.count)
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
        await invocation.client.create(node)
        invocation.print(f"node/{name} added")


async def remove(invocation: Invocation) -> None:
    async def one(name: str) -> None:
        await invocation.client.delete(NODES, name)
        invocation.print(f"node/{name} removed")

    await _each(invocation, one)


def _becomes(state: str | None, outcome: str) -> Callable[[Invocation], Awaitable[None]]:
    async def run(invocation: Invocation) -> None:
        async def one(name: str) -> None:
            await invocation.client.patch(NODES, name, {"metadata": {"annotations": {_STATE: state}}})
            invocation.print(f"node/{name} {outcome}")

        await _each(invocation, one)

    return run


async def _each(invocation: Invocation, act: Callable[[str], Awaitable[None]]) -> None:
    """Apply `act` to the named nodes, or to all. A failure for one node does not stop the others."""
    if invocation.args and invocation.flags.all:
        raise Failed("set either names or --all, not both")
    names = invocation.args
    if invocation.flags.all:
        names = [node["metadata"]["name"] for node in (await invocation.client.list(NODES)).items]
    elif not names:
        invocation.usage("which nodes? Say their names, or --all")
    errors: list[Exception] = []
    for name in names:
        try:
            await act(name.removeprefix("node/"))
        except EXPECTED as error:
            errors.append(error)
    raise_all(errors)


async def _next_names(invocation: Invocation, count: int) -> list[str]:
    found = [node["metadata"]["name"] for node in (await invocation.client.list(NODES, metadata_only=True)).items]
    used = {int(match[1]) for name in found if (match := _NUMBERED.fullmatch(name))}
    first = max(used, default=0) + 1
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
            number("count", default=1, least=1, most=_MAX, help="Number of nodes, named node-4, node-5 and so on."),
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


@server
def run(invocation: Invocation) -> None:
    import asyncio
    from functools import partial

    from setpoint.cluster.component import Component
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.kubelet_server import kubelet_server
    from setpoint.cluster.remote import RemoteConfig, access_of, component_pods, data_directory_of, remote_components
    from setpoint.cluster.signals import stop_on_signals
    from setpoint.node.fleet import node_names
    from setpoint.system import SystemClock, outward_address

    invocation.require_host()
    invocation.no_arguments()
    flags = invocation.flags
    wanted = fleet_of(flags)
    nodes = wanted if isinstance(wanted, int) else wanted.nodes

    config = RemoteConfig(flags.kubeconfig, "node-fleet", leader_elect=False, balance_servers=flags.balance_servers)

    async def main() -> None:
        stop = stop_on_signals()
        async with remote_components(config) as components:
            await components.impersonate_nodes()
            if running := await components.simulated_by_server(node_names(nodes)):
                raise ConfigError(_IN_SERVER.format(running[0]))
            address = flags.address or outward_address()
            serving = kubelet_server(access_of(config).ca, address, flags.port, SystemClock(), components.access)
            directory = data_directory_of(config)
            if directory is not None:
                serving = component_pods(directory, serving, SystemClock())
            start = partial(components.fleet, wanted, serving, None if directory is not None else ())
            fleet = Component("fleet", start, components.supervisor.restarts("nodes"))
            async with asyncio.TaskGroup() as tasks:
                await fleet.start(tasks)
                ready(invocation, f"setpoint nodes: {nodes} {'node is' if nodes == 1 else 'nodes are'} registered")
                await stop.wait()
                await fleet.stop()

    serve(main)


COMMAND = Command(
    "Run simulated nodes alone, for the server of a kubeconfig; or add, stop, start, partition and remove some",
    run,
    (
        *SERVER_CHOICE,
        number("nodes", default=3, least=0, most=50_000, alias=("count",), help="Number of simulated nodes."),
        text("address", help="Address at which the API server reaches the nodes; by default the machine's own."),
        number("port", least=0, most=65535, help="The port of that address; 0 picks a free one."),
        FLEET,
    ),
    children=CHILDREN,
    connects=False,
)
