"""One write as a step of an answer: who changed what, and how it ranks among several triggers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_of
from setpoint.view.changes import FieldChange, changes, is_bookkeeping, short_texts
from setpoint.view.why.answer import Step
from setpoint.view.why.facts import History, Ref, Written

DELETION, SPEC, CREATION, READINESS, METADATA, STATUS, HEARTBEAT = range(7)
"""The kinds of changes, the most informative first."""
_ECHO = 10
"""Added to the rank of a trigger that the same controller wrote in a reconcile of the same key."""
_MAX_CHANGES = 3
TRACE_ANNOTATION = "tracing.k8s.io/traceparent"
"""The annotation in which clients name the trace of an object's last change; it is only read."""
_MAX_TRACEPARENT = 64


@dataclass(eq=False)
class Change:
    """A write of one object, with the object before and after it."""

    write: Written
    key: str
    ref: Ref
    before: ObjView | None
    now: ObjView | None
    known: bool
    """Whether the state before is known; if not, the changed fields are not."""

    @cached_property
    def fields(self) -> Sequence[FieldChange]:
        return changes(self.before, self.now) if self.known else ()

    @cached_property
    def rank(self) -> int:
        """The kind of the change; the least is the most informative."""
        return _rank(self)

    @property
    def obj(self) -> ObjView:
        return self.now or self.before or {}


async def change_of(history: History, write: Written, key: str) -> Change:
    """Read the object before and after a write."""
    now = await history.at(key, write.revision)
    known = write.revision > history.oldest
    before = await history.at(key, write.revision - 1) if known else None
    return Change(write, key, history.ref(key), before, now, known)


def _rank(change: Change) -> int:
    if change.now is None or begins_deletion(change):
        return DELETION
    if change.before is None:
        return CREATION if change.known else STATUS
    best = HEARTBEAT
    for each in change.fields:
        first, last = each.path[0], each.path[-1]
        if change.ref.plural == "leases":
            found = HEARTBEAT
        elif each.path == ("spec", "nodeName") and change.ref.plural == "pods":
            found = READINESS
        elif first not in ("status", "metadata"):
            found = SPEC
        elif first == "metadata":
            found = METADATA
        elif last == "phase" or (each.path[1:2] == ("conditions",) and last == "status") or last.startswith("ready"):
            found = READINESS
        elif last.endswith("Time"):
            found = HEARTBEAT
        else:
            found = STATUS
        best = min(best, found)
    return best


def begins_deletion(change: Change) -> bool:
    return bool(_deletion(change.now) and not _deletion(change.before)) and change.known


def _deletion(obj: ObjView | None) -> str:
    return ((obj or {}).get("metadata") or {}).get("deletionTimestamp") or ""


def is_echo(change: Change, controller: str, key: str) -> bool:
    """Return whether the controller wrote this itself, in a reconcile of the same key."""
    cause = change.write.cause
    if cause is None or not controller:
        return False
    return (cause.claim.reconcile.rpartition("/")[0], cause.claim.key) == (controller, key)


def order(change: Change, written: Change, controller: str, key: str) -> tuple[int, bool, int]:
    """Return the sort key of a trigger of `written`: the most informative first, then related objects, then the
    earliest. A write of the status alone mostly follows the last change of readiness."""
    kind, revision = change.rank, change.write.revision
    if kind == READINESS and _is_status(written):
        kind, revision = -1, -revision
    if is_echo(change, controller, key):
        kind += _ECHO
    return kind, not related(change, written), revision


def _is_status(change: Change) -> bool:
    fields = change.fields
    return bool(fields) and all(each.path[:1] == ("status",) for each in fields)


def related(one: Change, other: Change) -> bool:
    """Return whether the objects are the same, owner and dependent, or dependents of one owner."""
    if one.key == other.key:
        return True
    uids = [(each.obj.get("metadata") or {}).get("uid") for each in (one, other)]
    owners = [owner_uids(each.obj) for each in (one, other)]
    return uids[0] in owners[1] or uids[1] in owners[0] or bool(owners[0] & owners[1])


def owner_uids(obj: ObjView) -> set[str]:
    return {each.get("uid", "") for each in (obj.get("metadata") or {}).get("ownerReferences") or ()}


def action_of(change: Change) -> tuple[str, list[str]]:
    """Return what the write did with the object, in the past tense, and its changes in short form."""
    verb = change.write.cause.verb if change.write.cause is not None else ""
    if change.now is None:
        deleting = bool(_deletion(change.before)) and "delete" not in verb
        return ("completed the deletion of" if deleting else "deleted"), []
    if change.before is None and change.known:
        return "created", creation_texts(change.now)
    if begins_deletion(change):
        return "evicted" if "evict" in verb else "deleted", []
    fields = change.fields
    paths = {each.path[:2] for each in fields}
    if change.ref.plural == "pods" and ("spec", "nodeName") in paths:
        node = (change.now.get("spec") or {}).get("nodeName", "")
        return "bound", [f"to node {node}"]
    texts = short_texts(fields)
    if len(texts) > _MAX_CHANGES + 1:
        texts[_MAX_CHANGES:] = [f"and {len(texts) - _MAX_CHANGES} more fields"]
    if verb.endswith("/scale"):
        return "scaled", texts
    if fields and all(each.path[0] == "status" or is_bookkeeping(each) for each in fields):
        return "updated the status of", [each.removeprefix("status.") for each in texts]
    return ("applied" if verb == "apply" else "changed"), texts


def creation_texts(obj: ObjView) -> list[str]:
    """Return what is worth knowing of a new object: `3 replicas`, `image nginx:1.27`."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return []
    found = []
    if isinstance(spec.get("replicas"), int):
        found.append("1 replica" if spec["replicas"] == 1 else f"{spec['replicas']} replicas")
    template = (spec.get("template") or {}).get("spec") if isinstance(spec.get("template"), dict) else None
    containers = (template or spec).get("containers")
    if isinstance(containers, list):
        images = [str(each.get("image", "")) for each in containers if isinstance(each, dict)]
        found += [f"image {each}" for each in images[:2] if each]
    return found


async def step_of(history: History, change: Change) -> Step:
    """Return the step of a write, without what triggered it."""
    write, cause = change.write, change.write.cause
    at = cause.at if cause is not None else 0
    if not await history.may_read(change.key):
        return Step(write.revision, at, "", "", "", "changed", kind="hidden")
    action, texts = action_of(change)
    step = Step(write.revision, at, actor_of(cause), change.ref.text, change.ref.namespace, action, texts)
    if cause is not None:
        step.reason, step.run, step.trace = cause.claim.reason, cause.claim.reconcile, cause.trace
        step.address = cause.address
    annotations = (change.obj.get("metadata") or {}).get("annotations") or {}
    step.link = str(annotations.get(TRACE_ANNOTATION, ""))[:_MAX_TRACEPARENT]
    return step
