"""Debug tables of priority and fairness: levels, queues, and the requests in progress.

They are served below `/debug/api_priority_and_fairness/`, with upstream's columns. Work is counted in seats, not in
seconds, and a request that gets a seat at once is in no queue.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from setpoint.apiserver.fairness.fairness import Fairness, FlowRequest
from setpoint.apiserver.fairness.levels import Level
from setpoint.apiserver.fairness.queues import flow_hash
from setpoint.apiserver.request_context import RequestContext
from setpoint.wire.message import Response

_MIN_COLUMN_WIDTH = 8
_NEVER = "0001-01-01T00:00:00Z"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LEVELS = (
    "PriorityLevelName",
    "ActiveQueues",
    "IsIdle",
    "IsQuiescing",
    "WaitingRequests",
    "ExecutingRequests",
    "DispatchedRequests",
    "RejectedRequests",
    "TimedoutRequests",
    "CancelledRequests",
)
_QUEUES = (
    "PriorityLevelName",
    "Index",
    "PendingRequests",
    "ExecutingRequests",
    "SeatsInUse",
    "NextDispatchR",
    "InitialSeatsSum",
    "MaxSeatsSum",
    "TotalWorkSum",
)
_REQUESTS = (
    "PriorityLevelName",
    "FlowSchemaName",
    "QueueIndex",
    "RequestIndexInQueue",
    "FlowDistingsher",
    "ArriveTime",
    "InitialSeats",
    "FinalSeats",
    "AdditionalLatency",
    "StartTime",
)
_DETAILS = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")


class DebugTables:
    """Writes the debug tables."""

    def __init__(self, fairness: Fairness) -> None:
        self._fairness = fairness

    def answer(self, ctx: RequestContext) -> Response:
        """Return the table that the path names."""
        if ctx.target.path.endswith("_requests"):
            text = self.requests(any(ctx.query.get("includeRequestDetails", ())[:1]))
        else:
            text = self.queues() if ctx.target.path.endswith("_queues") else self.levels()
        return Response(200, text.encode(), [("Content-Type", "text/plain; charset=utf-8")])

    def _levels(self) -> list[Level]:
        return [level for _, level in sorted(self._fairness.levels.items())]

    def levels(self) -> str:
        return _table(_LEVELS, map(_level_row, self._levels()))

    def queues(self) -> str:
        executing = defaultdict(list)
        for request in self._fairness.requests:
            if request.queued is not None and request.started is not None:
                executing[request.queued.queue].append(request.seats)
        rows = []
        for level in self._levels():
            for at, queue in enumerate(level.queues.queues):
                seats = executing.get(queue, ())
                pending = sum(not request.removed for request in queue.requests)
                numbers = [at, pending, len(seats), sum(seats), _work(queue.virtual_time), queue.work, queue.work]
                rows.append([level.name, *map(str, numbers), _work(queue.work)])
        return _table(_QUEUES, rows)

    def requests(self, details: bool) -> str:
        """List the queued requests in the order of their queues, then the executing ones by arrival."""
        places = {
            request: (at, position)
            for level in self._levels()
            for at, queue in enumerate(level.queues.queues)
            for position, request in enumerate(one for one in queue.requests if not one.removed)
        }
        indices = {queue: at for level in self._levels() for at, queue in enumerate(level.queues.queues)}
        found = []
        for request in sorted(self._fairness.requests, key=lambda request: request.arrived):
            place, queued, has_started = (-1, -1), request.queued, request.started is not None
            if queued is not None:
                place = (indices.get(queued.queue, -1), -1) if has_started else places.get(queued, place)
            found.append((request.flow.level.name, has_started, place, _request_row(request, place, details)))
        found.sort(key=lambda one: one[:3])
        return _table((*_REQUESTS, *_DETAILS) if details else _REQUESTS, (row for *_, row in found))


def _level_row(level: Level) -> list[str]:
    queues = level.queues
    active = sum(any(not request.removed for request in queue.requests) for queue in queues.queues)
    timed_out = sum(count for (_, reason), count in level.rejected.items() if reason == "time-out")
    # Upstream counts timed-out requests as cancelled, and none as timed out.
    cancelled = queues.cancelled + timed_out
    rejected = sum(level.rejected.values()) + queues.cancelled
    idle = not (queues.waiting or level.executing)
    numbers = (queues.waiting, level.executing, sum(count for (count,) in level.dispatched.values()), rejected)
    return [level.name, str(active), str(idle).lower(), "false", *map(str, numbers), "0", str(cancelled)]


def _request_row(request: FlowRequest, place: tuple[int, int], details: bool) -> list[str]:
    flow, ctx, access = request.flow, request.ctx, request.access
    arrived = _timestamp(ctx, 0.0)
    row = [flow.level.name, flow.schema, *map(str, place), _distinguisher(request), arrived]
    row += [
        str(request.seats),
        "0",
        "0s",
        _timestamp(ctx, request.started - request.arrived) if request.started is not None else _NEVER,
    ]
    if details:
        version = f"{access.group}/{access.version}" if access.group else access.version
        target = (access.namespace, access.name, version, access.resource, access.subresource)
        row += [access.user.name, access.verb, ctx.request.path, *target]
    return row


def _distinguisher(request: FlowRequest) -> str:
    """Return the flow distinguisher: the user, the namespace, or ""."""
    schema, hashed, access = request.flow.schema, request.flow.hash, request.access
    candidates = ("", access.user.name, access.namespace)
    return next((each for each in candidates if flow_hash(schema, each) == hashed), "")


def _timestamp(ctx: RequestContext, seconds_later: float) -> str:
    text = (ctx.now + timedelta(seconds=seconds_later)).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


def _work(seats: int) -> str:
    return f"{seats}.00000000ss"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format rows as aligned columns, each cell followed by a comma."""
    lines = [headers, *([_CONTROL.sub("?", cell) for cell in row] for row in rows)]
    widths = [max(_MIN_COLUMN_WIDTH, *(len(line[at]) + 2 for line in lines)) for at in range(len(headers) - 1)]
    return "".join(
        "".join(f"{cell},".ljust(width) for cell, width in zip(line[:-1], widths, strict=True)) + line[-1] + "\n"
        for line in lines
    )
