"""Tables for people who want to know why somebody waits: levels, their queues, and the requests that are under way.

Below `/debug/api_priority_and_fairness/`, with upstream's columns. Work is counted in seats here, not in seconds; and
whoever gets a seat at once stands in no queue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from setpoint.apiserver.call import Call
from setpoint.apiserver.fairness.dealing import flow_hash
from setpoint.apiserver.fairness.fairness import Fairness, Seat
from setpoint.apiserver.fairness.levels import Level
from setpoint.apiserver.http.message import Response

_NARROWEST = 8
_NEVER = "0001-01-01T00:00:00Z"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LEVELS = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
    "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
)  # fmt: skip
_QUEUES = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
    "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
_REQUESTS = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime",
    "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip
_DETAILS = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")


class Dumps:
    def __init__(self, fairness: Fairness) -> None:
        self._fairness = fairness

    def answer(self, call: Call) -> Response:
        """The table that the path names."""
        if call.target.path.endswith("_requests"):
            text = self.requests(any(call.query.get("includeRequestDetails", ())[:1]))
        else:
            text = self.queues() if call.target.path.endswith("_queues") else self.levels()
        return Response(200, text.encode(), [("Content-Type", "text/plain; charset=utf-8")])

    def _levels(self) -> list[Level]:
        return [level for _, level in sorted(self._fairness.levels.items())]

    def levels(self) -> str:
        return _table(_LEVELS, map(_level_row, self._levels()))

    def queues(self) -> str:
        seated = defaultdict(list)
        for seat in self._fairness.under_way:
            if seat.waiting is not None and seat.began is not None:
                seated[seat.waiting.queue].append(seat.count)
        rows = []
        for level in self._levels():
            for at, queue in enumerate(level.queues.each):
                seats = seated.get(queue, ())
                pending = sum(not waiting.gone for waiting in queue.waiting)
                numbers = [at, pending, len(seats), sum(seats), _work(queue.served), queue.work, queue.work]
                rows.append([level.name, *map(str, numbers), _work(queue.work)])
        return _table(_QUEUES, rows)

    def requests(self, details: bool) -> str:
        """First those who wait, in the order of their queues, then those who have a seat, as they came."""
        places = {
            waiting: (at, position)
            for level in self._levels()
            for at, queue in enumerate(level.queues.each)
            for position, waiting in enumerate(one for one in queue.waiting if not one.gone)
        }
        indices = {queue: at for level in self._levels() for at, queue in enumerate(level.queues.each)}
        found = []
        for seat in sorted(self._fairness.under_way, key=lambda seat: seat.came):
            place, waiting, has_begun = (-1, -1), seat.waiting, seat.began is not None
            if waiting is not None:
                place = (indices.get(waiting.queue, -1), -1) if has_begun else places.get(waiting, place)
            found.append((seat.flow.level.name, has_begun, place, _request_row(seat, place, details)))
        found.sort(key=lambda one: one[:3])
        return _table((*_REQUESTS, *_DETAILS) if details else _REQUESTS, (row for *_, row in found))


def _level_row(level: Level) -> list[str]:
    queues = level.queues
    active = sum(any(not waiting.gone for waiting in queue.waiting) for queue in queues.each)
    late = sum(count for (_, reason), count in level.rejected.items() if reason == "time-out")
    # Upstream counts who has waited too long among those who went away, and nobody as timed out.
    cancelled = queues.cancelled + late
    rejected = sum(level.rejected.values()) + queues.cancelled
    idle = not (queues.waiting or level.executing)
    numbers = (queues.waiting, level.executing, sum(count for (count,) in level.dispatched.values()), rejected)
    return [level.name, str(active), str(idle).lower(), "false", *map(str, numbers), "0", str(cancelled)]


def _request_row(seat: Seat, place: tuple[int, int], details: bool) -> list[str]:
    flow, call, access = seat.flow, seat.call, seat.access
    arrived = _moment(call, 0.0)
    row = [flow.level.name, flow.schema, *map(str, place), _distinguisher(seat), arrived]
    row += [str(seat.count), "0", "0s", _moment(call, seat.began - seat.came) if seat.began is not None else _NEVER]
    if details:
        version = f"{access.group}/{access.version}" if access.group else access.version
        target = (access.namespace, access.name, version, access.resource, access.subresource)
        row += [access.user.name, access.verb, call.request.path, *target]
    return row


def _distinguisher(seat: Seat) -> str:
    """Whom the schema of a flow tells apart from others: somebody, or those in a namespace."""
    schema, hashed, access = seat.flow.schema, seat.flow.hash, seat.access
    candidates = ("", access.user.name, access.namespace)
    return next((each for each in candidates if flow_hash(schema, each) == hashed), "")


def _moment(call: Call, seconds_later: float) -> str:
    text = (call.now + timedelta(seconds=seconds_later)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


def _work(seats: int) -> str:
    return f"{seats}.00000000ss"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells end with a comma, and columns begin below one another."""
    lines = [headers, *([_CONTROL.sub("?", cell) for cell in row] for row in rows)]
    widths = [max(_NARROWEST, *(len(line[at]) + 2 for line in lines)) for at in range(len(headers) - 1)]
    return "".join(
        "".join(f"{cell},".ljust(width) for cell, width in zip(line[:-1], widths, strict=True)) + line[-1] + "\n"
        for line in lines
    )
