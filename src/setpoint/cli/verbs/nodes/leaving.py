"""Determine which Pods of a node are evicted by a drain, which stay, and which block it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.goformat import aggregate
from setpoint.meta.times import parse_time

Obj = dict[str, Any]
_MIRROR = "kubernetes.io/config.mirror"


class Verdict(NamedTuple):
    goes: bool
    warning: str = ""
    error: str = ""


class Leaving(NamedTuple):
    pods: list[Obj]
    warnings: str


_GOES, _STAYS = Verdict(True), Verdict(False)


async def leaving(call: Invocation, node: str) -> Leaving:
    """Return the Pods to evict. Raise Failed if Pods would be lost and the flags do not permit that."""
    found = await call.client.list(
        builtin("pods"),
        label_selector=call.flags.pod_selector,
        field_selector=f"spec.nodeName={node}",
        page_size=call.flags.chunk_size,
    )
    pods: list[Obj] = []
    warnings: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    for pod in found.items:
        verdict = await _verdict(call, pod)
        where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if verdict.goes:
            pods.append(pod)
        if verdict.warning:
            warnings.setdefault(verdict.warning, []).append(where)
        if verdict.error:
            errors.setdefault(verdict.error, []).append(where)
    if errors:
        raise Failed(aggregate(f"cannot delete {why}: {', '.join(names)}" for why, names in errors.items()))
    return Leaving(pods, "; ".join(f"{why}: {', '.join(names)}" for why, names in warnings.items()))


def is_long_gone(call: Invocation, pod: Obj) -> bool:
    """Return whether a Pod has been terminating for longer than the wait limit."""
    limit, ended = call.flags.skip_wait_for_delete_timeout, pod["metadata"].get("deletionTimestamp")
    now: datetime = call.io.clock.now()
    return bool(limit > 0 and ended and int((now - parse_time(ended)).total_seconds()) > limit)


async def _verdict(call: Invocation, pod: Obj) -> Verdict:
    """Apply the filters; the last one that permits the eviction decides, and one that does not is final."""
    if is_long_gone(call, pod):
        return _STAYS
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    owner = next((one for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), None)
    if not over and owner is not None and (owner["apiVersion"], owner["kind"]) == ("apps/v1", "DaemonSet"):
        verdict = await _of_daemon_set(call, pod["metadata"]["namespace"], owner["name"])
        if not verdict.goes:
            return verdict
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        return _STAYS
    local = any("emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or ())
    if not over and local and not call.flags.delete_emptydir_data:
        return Verdict(False, error="Pods with local storage (use --delete-emptydir-data to override)")
    if over or owner is not None:
        return _GOES
    if call.flags.force:
        return Verdict(True, warning="deleting Pods that declare no controller")
    return Verdict(False, error="Pods that declare no controller (use --force to override)")


async def _of_daemon_set(call: Invocation, namespace: str, name: str) -> Verdict:
    try:
        await call.client.get(builtin("daemonsets", "apps"), name, namespace)
    except NotFound as error:
        return _GOES if call.flags.force else Verdict(False, error=error.message)
    except ApiError as error:
        return Verdict(False, error=error.message)
    if not call.flags.ignore_daemonsets:
        return Verdict(False, error="DaemonSet-managed Pods (use --ignore-daemonsets to ignore)")
    return Verdict(False, warning="ignoring DaemonSet-managed Pods")
