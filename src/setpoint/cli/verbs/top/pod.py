"""`top pod`."""

from __future__ import annotations

from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES, SELECTORS
from setpoint.cli.tabwriter import align
from setpoint.cli.verbs.top.usage import FLAGS, Obj, added, by_usage, check, measured, metrics, shown
from setpoint.client.resources import builtin
from setpoint.meta.times import format_duration, parse_time

_USAGE = "pod [NAME | -l label]"
_YOUNG = 120.0
"""Age in seconds up to which a Pod may have no metrics yet."""
_HEADERS = {"cpu": "CPU(cores)", "memory": "MEMORY(bytes)", "swap": "SWAP(bytes)"}


async def run(call: Invocation) -> None:
    flags = call.flags
    if len(call.args) > 1:
        call.usage(_USAGE)
    name = call.args[0] if call.args else ""
    check(call)
    if name and (flags.selector or flags.field_selector):
        raise Failed("only one of NAME or selector can be provided")
    namespace = "" if flags.all_namespaces else call.namespace
    found = await metrics(call, "pods", name, namespace, flags.selector)
    if found and flags.field_selector:
        chosen = {_where(pod) for pod in await _pods(call, namespace)}
        found = [one for one in found if _where(one) in chosen]
    if not found:
        await _check_empty(call, name)
        call.print_err(
            "No resources found" if flags.all_namespaces else f"No resources found in {call.namespace} namespace."
        )
        return
    call.print(align("\n".join(_rows(call, found)), least=6, padding=3))


def _rows(call: Invocation, found: list[Obj]) -> list[str]:
    flags, resources = call.flags, measured(call)
    totals = {_where(pod): added([one["usage"] for one in pod["containers"]], resources) for pod in found}

    def order(pod: Obj) -> Any:
        if flags.sort_by:
            return by_usage(flags.sort_by)(totals[_where(pod)])
        meta = pod["metadata"]
        return (meta["namespace"] if flags.all_namespaces else "", meta["name"])

    first = ["NAMESPACE"] * flags.all_namespaces + ["POD"] * flags.containers
    columns = [*first, "NAME", *(_HEADERS[one] for one in resources)]
    rows = [] if flags.no_headers else [_line(columns)]
    for pod in sorted(found, key=order):
        meta = pod["metadata"]
        start = [meta["namespace"]] * flags.all_namespaces
        if not flags.containers:
            rows.append(_line([*start, meta["name"], *(shown(one, totals[_where(pod)]) for one in resources)]))
            continue
        for container in sorted(pod["containers"], key=lambda one: _container_order(one, flags.sort_by)):
            usage = [shown(one, container["usage"]) for one in resources]
            rows.append(_line([*start, meta["name"], container["name"], *usage]))
    if flags.sum:
        width = len(resources) + 1 + (0 if flags.no_headers else len(first))
        rows.append(_line([*[""] * (width - 2), "________", "________"]))
        total = added(list(totals.values()), resources)
        rows.append(_line([*[""] * (width - 3), "", *(shown(one, total) for one in resources)]))
    return rows


def _line(cells: list[str]) -> str:
    return "".join(f"{cell}\t" for cell in cells)


def _container_order(container: Obj, sort_by: str) -> Any:
    return by_usage(sort_by)(container["usage"]) if sort_by else container["name"]


def _where(pod: Obj) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


async def _pods(call: Invocation, namespace: str) -> list[Obj]:
    flags = call.flags
    found = await call.client.list(
        builtin("pods"), namespace, label_selector=flags.selector, field_selector=flags.field_selector
    )
    return found.items


async def _check_empty(call: Invocation, name: str) -> None:
    """Raise Failed if there are Pods without metrics."""
    if name:
        pods = [await call.client.get(builtin("pods"), name, call.namespace)]
    else:
        pods = await _pods(call, call.namespace)
        if not pods:
            return
    for pod in pods:
        age = (call.io.clock.now() - parse_time(pod["metadata"]["creationTimestamp"])).total_seconds()
        if age > _YOUNG:
            raise Failed(f"Metrics not available for pod {_where(pod)}, age: {format_duration(round(age * 1e9))}")
    raise Failed("metrics not available yet")


COMMAND = Command(
    "Display resource (CPU/memory) usage of pods",
    run,
    (
        *FLAGS,
        *SELECTORS,
        *ALL_NAMESPACES,
        switch("containers", help="If present, print usage of containers within a pod."),
        switch("sum", help="Print the sum of the resource usage"),
    ),
    usage="[NAME | -l label]",
    aliases=("pods", "po"),
    examples="""
    setpoint top pod --sort-by=cpu

    setpoint top pod web-0 --containers
    """,
)
