"""The writes of a range of revisions as a timeline shows them: lanes of authors, buckets of counts, and idle gaps.

All kubelets share one lane. Leases and Events are *routine*: components renew and record them whether or not anything
happens, so they have no place in a lane and do not end a gap.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, Final

from setpoint.meta.cause import WriteCause
from setpoint.view.actors import actor_of

KUBELETS: Final = "kubelets"
OTHERS: Final = "others"
"""The lane of the authors that came after `MAX_LANES` were known."""
MAX_LANES: Final = 32
MAX_GAPS: Final = 200
_MIN_GAP: Final = 5_000
"""Milliseconds without a write, from which on they are a gap."""
_NODE_USERS: Final = "system:node:"
_ROUTINE: Final = frozenset({("coordination.k8s.io", "leases"), ("", "events"), ("events.k8s.io", "events")})


def lane_of(cause: WriteCause | None) -> str:
    """Return the lane of a write: the display name of its author, one name for all kubelets."""
    if cause is not None and cause.user.startswith(_NODE_USERS):
        return KUBELETS
    return actor_of(cause)


def is_routine(group: str, resource: str) -> bool:
    """Return whether objects of this resource are written all the time, also when nothing happens."""
    return (group, resource) in _ROUTINE


@dataclass(slots=True)
class Bucket:
    """The writes of some successive revisions."""

    first: int
    """Revision of the first write."""
    last: int
    begin: int
    """Time of the first write in milliseconds since the epoch; 0 if it is not known."""
    end: int
    writes: dict[str, int] = field(default_factory=dict)
    """The number of writes by lane."""
    routine: int = 0

    def to_json(self) -> dict[str, Any]:
        times = {"begin": self.begin, "end": self.end} if self.begin else {}
        found: dict[str, Any] = {"first": self.first, "last": self.last, **times, "writes": self.writes}
        return {**found, "routine": self.routine} if self.routine else found


class Timeline:
    """Counts writes, which are added in order, in at most `buckets` buckets of equal numbers of revisions.

    The buckets depend only on `first`, `last` and their number: two timelines of parts of one range can be merged."""

    def __init__(self, first: int, last: int, buckets: int) -> None:
        self._first = first
        self._width = max(1, -(-(last - first + 1) // max(1, buckets)))
        self._buckets: dict[int, Bucket] = {}
        self._lanes: set[str] = set()
        self._gaps: list[tuple[int, int, int, int]] = []
        """A heap of gaps: length, revision before, begin, end."""
        self._previous = (0, 0)
        """Revision and time of the last write that is not routine."""

    def add(self, revision: int, cause: WriteCause | None, routine: bool) -> None:
        """Count a write. Its revision must be greater than that of the one before."""
        number = (revision - self._first) // self._width
        at = cause.at if cause is not None else 0
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = Bucket(revision, revision, at, at)
        bucket.last = revision
        bucket.begin, bucket.end = bucket.begin or at, at or bucket.end
        if routine:
            bucket.routine += 1
            return
        lane = lane_of(cause)
        if lane not in self._lanes:
            if len(self._lanes) >= MAX_LANES:
                lane = OTHERS
            self._lanes.add(lane)
        bucket.writes[lane] = bucket.writes.get(lane, 0) + 1
        if at:
            before, since = self._previous
            if since and at - since >= _MIN_GAP:
                heapq.heappush(self._gaps, (at - since, before, since, at))
                if len(self._gaps) > MAX_GAPS:
                    heapq.heappop(self._gaps)
            self._previous = (revision, at)

    def to_json(self) -> dict[str, Any]:
        gaps = sorted(self._gaps, key=lambda gap: gap[1])
        return {
            "buckets": [each.to_json() for each in self._buckets.values()],
            "gaps": [{"after": after, "begin": begin, "end": end} for _, after, begin, end in gaps],
        }
