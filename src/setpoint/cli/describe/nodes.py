"""Nodes: themselves, and the Pods that run on them with their requests and limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from setpoint.cli.describe.context import DescribeContext, Writer, meta, spec, status
from setpoint.cli.describe.events import reference_to, visible_events, write_found_events
from setpoint.cli.describe.metadata import write_annotations, write_labels, write_taints
from setpoint.client.resources import builtin
from setpoint.kinds.cell_texts import NONE, UNSET
from setpoint.kinds.core.pod_demand import pod_limits, pod_requests
from setpoint.kinds.core.podspec.resources import Amounts
from setpoint.meta.errors import ApiError, Forbidden
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj
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
    remaining = {key: value for key, value in status(pod).items() if key not in ("resources", "allocatedResources")}
    return {**pod, "status": remaining}


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


_ROLE_PREFIX, _ROLE_LABEL = "node-role.kubernetes.io/", "kubernetes.io/role"
_LEASES = "kube-node-lease"
_SHOWN_POOLS = 10


async def node(obj: Obj, ctx: DescribeContext) -> str:
    about, wanted, found = meta(obj), spec(obj), status(obj)
    name = about.get("name", "")
    pods = await _pods(ctx, name)
    w = Writer()
    w.field("Name", name)
    w.field("Roles", ",".join(_roles(about.get("labels") or {})) or NONE)
    write_labels(w, "Labels", about.get("labels"))
    write_annotations(w, "Annotations", about.get("annotations"))
    w.field("CreationTimestamp", ctx.moment(about.get("creationTimestamp")))
    write_taints(w, wanted.get("taints"))
    w.field("Unschedulable", plain(bool(wanted.get("unschedulable"))))
    await _write_lease(w, ctx, name)
    _write_conditions(w, ctx, obj)
    w.write(0, "Addresses:\n")
    for address in found.get("addresses") or ():
        w.field(address.get("type", ""), address.get("address", ""), 1)
    _write_amounts(w, "Capacity", found.get("capacity"))
    _write_amounts(w, "Allocatable", found.get("allocatable"))
    await _write_devices(w, ctx, name)
    _write_system(w, ctx, obj)
    if wanted.get("podCIDR"):
        w.field("PodCIDR", wanted["podCIDR"])
    if wanted.get("podCIDRs"):
        w.field("PodCIDRs", ",".join(wanted["podCIDRs"]))
    if wanted.get("providerID"):
        w.field("ProviderID", wanted["providerID"])
    if pods is None:
        w.field("Pods", "not authorized")
    else:
        write_pods(w, ctx, obj, pods)
    if ctx.show_events:
        # Controllers record events about a node with its uid, kubelets with its name.
        reference = reference_to(obj, "Node")
        events = await visible_events(ctx, reference)
        events += await visible_events(ctx, reference._replace(uid=name))
        write_found_events(w, ctx, events)
    return w.text()


async def _pods(ctx: DescribeContext, name: str) -> list[Obj] | None:
    """Return the Pods that have not terminated; None if the user may not list them."""
    selector = f"spec.nodeName={name},status.phase!=Failed,status.phase!=Succeeded"
    try:
        return await ctx.pods("", field_selector=selector)
    except Forbidden:
        return None


def _roles(labels: Mapping[str, str]) -> list[str]:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return sorted((roles | {labels.get(_ROLE_LABEL, "")}) - {""})


async def _write_lease(w: Writer, ctx: DescribeContext, name: str) -> None:
    try:
        lease = await ctx.reader.get(builtin("leases", "coordination.k8s.io"), name, _LEASES)
    except ApiError as error:
        w.field("Lease", f"Failed to get lease: {error.message}")
        return
    held = spec(lease)
    w.write(0, "Lease:\n")
    w.field("HolderIdentity", held.get("holderIdentity", UNSET), 1)
    w.field("AcquireTime", ctx.moment(held["acquireTime"]) if held.get("acquireTime") else UNSET, 1)
    w.field("RenewTime", ctx.moment(held["renewTime"]) if held.get("renewTime") else UNSET, 1)


def _write_conditions(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    conditions = status(obj).get("conditions")
    if not conditions:
        return
    w.write(0, "Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n")
    w.row(1, "----", "------", "-----------------", "------------------", "------", "-------")
    for each in conditions:
        moments = ctx.moment(each.get("lastHeartbeatTime")), ctx.moment(each.get("lastTransitionTime"))
        cells = (each.get("type", ""), each.get("status", ""), *moments, each.get("reason", ""))
        w.row(1, *(f"{cell} " for cell in cells), each.get("message", ""))


def _write_amounts(w: Writer, title: str, amounts: Mapping[str, str] | None) -> None:
    if amounts:
        w.write(0, f"{title}:\n")
        for name in sorted(amounts):
            w.field(name, canonical(amounts[name]), 1)


async def _write_devices(w: Writer, ctx: DescribeContext, name: str) -> None:
    if ctx.minor < 36:
        return
    try:
        slices = await ctx.all(builtin("resourceslices", "resource.k8s.io"), field_selector=f"spec.nodeName={name}")
    except ApiError:
        return
    pools: dict[tuple[str, str], list[int]] = {}
    for each in slices:
        key = spec(each).get("driver", ""), (spec(each).get("pool") or {}).get("name", "")
        pools.setdefault(key, []).append(len(spec(each).get("devices") or ()))
    if not pools:
        return
    w.write(0, "Node-Local ResourceSlices:\n")
    w.row(1, "Driver", "Pool", "Slices", "Devices")
    w.row(1, "------", "----", "------", "-------")
    ordered: Sequence[tuple[str, str]] = sorted(pools, key="/".join)
    for driver, pool in ordered[:_SHOWN_POOLS]:
        devices = pools[driver, pool]
        w.row(1, driver, pool, len(devices), sum(devices))
    if len(ordered) > _SHOWN_POOLS:
        w.write(1, f"...and {len(ordered) - _SHOWN_POOLS} more pools\n")


def _write_system(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    info = status(obj).get("nodeInfo") or {}
    w.write(0, "System Info:\n")
    for title, key in (
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
        ("Kube-Proxy Version", "kubeProxyVersion"),
    ):
        if key != "kubeProxyVersion" or ctx.minor < 36:
            w.field(title, info.get(key, ""), 1)
