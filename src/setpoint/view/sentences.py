"""One sentence for each write: who did what, and because of what.

`replicaset-controller created Pod web-x7 because you deleted Pod web-b2: 2 Pods exist, 3 are wanted.`

A reconcile acts on the state that it finds, so "because" means: this write triggered the reconcile. The text after the
colon is the controller's own reason. The writes are in the form of `view/writes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.view.why.walk import besides_text
from setpoint.view.writes import CREATED, DELETED, HEARTBEATS, METADATA, SPEC, STATUS

Write = Mapping[str, Any]
_RANKS = {DELETED: 0, SPEC: 1, CREATED: 2, METADATA: 3, STATUS: 4, HEARTBEATS: 5}
_ECHO = 10
_MAX_DEPTH = 12
_MAX_CHANGES = 2


class RecentWrites:
    """The latest writes, in which the triggers of a new one are found. The number of writes is bounded."""

    def __init__(self, user: str, most: int = 2_000) -> None:
        """Create an empty collection; writes of the user are attributed to "you"."""
        self._user = user
        self._most = most
        self._writes: dict[int, Write] = {}

    def add(self, write: Write) -> None:
        self._writes[write["revision"]] = write
        if len(self._writes) > self._most:
            del self._writes[next(iter(self._writes))]

    def is_own(self, write: Write) -> bool:
        """Return whether the user made the write, with any program."""
        user = str((write.get("cause") or {}).get("user", "")).partition("<")[0]
        return bool(write.get("person")) and user == self._user

    def trigger(self, write: Write) -> Write | None:
        """Return the most informative of the known triggers of a write."""
        cause = write.get("cause") or {}
        found = [each for revision in cause.get("triggers") or () if (each := self._writes.get(revision)) is not None]
        return min(found, key=lambda each: (self._rank(each, cause), each["revision"]), default=None)

    def _rank(self, trigger: Write, cause: Mapping[str, Any]) -> int:
        rank = min((_RANKS.get(each["part"], 9) for each in trigger["objects"]), default=9)
        own = trigger.get("cause") or {}
        echo = bool(cause.get("key")) and (_controller(own), own.get("key")) == (_controller(cause), cause.get("key"))
        return rank + _ECHO if echo else rank

    def origin(self, write: Write) -> Write | None:
        """Return the write at the begin of the chain of triggers, as far as it is known; None if there is no other."""
        found: Write | None = None
        current = write
        for _ in range(_MAX_DEPTH):
            before = self.trigger(current)
            if before is None or before["revision"] >= current["revision"]:
                break
            found = current = before
        return found

    def sentence(self, write: Write) -> str:
        """Return what the write did, and because of what, in one sentence."""
        text = self._clause(write, None)
        trigger = self.trigger(write)
        cause = write.get("cause") or {}
        if trigger is not None:
            text += f" because {self._clause(trigger, write)}"
            origin = self.origin(trigger)
            if origin is not None and origin.get("person"):
                text += f", after {self._clause(origin, trigger)}"
        elif besides := besides_text(str(cause.get("besides", ""))):
            text += f" after {besides}"
        if reason := str(cause.get("reason", "")).strip().rstrip("."):
            text += f": {reason}"
        return f"{text[:1].upper()}{text[1:]}." if text.startswith("you ") else f"{text}."

    def _clause(self, write: Write, following: Write | None) -> str:
        """Return who did what. An object that the following clause names already is "it"."""
        actor = "you" if self.is_own(write) else str(write.get("actor", "an unknown client"))
        objects = write["objects"]
        main = min(objects, key=lambda each: _RANKS.get(each["part"], 9))
        named = following is not None and any(_same(main, each) for each in following["objects"])
        name = "it" if named else f"{main['kind']} {main['name']}"
        more = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
        changes = [str(each) for each in main.get("changes") or ()]
        if main["part"] in (CREATED, DELETED):
            detail = ""
        elif main["action"] == "bound":
            detail = f" {changes[0]}" if changes else ""
        else:
            most = _MAX_CHANGES if following is None else 1
            detail = f" ({', '.join(changes[:most])})" if changes else ""
        return f"{actor} {main['action']} {name}{more}{detail}"


def _controller(cause: Mapping[str, Any]) -> str:
    return str(cause.get("reconcile", "")).rpartition("/")[0]


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(part) == other.get(part) for part in ("group", "resource", "namespace", "name"))
