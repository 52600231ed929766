"""The changes of an object over time, as the server sends them and people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from setpoint.meta.cause import Claim, WriteCause
from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_of
from setpoint.view.changes import ABSENT, FieldChange, changes, is_bookkeeping, summary

CREATED, UPDATED, DELETED, KNOWN = "created", "updated", "deleted", "known"
_MAX_FIELDS = 200
"""Number of changed fields of one change that are sent."""


class ObjectChange(NamedTuple):
    """One change of an object."""

    revision: int
    kind: str
    """`created`, `updated` or `deleted`; `known` for the oldest version, if its own change is no longer known."""
    cause: WriteCause | None
    """None if it is not recorded."""
    fields: tuple[FieldChange, ...] = ()
    """The changed fields of an update, at most 200."""
    text: str = ""
    """The change in a few words."""

    @property
    def status_only(self) -> bool:
        """Whether nothing but the observed state has changed, and annotations of components for themselves."""
        return self.kind == UPDATED and all(
            each.path[:1] == ("status",) or is_bookkeeping(each) for each in self.fields
        )

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"revision": self.revision, "kind": self.kind, "text": self.text}
        if self.cause is not None:
            found["cause"] = cause_to_json(self.cause)
            found["actor"] = actor_of(self.cause)
        if self.status_only:
            found["statusOnly"] = True
        if self.fields:
            found["fields"] = [_field_to_json(each) for each in self.fields]
        return found

    @classmethod
    def from_json(cls, found: Any) -> ObjectChange:
        """Raises LookupError, TypeError or ValueError."""
        cause = cause_from_json(found["cause"]) if "cause" in found else None
        fields = tuple(
            FieldChange(tuple(map(str, each["path"])), each.get("old", ABSENT), each.get("new", ABSENT))
            for each in found.get("fields") or ()
        )
        return cls(int(found["revision"]), str(found["kind"]), cause, fields, str(found.get("text", "")))


def change_of(revision: int, before: ObjView | None, now: ObjView | None, cause: WriteCause | None) -> ObjectChange:
    """Return the change from one version of an object to the next; None is no object."""
    if now is None:
        return ObjectChange(revision, DELETED, cause, (), "deleted")
    if before is None:
        return ObjectChange(revision, CREATED, cause, (), _described("created", now))
    found = changes(before, now)
    text = summary(found) or "nothing but metadata of the system"
    return ObjectChange(revision, UPDATED, cause, tuple(found[:_MAX_FIELDS]), text)


def known_version(revision: int, now: ObjView) -> ObjectChange:
    """Return the entry for the oldest version, whose own change is no longer known."""
    return ObjectChange(revision, KNOWN, None, (), _described("as it was when the history began", now))


def _described(what: str, obj: ObjView) -> str:
    """Return a text with the most important facts of the desired state."""
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return what
    replicas = spec.get("replicas")
    template = spec.get("template")
    pod = (template.get("spec") or {}) if isinstance(template, dict) else spec
    containers = pod.get("containers") if isinstance(pod, dict) else None
    images = [str(each.get("image", "")) for each in containers or () if isinstance(each, dict)]
    facts = [f"{replicas} replica{'' if replicas == 1 else 's'}"] if isinstance(replicas, int) else []
    facts += [", ".join(images)] if images else []
    return f"{what}: {' of '.join(facts)}" if facts else what


def _field_to_json(change: FieldChange) -> dict[str, Any]:
    found: dict[str, Any] = {"path": list(change.path)}
    for name, value in (("old", change.old), ("new", change.new)):
        if value is not ABSENT:
            found[name] = value
    return found


def cause_to_json(cause: WriteCause) -> dict[str, Any]:
    """Return a cause with the names of its fields, without the empty ones."""
    claim = {name: value for name, value in cause.claim._asdict().items() if value}
    others = {"at": cause.at, "verb": cause.verb, "user": cause.user, "agent": cause.agent}
    known = {**others, **claim, "trace": cause.trace, "lease": cause.term, "address": cause.address}
    return {name: value for name, value in known.items() if value}


def cause_from_json(found: Any) -> WriteCause:
    triggers: Sequence[Any] = found.get("triggers") or ()
    claim = Claim(
        str(found.get("reconcile", "")),
        str(found.get("key", "")),
        tuple(map(int, triggers)),
        int(found.get("count", 0)),
        str(found.get("besides", "")),
        str(found.get("reason", "")),
    )
    verb, user, agent = (str(found.get(name, "")) for name in ("verb", "user", "agent"))
    trace, term, address = (str(found.get(name, "")) for name in ("trace", "lease", "address"))
    return WriteCause(int(found.get("at", 0)), verb, user, agent, claim, trace, term, address)
