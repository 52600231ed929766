"""Finds the objects that the loops have not brought to their desired state. Pure functions of the stored objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import orjson

from setpoint.meta.objects import ObjView
from setpoint.meta.times import parse_time, unix_milliseconds
from setpoint.view.plan import Unfinished

_SLICES, _SERVICES, _BUDGETS = "discovery.k8s.io/endpointslices/", "core/services/", "policy/poddisruptionbudgets/"
_SERVICE_NAME = "kubernetes.io/service-name"


Checked = MutableMapping[bytes, Unfinished | None]
"""Stored objects, each with its difference from what is desired; None if there is none."""


def unfinished(state: Mapping[str, bytes], checked: Checked | None = None) -> list[Unfinished]:
    """Return the objects that are not as desired, in the order of their keys.

    With `checked`, objects that earlier calls with the same mapping have seen are not examined again."""
    found: list[Unfinished] = []
    checked = {} if checked is None else checked
    for key in sorted(state):
        check = _CHECKS.get(key[: key.index("/", key.index("/") + 1) + 1])
        if check is None:
            continue
        value = state[key]
        if value not in checked:
            checked[value] = _examined(orjson.loads(value), *check)
        problem = checked[value]
        if problem is not None:
            found.append(problem)
    found += _unserved(state)
    return found


def _examined(obj: ObjView, kind: str, problem_of: Callable[[ObjView], str]) -> Unfinished | None:
    problem, meta = problem_of(obj), obj["metadata"]
    if not problem:
        return None
    node = meta["name"] if kind == "Node" else (obj.get("spec") or {}).get("nodeName", "")
    return Unfinished(kind, meta.get("namespace", ""), meta["name"], problem, node, owner_of(obj))


def owner_of(obj: ObjView) -> str:
    """Return the controlling owner as `Kind/name`; empty if there is none."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['kind']}/{owner['name']}"
    return ""


_EXITED, _PULL = b'"lastState":{"terminated"', b"ImagePull"
_STABLE_MILLISECONDS = 600_000
"""The time after which kubelets forget the back-off of a container that runs."""
_PULL_REASONS = ("ErrImagePull", "ImagePullBackOff")


def is_retrying(pod: bytes, at: int = 0) -> bool:
    """Return whether the kubelet tries again and again to run a container of a Pod: it keeps exiting, or its image
    cannot be pulled.

    `at` is the time of the state in milliseconds since the epoch; 0 if it is not known. A container that has exited
    before and runs again is then one that keeps exiting until it has run for ten minutes."""
    if _EXITED not in pod and _PULL not in pod:  # most Pods, which need not be decoded
        return False
    status = orjson.loads(pod).get("status") or {}
    return any(_is_retried(each, at) for each in _containers(status))


def unavailable_images(pods: Iterable[bytes]) -> dict[str, str]:
    """Return the images for which containers of these Pods wait because they cannot be pulled, each with the error."""
    found: dict[str, str] = {}
    for pod in pods:
        if _PULL not in pod:
            continue
        for each in _containers(orjson.loads(pod).get("status") or {}):
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _PULL_REASONS and each.get("image"):
                # In the back-off, kubelets repeat the error; earlier versions do not.
                message = str(waiting.get("message") or "")
                _, separator, error = message.partition(f": {_PULL_REASONS[0]}: ")
                found[each["image"]] = error if separator else message
    return found


def _containers(status: ObjView) -> Iterator[ObjView]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _is_retried(container: ObjView, at: int) -> bool:
    state = container.get("state") or {}
    waiting, started = state.get("waiting") or {}, (state.get("running") or {}).get("startedAt")
    exits = container.get("restartCount", 0) and (container.get("lastState") or {}).get("terminated")
    if exits and started and at:
        return at - unix_milliseconds(parse_time(started)) < _STABLE_MILLISECONDS
    return not container.get("ready") and bool(exits or waiting.get("reason") in _PULL_REASONS)


def _condition(obj: ObjView, kind: str) -> Mapping[str, Any]:
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind:
            return dict(each)
    return {}


def _pod(pod: ObjView) -> str:
    status, meta = pod.get("status") or {}, pod["metadata"]
    if status.get("phase") == "Succeeded":
        return ""
    if meta.get("deletionTimestamp"):
        where = pod["spec"].get("nodeName")
        return f"is being deleted{f' on {where}' if where else ''}"
    if status.get("phase") == "Failed":
        return f"failed: {status['reason']}" if status.get("reason") else "failed"
    if not pod["spec"].get("nodeName"):
        gates = pod["spec"].get("schedulingGates")
        reason = "it has scheduling gates" if gates else _condition(pod, "PodScheduled").get("message", "")
        return f"is not scheduled{f': {reason}' if reason else ''}"
    for each in _containers(status):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in ("PodInitializing",):
            return f"container {each['name']} waits: {waiting['reason']}"
    if _condition(pod, "Ready").get("status") != "True":
        return "is not ready"
    return ""


def _deployment(obj: ObjView) -> str:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    wanted = spec.get("replicas", 1)
    progressing = _condition(obj, "Progressing")
    failure = _condition(obj, "ReplicaFailure")
    why = f": {failure['message']}" if failure.get("status") == "True" and failure.get("message") else ""
    if progressing.get("status") == "False" and progressing.get("reason") == "ProgressDeadlineExceeded":
        return f"exceeded its progress deadline with {status.get('updatedReplicas', 0)} of {wanted} updated{why}"
    if spec.get("paused"):
        return ""
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        return "is not observed"
    if status.get("updatedReplicas", 0) < wanted:
        return f"{status.get('updatedReplicas', 0)} of {wanted} replicas are updated{why}"
    if status.get("replicas", 0) > wanted:
        return f"{status.get('replicas', 0) - wanted} old replicas are pending termination"
    if status.get("availableReplicas", 0) < wanted:
        return f"{status.get('availableReplicas', 0)} of {wanted} replicas are available{why}"
    return ""


def _replicas(obj: ObjView) -> str:
    wanted, ready = (obj.get("spec") or {}).get("replicas", 1), (obj.get("status") or {}).get("readyReplicas", 0)
    if any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or ()):
        return ""  # its Deployment says the same
    failure = _condition(obj, "ReplicaFailure")
    why = f": {failure['message']}" if failure.get("status") == "True" and failure.get("message") else ""
    return f"{ready} of {wanted} replicas are ready{why}" if ready < wanted else ""


def _daemon_set(obj: ObjView) -> str:
    status = obj.get("status") or {}
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    return f"{ready} of {wanted} Pods are ready" if ready < wanted else ""


def _job(obj: ObjView) -> str:
    failed = _condition(obj, "Failed")
    return f"failed: {failed.get('message', '')}" if failed.get("status") == "True" else ""


def _node(obj: ObjView) -> str:
    ready = _condition(obj, "Ready")
    return "" if ready.get("status") == "True" else f"is not ready: {ready.get('reason') or 'no status'}"


def _budget(obj: ObjView) -> str:
    status = obj.get("status") or {}
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return f"{healthy} of {wanted} required Pods are healthy" if healthy < wanted else ""


def _claim(obj: ObjView) -> str:
    return "is not bound" if (obj.get("status") or {}).get("phase") == "Pending" else ""


def _leaving(obj: ObjView) -> str:
    if not obj["metadata"].get("deletionTimestamp"):
        return ""
    finalizers = ", ".join(obj["metadata"].get("finalizers") or ())
    return f"is being deleted{f', and waits for {finalizers}' if finalizers else ''}"


_CHECKS = {
    "core/pods/": ("Pod", _pod),
    "core/nodes/": ("Node", _node),
    "core/namespaces/": ("Namespace", _leaving),
    "core/persistentvolumeclaims/": ("PersistentVolumeClaim", _claim),
    "core/replicationcontrollers/": ("ReplicationController", _replicas),
    "apps/deployments/": ("Deployment", _deployment),
    "apps/replicasets/": ("ReplicaSet", _replicas),
    "apps/statefulsets/": ("StatefulSet", _replicas),
    "apps/daemonsets/": ("DaemonSet", _daemon_set),
    "batch/jobs/": ("Job", _job),
    _BUDGETS: ("PodDisruptionBudget", _budget),
}


def _unserved(state: Mapping[str, bytes]) -> Iterator[Unfinished]:
    ready = {name for name, count in ready_endpoints(state).items() if count}
    for key in sorted(state):
        if key.startswith(_SERVICES):
            service = orjson.loads(state[key])
            name = key[len(_SERVICES) :]
            if (service.get("spec") or {}).get("selector") and name not in ready:
                meta = service["metadata"]
                yield Unfinished("Service", meta["namespace"], meta["name"], "has no ready endpoints")


def ready_endpoints(state: Mapping[str, bytes]) -> dict[str, int]:
    """Return the number of ready endpoints by `namespace/name` of the Service."""
    found: dict[str, int] = {}
    for key, value in state.items():
        if key.startswith(_SLICES):
            service, count = slice_endpoints(orjson.loads(value))
            found[service] = found.get(service, 0) + count
    return found


def slice_endpoints(endpoint_slice: ObjView) -> tuple[str, int]:
    """Return the `namespace/name` of the Service of an EndpointSlice, and the number of its ready endpoints."""
    meta = endpoint_slice["metadata"]
    service = f"{meta['namespace']}/{(meta.get('labels') or {}).get(_SERVICE_NAME, '')}"
    endpoints = endpoint_slice.get("endpoints") or ()
    return service, sum((each.get("conditions") or {}).get("ready", True) is not False for each in endpoints)
