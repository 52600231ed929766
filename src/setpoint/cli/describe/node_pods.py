"""Describe the Pods of a node with their requests and limits, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.kinds.core.pod_totals import pod_limits, pod_requests
from setpoint.kinds.core.podspec.aggregate import Amounts
from setpoint.meta.quantity import Quantity, add, canonical, parse

_ALWAYS_SHOWN = ("cpu", "memory", "ephemeral-storage")
_NO_NUMBER = -(2**63)
"""The result of a division by zero in kubectl, converted to an integer on most machines."""


def write_pods(w: Writer, ctx: DescribeContext, node: Obj, pods: list[Obj]) -> None:
    allocatable = status(node).get("allocatable") or status(node).get("capacity") or {}
    w.field("Non-terminated Pods", f"({len(pods)} in total)")
    w.row(1, "Namespace", "Name", "", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age")
    w.row(1, "---------", "----", "", "------------", "----------", "---------------", "-------------", "---")
    for pod in pods:
        requests, limits = pod_requests(_by_containers(pod)), pod_limits(_by_containers(pod))
        shares = [_share(amounts, allocatable, name) for name in ("cpu", "memory") for amounts in (requests, limits)]
        about = meta(pod)
        age = ctx.since(about.get("creationTimestamp"))
        w.row(1, about.get("namespace", ""), about.get("name", ""), "", *shares, age)
    _write_totals(w, allocatable, pods)


def _by_containers(pod: Obj) -> Obj:
    """Return the Pod without its Pod-level resources, which kubectl ignores here."""
    kept = {key: value for key, value in status(pod).items() if key not in ("resources", "allocatedResources")}
    return {**pod, "status": kept}


def _write_totals(w: Writer, allocatable: Mapping[str, str], pods: list[Obj]) -> None:
    # The totals are of the desired resources, not of the allocated ones.
    wanted = [{"spec": spec(pod)} for pod in pods]
    requests, limits = _sum(map(pod_requests, wanted)), _sum(map(pod_limits, wanted))
    w.write(0, "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n")
    w.row(1, "Resource", "Requests", "Limits")
    w.row(1, "--------", "--------", "------")
    huge = sorted(name for name in allocatable if name.startswith("hugepages-"))
    for name in (*_ALWAYS_SHOWN, *huge):
        w.row(1, name, *(_share(amounts, allocatable, name, nothing=0) for amounts in (requests, limits)))
    for name in sorted(allocatable.keys() - {*_ALWAYS_SHOWN, *huge, "pods"}):
        w.row(1, name, *(canonical(amounts.get(name, "0")) for amounts in (requests, limits)))


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = add(total[name], amount) if name in total else amount
    return total


def _share(amounts: Amounts, allocatable: Mapping[str, str], name: str, nothing: int = _NO_NUMBER) -> str:
    """Return `500m (25%)`. `nothing` is the percentage for a resource that the node does not have."""
    measure = Quantity.milli_value if name == "cpu" else Quantity.value
    amount, whole = parse(amounts.get(name, "0")), measure(parse(allocatable.get(name, "0")))
    share = float(measure(amount)) / float(whole) * 100 if whole else float("inf")
    return f"{amount.text} ({int(share) if isfinite(share) else nothing}%)"
