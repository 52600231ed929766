"""Find the Pod and container of a command: by name, or by their owner."""

from __future__ import annotations

from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, duration
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import Target, choose
from setpoint.cli.waiting import TIMED_OUT, TimedOut, within
from setpoint.client.resources import builtin
from setpoint.meta.errors import NotFound
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.meta.selectors import format_labels

PODS = builtin("pods")
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_BY_MAP = (("", "ReplicationController"), ("", "Service"))
_BY_SELECTOR = (
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("batch", "Job"),
)
_PHASES = {"Running": 0, "Unknown": 1, "Pending": 2}
_NEVER = "9999"


def pod_running_timeout(default: float) -> tuple[Flag, ...]:
    return (duration("pod-running-timeout", default=default, help="How long to wait until at least one Pod runs."),)


async def named(invocation: Invocation, word: str) -> Target:
    """Return the object for `web`, `pod/web` or `deployment/web`. Raise Failed unless it is exactly one object."""
    words = [word] if "/" in word else ["pods", word]
    (target,) = (await choose(invocation, words)).targets
    try:
        return target.with_object(await invocation.client.get(target.resource, target.name, target.namespace))
    except NotFound as error:
        raise Failed(f"error from server (NotFound): {error.message} in namespace {quote(target.namespace)}") from None


def selector_of(target: Target) -> str | None:
    """Return the label selector of an object's Pods; None if it has none."""
    obj = target.obj or {}
    kind = (target.resource.group, target.resource.kind)
    selector = (obj.get("spec") or {}).get("selector")
    if kind in _BY_MAP:
        if not selector:
            return None
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return format_labels(selector) if kind in _BY_SELECTOR else None


async def pods_behind(invocation: Invocation, target: Target, doing: str, timeout: float) -> list[Obj]:
    """Return the Pod itself, or all Pods of an object with a selector, the best first; wait for the first one."""
    assert target.obj is not None
    if target.resource.kind == "Pod":
        return [target.obj]
    selector = selector_of(target)
    if selector is None:
        why = f"selector for {target.resource.kind} not implemented"
        if (target.resource.group, target.resource.kind) == ("", "Service"):
            why = f"invalid service '{target.name}': Service is defined without a selector"
        raise Failed(f"cannot {doing} {target.resource.kind}: {why}")
    found = await invocation.client.list(PODS, target.namespace, label_selector=selector)
    if found.items:
        return sorted(found.items, key=_best_first)
    watch = invocation.client.watch(
        PODS, target.namespace, label_selector=selector, resource_version=found.resource_version
    )

    async def first() -> list[Obj]:
        async for kind, pod in watch:
            if kind in ("ADDED", "MODIFIED"):
                return [pod]
        return []

    try:
        if pods := await within(invocation.io, timeout, first()):
            return pods
    except TimedOut:
        pass
    finally:
        watch.close()
    raise Failed(TIMED_OUT)


def _best_first(pod: Obj) -> tuple[Any, ...]:
    """Return the sort key: bound, running and ready Pods first, then longer ready, more restarts, older."""
    status = pod.get("status") or {}
    ready: Obj = next((one for one in status.get("conditions") or () if one["type"] == "Ready"), {})
    is_ready = ready.get("status") == "True"
    restarts = max((one.get("restartCount", 0) for one in status.get("containerStatuses") or ()), default=0)
    return (
        not pod["spec"].get("nodeName"),
        _PHASES.get(status.get("phase", ""), 0),
        not is_ready,
        (ready.get("lastTransitionTime") or _NEVER) if is_ready else "",
        -restarts,
        pod["metadata"].get("creationTimestamp") or _NEVER,
    )


def container_names(pod: Obj) -> list[str]:
    """Return the names of init containers, containers and ephemeral containers."""
    spec = pod["spec"]
    parts = ("initContainers", "containers", "ephemeralContainers")
    return [one["name"] for part in parts for one in spec.get(part) or ()]


def listed_containers(pod: Obj) -> str:
    spec = pod["spec"]
    marked = (("containers", ""), ("ephemeralContainers", " (ephem)"), ("initContainers", " (init)"))
    return ", ".join(f"{one['name']}{mark}" for part, mark in marked for one in spec.get(part) or ())


def container_of(invocation: Invocation, pod: Obj, name: str = "", *, quiet: bool = False) -> str:
    """Return the named container, the Pod's default, or the first, which is reported if there are others. Raise
    Failed."""
    wanted = name or (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER) or ""
    if wanted:
        if wanted not in container_names(pod):
            message = f"{pod['metadata']['name']} out of: {listed_containers(pod)}"
            raise Failed(f"container {wanted} is not valid for pod {message}")
        return wanted
    first: str = pod["spec"]["containers"][0]["name"]
    if len(container_names(pod)) > 1 and not quiet:
        invocation.print_err(f"Defaulted container {quote(first)} out of: {listed_containers(pod)}")
    return first
