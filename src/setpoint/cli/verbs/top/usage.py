"""Read and format the metrics API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.meta import quantity

Obj = dict[str, Any]
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


def check(call: Invocation) -> None:
    if call.flags.sort_by not in ("", "cpu", "memory"):
        raise Failed("--sort-by accepts only cpu or memory")


async def metrics(call: Invocation, plural: str, name: str, namespace: str, selector: str) -> list[Obj]:
    """Return the metrics of one object, or of all that match. Raise Failed if there is no metrics API."""
    there = {one.version for one in await call.client.discovery.resources() if one.group == _GROUP}
    version = next((one for one in _VERSIONS if one in there), "")
    if not version:
        raise Failed("Metrics API not available")
    resource = (_GROUP, version, plural)
    if name:
        return [await call.client.get(resource, name, namespace)]
    return (await call.client.list(resource, namespace, label_selector=selector)).items


def measured(call: Invocation) -> tuple[str, ...]:
    return ("cpu", "memory", "swap") if call.flags.show_swap else ("cpu", "memory")


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
