"""The facts that checks are evaluated over: objects, writes with their causes, files, typed lines and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from setpoint.meta.cause import WriteCause
from setpoint.meta.objects import ObjView
from setpoint.view.actors import actor_name, is_component
from setpoint.view.history import cause_from_json
from setpoint.view.timeline import is_routine
from setpoint.view.writes import HEARTBEATS

LESSON_AGENT = "setpoint-lesson"
"""The user agent of what a lesson itself writes: its start state, and its faults."""
YOU, LESSON, SYSTEM = "you", "lesson", "system"
MAX_HISTORY = 2_000
"""The number of writes that are kept; the oldest are dropped."""
_MAX_BECAUSE = 40


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a learner's cluster and what the learner did, at one moment."""

    now: datetime
    objects: Mapping[str, Sequence[ObjView]] = field(default_factory=dict)
    """The objects by kind, for the kinds that the checks need."""
    history: Sequence[Mapping[str, Any]] = ()
    """The writes since the lesson began, oldest first; see `History`."""
    typed: Sequence[str] = ()
    """The lines typed in the terminal since the lesson began."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The texts of the files that the checks need; one that does not exist is missing."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Whether the last answer to a question was right, by the id of the question."""


class History:
    """The writes of a cluster since a lesson began, as values that checks read:

        {"revision": 402, "verb": "delete", "part": "deleted", "kind": "Pod", "name": "web-1", "namespace": "default",
         "by": "you", "actor": "kubernetes-admin", "changes": ["..."], "because": [...]}

    `verb` is the verb of the request without its subresource. `part` is what the write concerns: `created`, `spec`,
    `status`, `metadata` or `deleted`. `by` is `you`, `lesson` or `system`. `actor` is the name of the controller,
    `kubelet NODE`, or the user. `changes` are the changed fields in words. `because` has the writes that triggered it,
    directly or not, without their own `because`. Leases, Events and heartbeats are left out."""

    def __init__(self) -> None:
        self.writes: list[dict[str, Any]] = []
        self._known: dict[int, dict[str, Any]] = {}
        """The writes by revision, without `because`."""
        self._triggers: dict[int, tuple[int, ...]] = {}

    def add(self, write: Mapping[str, Any]) -> set[str]:
        """Add a write as the server describes it (`view/writes.py`), and return the kinds of its objects. Raises
        LookupError, TypeError or ValueError."""
        revision, kinds = int(write["revision"]), set()
        cause = cause_from_json(write["cause"]) if "cause" in write else None
        for each in write["objects"]:
            if each["part"] != HEARTBEATS and not is_routine(each["group"], each["resource"]):
                self._append(revision, cause, each)
                kinds.add(str(each["kind"]))
        return kinds

    def _append(self, revision: int, cause: WriteCause | None, written: Mapping[str, Any]) -> None:
        write = {
            "revision": revision,
            "verb": cause.verb.partition("/")[0] if cause is not None else "",
            **{name: str(written[name]) for name in ("part", "kind", "name", "namespace")},
            "by": author(cause),
            "actor": actor(cause),
            "changes": [str(each) for each in written.get("changes", ())],
        }
        triggers = cause.claim.triggers if cause is not None else ()
        self.writes.append({**write, "because": self._because(triggers)})
        self._known.setdefault(revision, write)
        if triggers:
            self._triggers[revision] = triggers
        if len(self.writes) > MAX_HISTORY:
            oldest = self.writes.pop(0)["revision"]
            self._known.pop(oldest, None)
            self._triggers.pop(oldest, None)

    def _because(self, triggers: Sequence[int]) -> list[dict[str, Any]]:
        """Return the known writes to which these triggers lead, each once, the nearest first."""
        found: dict[int, dict[str, Any]] = {}
        pending = list(triggers)
        seen: set[int] = set()
        while pending and len(found) < _MAX_BECAUSE:
            revision = pending.pop(0)
            if revision in seen:
                continue
            seen.add(revision)
            write = self._known.get(revision)
            if write is not None:
                found[revision] = write
                pending.extend(self._triggers.get(revision, ()))
        return list(found.values())


def author(cause: WriteCause | None) -> str:
    """Return `you`, `lesson` or `system`."""
    if cause is None or is_component(cause) or cause.claim.reconcile:
        return SYSTEM
    return LESSON if cause.agent == LESSON_AGENT else YOU


def actor(cause: WriteCause | None) -> str:
    """Return the name of a controller, `kubelet NODE`, or the user."""
    if cause is None:
        return ""
    controller = cause.claim.reconcile.rpartition("/")[0]
    name = actor_name(cause.user)
    return controller if controller and not name.startswith("kubelet ") else name
