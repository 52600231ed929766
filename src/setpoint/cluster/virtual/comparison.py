"""Compares two states of a cluster in a few lines: Pods, nodes, workloads and Services. Pure functions of the stored
objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from setpoint.cluster.virtual.conditions import owner_of, ready_endpoints
from setpoint.meta.objects import Obj, ObjView
from setpoint.view.fault_report import time_text
from setpoint.view.plan import ComparedRow, EndpointDip, MovedPod

_PODS, _NODES, _SERVICES = "core/pods/", "core/nodes/", "core/services/"
_GONE = "does not exist"


def moved_pods(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[MovedPod]:
    """Return the Pods that others of the same owner have replaced, in the order of their keys."""
    gone: dict[tuple[str, str], list[Obj]] = {}
    for key in sorted(before):
        if not key.startswith(_PODS) or (key in after and not _is_stored_leaving(after[key])):
            continue
        pod = orjson.loads(before[key])
        if owner_of(pod) and not _is_leaving(pod):
            gone.setdefault((pod["metadata"]["namespace"], owner_of(pod)), []).append(pod)
    found = []
    for key in sorted(after):
        if key.startswith(_PODS) and key not in before:
            pod = orjson.loads(after[key])
            namespace, owner = pod["metadata"]["namespace"], owner_of(pod)
            replaced = gone.get((namespace, owner))
            if replaced:
                old = replaced.pop(0)
                names = old["metadata"]["name"], pod["metadata"]["name"]
                found.append(MovedPod(namespace, owner, *names, _node_of(old), _node_of(pod)))
    return found


def compared(
    before: Mapping[str, bytes], after: Mapping[str, bytes], moved: Sequence[MovedPod], dips: Sequence[EndpointDip]
) -> list[ComparedRow]:
    """Return a line about all Pods, and one for each node, workload and Service that differs or was interrupted."""
    remark = f"{len(moved)} replaced" if moved else ""
    states: dict[bytes, _PodState] = {}
    rows = [ComparedRow("Pod", "", "", _pods(before, states), _pods(after, states), remark)]
    for prefix, (kind, describe) in _KINDS.items():
        rows += _differing(before, after, prefix, kind, describe)
    rows += _services(before, after, dips)
    return rows


def _differing(
    before: Mapping[str, bytes], after: Mapping[str, bytes], prefix: str, kind: str, describe: Callable[[ObjView], str]
) -> Iterator[ComparedRow]:
    for key in sorted(each for each in {*before, *after} if each.startswith(prefix)):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        obj = orjson.loads(new if new is not None else old or b"{}")
        if kind == "ReplicaSet" and owner_of(obj):
            continue  # its Deployment says the same
        now = _GONE if old is None else describe(orjson.loads(old))
        then = _GONE if new is None else describe(obj)
        if now != then:
            meta = obj["metadata"]
            yield ComparedRow(kind, meta.get("namespace", ""), meta["name"], now, then, "")


class _PodState(NamedTuple):
    """The part of a Pod that is counted."""

    leaves: bool
    ended: bool
    ready: bool


def _pods(state: Mapping[str, bytes], known: dict[bytes, _PodState]) -> str:
    """Return how many Pods there are. `known` has the Pods that were examined already, and gets the others."""
    total = ready = leaving = 0
    for key, value in state.items():
        if not key.startswith(_PODS):
            continue
        pod = known.get(value)
        if pod is None:
            obj = orjson.loads(value)
            ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            pod = known[value] = _PodState(_is_leaving(obj), ended, _condition(obj, "Ready") == "True")
        if pod.leaves:
            leaving += 1
        elif not pod.ended:
            total += 1
            ready += pod.ready
    return f"{ready} of {total} ready" + (f", {leaving} terminating" if leaving else "")


def _is_stored_leaving(pod: bytes) -> bool:
    return b'"deletionTimestamp"' in pod and _is_leaving(orjson.loads(pod))


def _is_leaving(pod: ObjView) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _node(node: ObjView) -> str:
    state = {"True": "Ready", "False": "not ready"}.get(_condition(node, "Ready"), "Unknown")
    return f"{state}, cordoned" if (node.get("spec") or {}).get("unschedulable") else state


def _workload(obj: ObjView) -> str:
    status = obj.get("status") or {}
    wanted = (obj.get("spec") or {}).get("replicas", 1)
    return f"{status.get('readyReplicas', 0)} of {wanted} ready{_images(obj)}"


def _daemon_set(obj: ObjView) -> str:
    status = obj.get("status") or {}
    return f"{status.get('numberReady', 0)} of {status.get('desiredNumberScheduled', 0)} ready{_images(obj)}"


def _job(obj: ObjView) -> str:
    status = obj.get("status") or {}
    return f"{status.get('succeeded', 0)} succeeded, {status.get('failed', 0)} failed"


def _images(obj: ObjView) -> str:
    template = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    images = [str(each.get("image", "")) for each in template.get("containers") or ()]
    return f", {' '.join(images)}" if images else ""


_KINDS: dict[str, tuple[str, Callable[[ObjView], str]]] = {
    _NODES: ("Node", _node),
    "apps/deployments/": ("Deployment", _workload),
    "apps/statefulsets/": ("StatefulSet", _workload),
    "apps/replicasets/": ("ReplicaSet", _workload),
    "core/replicationcontrollers/": ("ReplicationController", _workload),
    "apps/daemonsets/": ("DaemonSet", _daemon_set),
    "batch/jobs/": ("Job", _job),
}


def _services(
    before: Mapping[str, bytes], after: Mapping[str, bytes], dips: Iterable[EndpointDip]
) -> Iterator[ComparedRow]:
    first, last = ready_endpoints(before), ready_endpoints(after)
    interrupted = {f"{each.namespace}/{each.name}": each for each in dips}
    for key in sorted(each for each in {*before, *after} if each.startswith(_SERVICES)):
        service = key[len(_SERVICES) :]
        now = _endpoints(first.get(service, 0)) if key in before else _GONE
        then = _endpoints(last.get(service, 0)) if key in after else _GONE
        dip = interrupted.get(service)
        if now != then or dip is not None:
            namespace, _, name = service.partition("/")
            yield ComparedRow("Service", namespace, name, now, then, "" if dip is None else _dip(dip))


def _dip(dip: EndpointDip) -> str:
    until = "to the end" if dip.until is None else f"to {time_text(dip.until)}"
    count = "no endpoints" if not dip.least else f"only {_endpoints(dip.least)}"
    return f"{count} at the worst, fewer than {dip.usual} from {time_text(dip.since)} {until}"


def _endpoints(count: int) -> str:
    return "1 endpoint" if count == 1 else f"{count} endpoints"


def _condition(obj: ObjView, kind: str) -> str:
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            return str(each.get("status"))
    return ""


def _node_of(pod: ObjView) -> str:
    return str(pod["spec"].get("nodeName") or "")
