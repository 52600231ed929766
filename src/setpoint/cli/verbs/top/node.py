"""`top node`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import SELECTORS
from setpoint.cli.tabwriter import align
from setpoint.cli.verbs.top.usage import FLAGS, UNKNOWN, Obj, by_usage, check, measured, metrics, shown
from setpoint.client.resources import builtin
from setpoint.meta import quantity

_USAGE = "node [NAME | -l label]"


async def run(call: Invocation) -> None:
    flags = call.flags
    if len(call.args) > 1:
        call.usage(_USAGE)
    name = call.args[0] if call.args else ""
    check(call)
    if name and flags.selector:
        raise Failed("only one of NAME or --selector can be provided")
    usages = await metrics(call, "nodes", name, "", flags.selector)
    if not usages:
        raise Failed("metrics not available yet")
    available = await _available(call, name)
    key = by_usage(flags.sort_by)
    usages.sort(key=lambda one: key(one.get("usage") or {}) if flags.sort_by else one["metadata"]["name"])
    resources = measured(call)
    rows = [] if flags.no_headers else [_header(resources)]
    for one in usages:
        has = available.pop(one["metadata"]["name"], {})
        rows.append(one["metadata"]["name"] + "\t" + "".join(_cells(res, one["usage"], has) for res in resources))
    rows += [f"{node}\t" + f"{UNKNOWN}\t{UNKNOWN}\t" * len(resources) for node in sorted(available)]
    call.print(align("\n".join(rows), least=6, padding=3))


def _header(resources: tuple[str, ...]) -> str:
    units = {"cpu": "CPU(cores)\tCPU(%)\t", "memory": "MEMORY(bytes)\tMEMORY(%)\t", "swap": "SWAP(bytes)\tSWAP(%)\t"}
    return "NAME\t" + "".join(units[one] for one in resources)


def _cells(resource: str, usage: Obj, has: Obj) -> str:
    if resource == "swap" and "swap" not in has:
        return f"{UNKNOWN}\t{UNKNOWN}\t"
    text = shown(resource, usage) + "\t"
    if resource in has:
        whole = quantity.milli_value(str(has[resource]))
        part = quantity.milli_value(str(usage.get(resource, "0")))
        text += f"{int(part / whole * 100) if whole else 0}%\t"
    return text


async def _available(call: Invocation, name: str) -> dict[str, Obj]:
    """Return the capacity of each node."""
    if name:
        nodes = [await call.client.get(builtin("nodes"), name)]
    else:
        nodes = (await call.client.list(builtin("nodes"), label_selector=call.flags.selector)).items
    found: dict[str, Obj] = {}
    for node in nodes:
        status = node.get("status") or {}
        has = dict(status.get("capacity" if call.flags.show_capacity else "allocatable") or {})
        swap = ((status.get("nodeInfo") or {}).get("swap") or {}).get("capacity")
        if swap is not None:
            has["swap"] = str(swap)
        found[node["metadata"]["name"]] = has
    return found


COMMAND = Command(
    "Display resource (CPU/memory) usage of nodes",
    run,
    (
        *FLAGS,
        *SELECTORS[:1],
        switch("show-capacity", help="In percent of what the nodes have, not of what they let Pods have."),
    ),
    usage="[NAME | -l label]",
    aliases=("nodes", "no"),
    examples="""
    setpoint top node

    setpoint top node --sort-by=memory
    """,
)
