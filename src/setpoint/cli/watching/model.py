"""What the screen knows: objects as they are, who changed them last, and what was told. Pure; fed with watch events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

Obj = Mapping[str, Any]
_MOST_CHANGES = 200
_MOST_EVENTS = 200


class Change(NamedTuple):
    when: datetime
    what: str
    """`deployment/web`"""
    who: str
    how: str
    """`made`, `spec`, `status`, `gone`"""


class Told(NamedTuple):
    when: datetime
    about: str
    reason: str
    message: str
    warning: bool


class Wish(NamedTuple):
    """One row: what is wished for against what is."""

    name: str
    desired: int
    observed: int
    note: str


class Model:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Obj]] = {}
        """By kind, then by namespace/name."""
        self.changes: deque[Change] = deque(maxlen=_MOST_CHANGES)
        self.events: deque[Told] = deque(maxlen=_MOST_EVENTS)

    def see(self, kind: str, type: str, obj: Obj, now: datetime, *, news: bool = True) -> None:
        """`news`: it happened now, and was not merely there when we came."""
        if kind == "Event":
            if news and type != "DELETED":
                self._tell(obj, now)
            return
        key = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        known = self.objects.setdefault(kind, {})
        before = known.get(key)
        if type == "DELETED":
            known.pop(key, None)
        else:
            known[key] = obj
        if news:
            what = f"{kind.lower()}/{obj['metadata']['name']}"
            self.changes.append(Change(now, what, _who(before, obj), _how(type, before, obj)))

    def _tell(self, event: Obj, now: datetime) -> None:
        about = event.get("involvedObject") or {}
        self.events.append(
            Told(
                now,
                f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
                str(event.get("reason", "")),
                " ".join(str(event.get("message", "")).split()),
                event.get("type") == "Warning",
            )
        )

    def wishes(self) -> list[Wish]:
        """Everything that wishes for a number of something, those that are not met first."""
        found = [
            wish
            for kind, counted in _COUNTED.items()
            for obj in self.objects.get(kind, {}).values()
            if (wish := counted(kind, obj)) is not None
        ]
        return sorted(found, key=lambda wish: (wish.desired == wish.observed, wish.name))

    def pods(self) -> dict[str, int]:
        """How many are in which state, as people name it."""
        states: dict[str, int] = {}
        for pod in self.objects.get("Pod", {}).values():
            state = pod_state(pod)
            states[state] = states.get(state, 0) + 1
        return states

    def nodes(self) -> tuple[int, int]:
        """(ready, all)"""
        found = self.objects.get("Node", {}).values()
        return sum(is_ready(node) for node in found), len(found)


def is_ready(obj: Obj) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def pod_state(pod: Obj) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
            return str(waiting["reason"])
    phase = str(status.get("phase") or "Pending")
    return "NotReady" if phase == "Running" and not is_ready(pod) else phase


def _replicas(kind: str, obj: Obj) -> Wish | None:
    status = obj.get("status") or {}
    desired = obj["spec"].get("replicas", 1)
    note = ""
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        note = "not seen yet"
    elif "updatedReplicas" in status and status["updatedReplicas"] < desired:
        note = f"{status['updatedReplicas']} updated"
    return Wish(_name(kind, obj), desired, status.get("readyReplicas", 0), note)


def _own_replicas(kind: str, obj: Obj) -> Wish | None:
    """Sets that belong to something else are shown by it."""
    return None if obj["metadata"].get("ownerReferences") else _replicas(kind, obj)


def _daemons(kind: str, obj: Obj) -> Wish | None:
    status = obj.get("status") or {}
    return Wish(_name(kind, obj), status.get("desiredNumberScheduled", 0), status.get("numberReady", 0), "")


def _job(kind: str, obj: Obj) -> Wish | None:
    status = obj.get("status") or {}
    failed = status.get("failed", 0)
    desired = obj["spec"].get("completions") or 1
    return Wish(_name(kind, obj), desired, status.get("succeeded", 0), f"{failed} failed" if failed else "")


def _name(kind: str, obj: Obj) -> str:
    return f"{kind.lower()}/{obj['metadata']['name']}"


_COUNTED = {
    "Deployment": _replicas, "StatefulSet": _replicas, "ReplicaSet": _own_replicas, "DaemonSet": _daemons, "Job": _job,
}  # fmt: skip


def _who(before: Obj | None, after: Obj) -> str:
    """Who wrote last, as the object itself says: whose entry is another than it was; times are whole seconds only."""
    known = (before or {"metadata": {}})["metadata"].get("managedFields") or ()
    entries = after["metadata"].get("managedFields") or ()
    changed = [entry for entry in entries if entry not in known] or entries
    newest = max(changed, key=lambda entry: entry.get("time", ""), default=None)
    return str(newest.get("manager", "")) if newest else ""


def _how(type: str, before: Obj | None, after: Obj) -> str:
    if type == "DELETED":
        return "gone"
    if before is None:
        return "made"
    if after["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp"):
        return "to go"
    if before.get("spec") != after.get("spec"):
        return "spec"
    return "status" if before.get("status") != after.get("status") else "metadata"
