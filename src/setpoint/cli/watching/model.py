"""The model of the screen of `setpoint watch`: objects, changes with their authors, and Events.

It is pure and fed with watch events; only the authors are read from the server.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.client import Client
from setpoint.client.transport import Unreachable
from setpoint.meta.cause import Claim, WriteCause, product_of
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import ObjView
from setpoint.meta.times import parse_time
from setpoint.view.actors import actor_of
from setpoint.view.changes import changes
from setpoint.view.loop import Loop, Related, look, pods_of
from setpoint.view.states import is_ready, pod_state

_PATH = "/setpoint/v1/causes"
MAX = 200
"""The maximum number of revisions per request."""
_MAX_DEPTH = 12
"""The maximum number of writes that are followed back to their origin."""


class Authors:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._served = True
        """Whether the server has the endpoint and the user may read it."""

    async def of(self, revisions: Sequence[int]) -> dict[int, str] | None:
        """Return the authors by revision, as far as the server knows them; None if it cannot be reached now."""
        causes = await self._causes(revisions)
        return None if causes is None else {revision: author(cause) for revision, cause in causes.items()}

    async def origin(self, revision: int) -> str:
        """Return the person or program whose change led to this write, over the reconciles that it triggered; empty if
        it is not known, or was no change: the start of a loop, a timer, the exit of a container."""
        for _ in range(_MAX_DEPTH):
            cause = (await self._causes([revision]) or {}).get(revision)
            if cause is None:
                return ""
            if not cause.get("reconcile"):
                return "" if str(cause.get("user", "")).startswith("system:") else author(cause)
            triggers = cause.get("triggers")
            if not triggers:
                return ""
            revision = int(triggers[0])
        return ""

    async def _causes(self, revisions: Sequence[int]) -> dict[int, dict[str, Any]] | None:
        """Return the causes by revision, as far as the server knows them; None if it cannot be reached now."""
        if not self._served or not revisions:
            return {}
        try:
            query = "revisions=" + ",".join(map(str, revisions))
            reply = await self._client.sender.request("GET", _PATH, query)
            return {int(one["revision"]): one for one in json.loads(reply.body)["causes"]}
        except Unreachable:
            return None
        except (ApiError, ValueError, LookupError, TypeError):
            self._served = False
            return {}


def author(cause: dict[str, Any]) -> str:
    """Return the display name of the author of a cause."""
    claim = Claim(reconcile=str(cause.get("reconcile", "")))
    return actor_of(WriteCause(0, "", str(cause.get("user", "")), product_of(str(cause.get("agent", ""))), claim))


_MAX_CHANGES = 200
_MAX_EVENTS = 200


@dataclass(slots=True)
class Change:
    when: datetime
    what: str
    """The object, such as `deployment/web`."""
    how: str
    """`created`, `spec`, `status`, `metadata`, `deleting` or `deleted`; `changed` if it happened before the view began
    and only the time is known."""
    revision: int
    """The revision of the write; 0 if it is not known."""
    who: str
    """The author; empty while it is not known."""
    guess: str
    """The author that the object itself suggests, for servers that record no causes."""


class EventLine(NamedTuple):
    when: datetime
    about: str
    reason: str
    message: str
    warning: bool


class Workload(NamedTuple):
    """One row: the desired and the observed state of a workload."""

    name: str
    desired: int
    observed: int
    note: str


class Model:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, ObjView]] = {}
        """The objects by kind, then by namespace/name."""
        self.changes: deque[Change] = deque(maxlen=_MAX_CHANGES)
        """The changes, the oldest first."""
        self.events: deque[EventLine] = deque(maxlen=_MAX_EVENTS)
        """The Events, the oldest first."""
        self.version = 0
        """A counter that increases with every update."""

    def begin(self, found: Iterable[tuple[str, ObjView]], now: datetime) -> None:
        """Add the objects that exist when the view starts, by kind, with the last change that their own metadata
        shows."""
        changes, events = list[Change](), list[EventLine]()
        for kind, obj in found:
            if kind == "Event":
                events.append(_event_line(obj, now))
            else:
                self.objects.setdefault(kind, {})[_key(obj)] = obj
                changes.append(_last_change(kind, obj, now))
        self.changes.extend(sorted(changes, key=lambda change: (change.when, change.revision)))
        self.events.extend(sorted(events, key=lambda event: event.when))
        self.version += 1

    def see(self, kind: str, type: str, obj: ObjView, now: datetime) -> None:
        """Add a watch event."""
        self.version += 1
        if kind == "Event":
            if type != "DELETED":
                self.events.append(_event_line(obj, now))
            return
        known = self.objects.setdefault(kind, {})
        key = _key(obj)
        before = known.get(key)
        if before is not None and type == "ADDED" and 0 < _revision(obj) <= _revision(before):
            return  # already added when the view started
        if type == "DELETED":
            known.pop(key, None)
        else:
            known[key] = obj
        change = Change(now, _name(kind, obj), _how(type, before, obj), _revision(obj), "", _guess(before, obj))
        self.changes.append(change)

    def see_again(self, kind: str, found: Iterable[ObjView], now: datetime) -> None:
        """Add the current objects after an interrupted watch."""
        there = {_key(obj): obj for obj in found}
        known = self.objects.get(kind, {})
        for key in known.keys() - there.keys():
            del known[key]
        for obj in there.values():
            if kind != "Event":
                self.see(kind, "ADDED", obj, now)

    def unattributed(self, most: int) -> list[int]:
        """Return the revisions of the newest changes whose author is not known."""
        found = dict.fromkeys(change.revision for change in reversed(self.changes) if not change.who)
        found.pop(0, None)
        return list(found)[:most]

    def attribute(self, authors: Mapping[int, str], revisions: Iterable[int]) -> None:
        """Set the authors of the requested revisions; unknown ones get the guess of the object."""
        revisions = set(revisions)
        for change in self.changes:
            if not change.who and (change.revision in revisions or not change.revision):
                change.who = authors.get(change.revision) or change.guess or "?"
        self.version += 1

    def workloads(self, now: datetime) -> list[Workload]:
        """Return all workloads, those with differences between desired and observed state first."""
        found: list[tuple[bool, Workload]] = []
        for kind, group in _COUNTED.items():
            for obj in self.objects.get(kind, {}).values():
                if not _is_part(kind, obj):
                    loop = self._loop(group, kind, obj, now)
                    found.append((not loop.drift, _row(kind, obj, loop)))
        return [row for _, row in sorted(found, key=lambda each: (each[0], each[1].name))]

    def _loop(self, group: str, kind: str, obj: ObjView, now: datetime) -> Loop:
        """Return the loop of an object. Its Pods are considered only if there is drift: there may be many."""
        loop = look(group, kind, obj, Related(now))
        if not loop.drift or kind == "Pod":
            return loop
        pods = pods_of(group, kind, obj, self.objects.get("Pod", {}).values())
        return look(group, kind, obj, Related(now, pods))

    def pods(self) -> dict[str, int]:
        """Return the number of Pods by their state, with kubectl's names."""
        states: dict[str, int] = {}
        for pod in self.objects.get("Pod", {}).values():
            state = pod_state(pod)
            states[state] = states.get(state, 0) + 1
        return states

    def nodes(self) -> tuple[int, int]:
        """Return the number of ready nodes and of all nodes."""
        found = self.objects.get("Node", {}).values()
        return sum(is_ready(node) for node in found), len(found)


def _row(kind: str, obj: ObjView, loop: Loop) -> Workload:
    """Return the row of an object; one without counts is one thing that is ready or not."""
    if loop.gauge is not None:
        return Workload(_name(kind, obj), loop.gauge.desired, loop.gauge.observed, loop.note)
    state = pod_state(obj)
    return Workload(_name(kind, obj), 1, int(not loop.drift), loop.note or ("" if state == "Running" else state))


def _owner(obj: ObjView) -> str:
    """Return the kind of the controlling owner; empty if there is none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner.get("kind", "")) for owner in owners if owner.get("controller")), "")


def _name(kind: str, obj: ObjView) -> str:
    return f"{kind.lower()}/{obj['metadata']['name']}"


def _key(obj: ObjView) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


_SHOW_THEIR_PODS = {"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "Node"}
_COUNTED = {
    "Deployment": "apps",
    "StatefulSet": "apps",
    "ReplicaSet": "apps",
    "DaemonSet": "apps",
    "Job": "batch",
    "ReplicationController": "",
    "Pod": "",
}
"""The API groups of the kinds that have rows."""


def _is_part(kind: str, obj: ObjView) -> bool:
    """Return whether the row of an owner includes the object."""
    owner = _owner(obj)
    return (kind == "ReplicaSet" and owner == "Deployment") or (kind == "Pod" and owner in _SHOW_THEIR_PODS)


def _revision(obj: ObjView) -> int:
    version = str(obj["metadata"].get("resourceVersion") or "")
    return int(version) if version.isdigit() else 0


def _event_line(event: ObjView, now: datetime) -> EventLine:
    about = event.get("involvedObject") or {}
    series = event.get("series") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp") if "metadata" in event else None,
    )
    return EventLine(
        _time(next((time for time in times if time), None), now),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        str(event.get("reason", "")),
        " ".join(str(event.get("message", "")).split()),
        event.get("type") == "Warning",
    )


def _last_change(kind: str, obj: ObjView, now: datetime) -> Change:
    created = _time(obj["metadata"].get("creationTimestamp"), now)
    newest = max(_entries(obj), key=lambda entry: entry.get("time") or "", default=None)
    when = max(_time(newest.get("time"), created), created) if newest is not None else created
    guess = str(newest.get("manager", "")) if newest is not None else ""
    return Change(when, _name(kind, obj), "changed", _revision(obj), "", guess)


def _guess(before: ObjView | None, after: ObjView) -> str:
    """Return the probable author of a change: the manager whose managedFields entry changed.

    A binding changes no entry. Times are whole seconds, so the newest entry need not be the last writer's.
    """
    known = _entries(before) if before is not None else []
    changed = [entry for entry in _entries(after) if entry not in known]
    if changed:
        return str(max(changed, key=lambda entry: entry.get("time") or "").get("manager", ""))
    bound = before is not None and not (before.get("spec") or {}).get("nodeName")
    return "kube-scheduler" if bound and (after.get("spec") or {}).get("nodeName") else ""


def _entries(obj: ObjView) -> list[ObjView]:
    return list(obj["metadata"].get("managedFields") or ())


def _how(type: str, before: ObjView | None, after: ObjView) -> str:
    if type == "DELETED":
        return "deleted"
    if before is None:
        return "created"
    if after["metadata"].get("deletionTimestamp") and not before["metadata"].get("deletionTimestamp"):
        return "deleting"
    parts = {change.path[0] for change in changes(before, after)}
    if parts - {"status", "metadata"}:
        return "spec"
    return "status" if "status" in parts else "metadata"


def _time(text: str | None, otherwise: datetime) -> datetime:
    try:
        return parse_time(text) if text else otherwise
    except ValueError:
        return otherwise
