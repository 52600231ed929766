"""Finds the client that removes a finalizer for which a deletion waits, as far as it is recorded."""

from __future__ import annotations

from typing import NamedTuple

from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_of
from setpoint.view.why.controllers import RECONCILED_KINDS
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.moments import age
from setpoint.view.why.question import NoHistory, Question, object_changes
from setpoint.view.why.steps import Change, change_of

BUILTIN_REMOVERS = {
    "kubernetes.io/pv-protection": "pv-protection-controller",
    "kubernetes.io/pvc-protection": "pvc-protection-controller",
    "kubernetes.io/vac-protection": "volumeattributesclass-protection-controller",
    "networking.k8s.io/service-cidr-finalizer": "service-cidr-controller",
    "batch.kubernetes.io/job-tracking": "job-controller",
    "resource.kubernetes.io/delete-protection": "resourceclaim-controller",
}
"""The built-in controllers that remove finalizers, by finalizer."""
_MAX_VERSIONS = 200
"""Number of versions of the object that are searched."""
_MAX_WRITES, _MAX_OTHERS = 500, 40
"""Number of the newest writes among which removals from other objects are looked for, and of those that are read."""


class Owner(NamedTuple):
    """The client that a finalizer belongs to, as far as it is known."""

    clause: str
    """A clause that says so: `, which pvc-protection-controller removes`; empty if that is not known."""
    evidence: list[str]
    """Sentences about its last actions on the object."""


async def owner_of(facts: Facts, ref: Ref, finalizer: str) -> Owner:
    """Return what the record says about who removes a finalizer: a built-in controller, a client that removed it from
    this or another object of the resource, or the one that added it."""
    key = f"{ref.group or 'core'}/{ref.plural}/{ref.path}"
    own: list[Change] = []
    try:
        async for change in object_changes(facts, Question(key)):
            own.append(change)
            if len(own) == _MAX_VERSIONS:
                break
    except NoHistory:
        pass
    if builtin := BUILTIN_REMOVERS.get(finalizer):
        return Owner(f", which {builtin} removes", [*_last_reconcile(facts, ref, builtin), *_last(facts, own, builtin)])
    removed = next((each for each in own if _is_removal(each, finalizer)), None)
    if removed is not None:
        who, at = actor_of(removed.write.cause), _time(removed)
        return Owner(f", which {who} removed before, {age(facts, at)} ago", _last(facts, own, who))
    if (other := await _removed_elsewhere(facts, key, finalizer)) is not None:
        who, at = actor_of(other.write.cause), _time(other)
        return Owner(f", which {who} removed from {other.ref.text} {age(facts, at)} ago", _last(facts, own, who))
    added = next((each for each in own if _is_addition(each, finalizer)), None)
    if added is None:
        return Owner("", [])
    who, at = actor_of(added.write.cause), _time(added)
    if added.before is None:
        return Owner("", [f"it has had the finalizer since its creation by {who}, {age(facts, at)} ago"])
    return Owner(f", which {who} added {age(facts, at)} ago", _last(facts, own, who))


def _last_reconcile(facts: Facts, ref: Ref, controller: str) -> list[str]:
    if RECONCILED_KINDS.get(controller) != ref.kind:
        return []
    times = [each.last_run for each in facts.loops(ref, controller) if each.last_run]
    return [f"{controller} last reconciled it {age(facts, max(times))} ago"] if times else []


def _last(facts: Facts, own: list[Change], who: str) -> list[str]:
    """Return when a client last wrote the object; nothing if no such write is known."""
    written = next((each for each in own if actor_of(each.write.cause) == who), None)
    return [f"{who} last wrote it {age(facts, _time(written))} ago"] if written is not None else []


async def _removed_elsewhere(facts: Facts, key: str, finalizer: str) -> Change | None:
    """Return a recent write that removed the finalizer from another object of the resource."""
    prefix = "/".join(key.split("/", 2)[:2]) + "/"
    others = 0
    for write in await facts.recent(facts.newest + 1, 0, _MAX_WRITES):
        for each in write.keys:
            if each == key or not each.startswith(prefix) or not await facts.may_read(each):
                continue
            others += 1
            if others > _MAX_OTHERS:
                return None
            change = await change_of(facts, write, each)
            if _is_removal(change, finalizer):
                return change
    return None


def _is_removal(change: Change, finalizer: str) -> bool:
    """Return whether a write removed a finalizer; if it was the last one, this ended the object."""
    if change.before is None or not change.known or not _has(change.before, finalizer):
        return False
    cause = change.write.cause
    if change.now is None:
        return cause is not None and "delete" not in cause.verb
    return not _has(change.now, finalizer)


def _is_addition(change: Change, finalizer: str) -> bool:
    return (
        change.known and change.now is not None and _has(change.now, finalizer) and not _has(change.before, finalizer)
    )


def _has(obj: ObjView | None, finalizer: str) -> bool:
    return finalizer in (((obj or {}).get("metadata") or {}).get("finalizers") or ())


def _time(change: Change) -> int:
    return change.write.cause.at if change.write.cause is not None else 0
