"""A Pod in the scheduling queue."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

ACTIVE, BACKOFF, ERROR_BACKOFF = "active", "backoff", "errorBackoff"
UNSCHEDULABLE, IN_FLIGHT = "unschedulable", "inFlight"


class Entry:
    __slots__ = (
        "added", "attempts", "bucket", "errors", "first_attempt", "flushed", "gated", "key", "missed", "pod",
        "queued_priority", "refused", "rejectors", "sequence", "since", "ticket", "where",
    )  # fmt: skip

    def __init__(self, pod: Obj, key: str, now: float, sequence: int) -> None:
        self.pod = pod
        self.key = key
        self.added = self.since = now
        """`added` is when the Pod was first queued; `since` is when it entered its current state, from which backoffs
        count."""
        self.flushed = now
        """The time at which it last left the pool because of the maximum time there."""
        self.first_attempt: float | None = None
        self.sequence = sequence
        self.attempts = 0
        self.refused = 0
        """The number of rejections by plugins."""
        self.errors = 0
        """The number of consecutive other failures."""
        self.rejectors: frozenset[str] = frozenset()
        self.gated = False
        self.missed = False
        """True if it became ready while it was held."""
        self.where = ""
        self.ticket = 0
        """Distinguishes its current heap entry from stale ones."""
        self.bucket: tuple[str, frozenset[str], bool] | None = None
        self.queued_priority = 0

    @property
    def scheduler(self) -> str:
        return str(self.pod["spec"].get("schedulerName") or "")

    @property
    def priority(self) -> int:
        return int(self.pod["spec"].get("priority") or 0)

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def order(self) -> tuple[int, float, int]:
        """The sort key of PrioritySort: priority, then time."""
        return (-self.priority, self.since, self.sequence)

    def enter(self, where: str, ticket: int) -> None:
        self.where = where
        self.ticket = ticket
        self.queued_priority = self.priority

    def leave(self) -> None:
        self.where = ""
        self.ticket = 0
