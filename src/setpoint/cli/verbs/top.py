"""`top node` and `top pod`: show the resource usage that the metrics API reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.cli.command import Command, Lazy
from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import ALL_NAMESPACES, SELECTORS
from setpoint.cli.tabwriter import align
from setpoint.client.resources import builtin
from setpoint.meta import quantity
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_duration, parse_time

_GROUP = "metrics.k8s.io"
_VERSIONS = ("v1", "v1beta1")
_MIB = 1024 * 1024
UNKNOWN = "<unknown>"
FLAGS: tuple[Flag, ...] = (
    text("sort-by", help="Sort by usage of: cpu, memory.", choices=("cpu", "memory")),
    switch("no-headers", help="If present, print output without headers"),
    switch("use-protocol-buffers", default=True, help="For kubectl's sake: metrics come as JSON.", hidden=True),
    switch("show-swap", help="Print what is used of the swap memory as well."),
)


def check(invocation: Invocation) -> None:
    if invocation.flags.sort_by not in ("", "cpu", "memory"):
        raise Failed("--sort-by accepts only cpu or memory")


async def metrics(invocation: Invocation, plural: str, name: str, namespace: str, selector: str) -> list[Obj]:
    """Return the metrics of one object, or of all that match. Raise Failed if there is no metrics API."""
    there = {one.version for one in await invocation.client.discovery.resources() if one.group == _GROUP}
    version = next((one for one in _VERSIONS if one in there), "")
    if not version:
        raise Failed("Metrics API not available")
    resource = (_GROUP, version, plural)
    if name:
        return [await invocation.client.get(resource, name, namespace)]
    return (await invocation.client.list(resource, namespace, label_selector=selector)).items


def measured(invocation: Invocation) -> tuple[str, ...]:
    return ("cpu", "memory", "swap") if invocation.flags.show_swap else ("cpu", "memory")


def shown(resource: str, usage: Mapping[str, Any]) -> str:
    amount = str(usage.get(resource, "0"))
    if resource == "cpu":
        return f"{quantity.milli_value(amount)}m"
    return f"{int(quantity.value(amount) / _MIB)}Mi"


def by_usage(sort_by: str) -> Callable[[Mapping[str, Any]], int]:
    """Return a sort key that puts the highest usage first."""
    read = quantity.milli_value if sort_by == "cpu" else quantity.value
    return lambda usage: -read(str(usage.get(sort_by, "0")))


def added(usages: list[Mapping[str, Any]], resources: tuple[str, ...]) -> Obj:
    total: Obj = dict.fromkeys(resources, "0")
    for usage in usages:
        total = {one: quantity.add(total[one], str(usage.get(one, "0"))) for one in resources}
    return total


_NODE_USAGE = "node [NAME | -l label]"


async def top_nodes(invocation: Invocation) -> None:
    flags = invocation.flags
    if len(invocation.args) > 1:
        invocation.usage(_NODE_USAGE)
    name = invocation.args[0] if invocation.args else ""
    check(invocation)
    if name and flags.selector:
        raise Failed("only one of NAME or --selector can be provided")
    usages = await metrics(invocation, "nodes", name, "", flags.selector)
    if not usages:
        raise Failed("metrics not available yet")
    available = await _available(invocation, name)
    key = by_usage(flags.sort_by)
    usages.sort(key=lambda one: key(one.get("usage") or {}) if flags.sort_by else one["metadata"]["name"])
    resources = measured(invocation)
    rows = [] if flags.no_headers else [_header(resources)]
    for one in usages:
        has = available.pop(one["metadata"]["name"], {})
        rows.append(one["metadata"]["name"] + "\t" + "".join(_cells(res, one["usage"], has) for res in resources))
    rows += [f"{node}\t" + f"{UNKNOWN}\t{UNKNOWN}\t" * len(resources) for node in sorted(available)]
    invocation.print(align("\n".join(rows), least=6, padding=3))


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


async def _available(invocation: Invocation, name: str) -> dict[str, Obj]:
    """Return the capacity of each node."""
    if name:
        nodes = [await invocation.client.get(builtin("nodes"), name)]
    else:
        nodes = (await invocation.client.list(builtin("nodes"), label_selector=invocation.flags.selector)).items
    found: dict[str, Obj] = {}
    for node in nodes:
        status = node.get("status") or {}
        has = dict(status.get("capacity" if invocation.flags.show_capacity else "allocatable") or {})
        swap = ((status.get("nodeInfo") or {}).get("swap") or {}).get("capacity")
        if swap is not None:
            has["swap"] = str(swap)
        found[node["metadata"]["name"]] = has
    return found


NODE = Command(
    "Display resource (CPU/memory) usage of nodes",
    top_nodes,
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


_POD_USAGE = "pod [NAME | -l label]"
_YOUNG = 120.0
"""Age in seconds up to which a Pod may have no metrics yet."""
_HEADERS = {"cpu": "CPU(cores)", "memory": "MEMORY(bytes)", "swap": "SWAP(bytes)"}


async def top_pods(invocation: Invocation) -> None:
    flags = invocation.flags
    if len(invocation.args) > 1:
        invocation.usage(_POD_USAGE)
    name = invocation.args[0] if invocation.args else ""
    check(invocation)
    if name and (flags.selector or flags.field_selector):
        raise Failed("only one of NAME or selector can be provided")
    namespace = "" if flags.all_namespaces else invocation.namespace
    found = await metrics(invocation, "pods", name, namespace, flags.selector)
    if found and flags.field_selector:
        chosen = {_where(pod) for pod in await _pods(invocation, namespace)}
        found = [one for one in found if _where(one) in chosen]
    if not found:
        await _check_empty(invocation, name)
        invocation.print_err(
            "No resources found" if flags.all_namespaces else f"No resources found in {invocation.namespace} namespace."
        )
        return
    invocation.print(align("\n".join(_rows(invocation, found)), least=6, padding=3))


def _rows(invocation: Invocation, found: list[Obj]) -> list[str]:
    flags, resources = invocation.flags, measured(invocation)
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


async def _pods(invocation: Invocation, namespace: str) -> list[Obj]:
    flags = invocation.flags
    found = await invocation.client.list(
        builtin("pods"), namespace, label_selector=flags.selector, field_selector=flags.field_selector
    )
    return found.items


async def _check_empty(invocation: Invocation, name: str) -> None:
    """Raise Failed if there are Pods without metrics."""
    if name:
        pods = [await invocation.client.get(builtin("pods"), name, invocation.namespace)]
    else:
        pods = await _pods(invocation, invocation.namespace)
        if not pods:
            return
    for pod in pods:
        age = (invocation.io.clock.now() - parse_time(pod["metadata"]["creationTimestamp"])).total_seconds()
        if age > _YOUNG:
            raise Failed(f"Metrics not available for pod {_where(pod)}, age: {format_duration(round(age * 1e9))}")
    raise Failed("metrics not available yet")


POD = Command(
    "Display resource (CPU/memory) usage of pods",
    top_pods,
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


COMMAND = Command(
    "Display resource (CPU/memory) usage",
    children={
        "node": Lazy("Display resource (CPU/memory) usage of nodes", __name__, ("nodes", "no"), constant="NODE"),
        "pod": Lazy("Display resource (CPU/memory) usage of pods", __name__, ("pods", "po"), constant="POD"),
    },
    usage="[node | pod]",
)
