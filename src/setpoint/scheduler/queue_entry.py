"""One Pod in the scheduling queue."""

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
        """`since` when it is where it is for the reason that it is; back-offs count from there."""
        self.flushed = now
        """When it last left the pool because it had been there too long."""
        self.first_attempt: float | None = None
        self.sequence = sequence
        self.attempts = 0
        self.refused = 0
        """How often plugins refused it."""
        self.errors = 0
        """How often in a row something else failed."""
        self.rejectors: frozenset[str] = frozenset()
        self.gated = False
        self.missed = False
        """It was to be tried while it was held."""
        self.where = ""
        self.ticket = 0
        """Tells its present place in a heap from earlier ones, which are still there and mean nothing."""
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
        """PrioritySort: priority, then time."""
        return (-self.priority, self.since, self.sequence)

    def enter(self, where: str, ticket: int) -> None:
        self.where = where
        self.ticket = ticket
        self.queued_priority = self.priority

    def leave(self) -> None:
        self.where = ""
        self.ticket = 0
