"""`/setpoint/v1/timeline`: how many writes each author made, in buckets of a range of revisions."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.apiserver.history.endpoints import HistoryEndpoints, check_method, number_option
from setpoint.apiserver.history.reader import HistoryReader, Write
from setpoint.apiserver.history.when import Moment, Moments
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest
from setpoint.meta.times import unix_milliseconds
from setpoint.view.timeline import Timeline, is_routine
from setpoint.wire.message import Answer, Response

TIMELINE_PATH = "/setpoint/v1/timeline"
_DEFAULT_BUCKETS, _MAX_BUCKETS = 400, 2_000
_PAGE = 250
"""Number of writes that are read at a time."""
_MAX_SCANNED = 5_000
"""Number of writes that one request examines."""
_MAX_REVISION = 2**63 - 1


class TimelineEndpoint:
    def __init__(self, history: HistoryEndpoints, reader: HistoryReader, moments: Moments) -> None:
        self._history = history
        self._reader = reader
        self._moments = moments

    async def answer(self, ctx: RequestContext) -> Answer:
        """Answer `?from&to&buckets&after`: the writes of a range, without objects that the user may not read.

        A request examines a bounded number of writes. If `next` is not 0, the rest follows with the same parameters and
        `after=next`; counts of one bucket in several answers add up. `to` must then be a revision."""
        check_method(ctx)
        begin = await self._moment(ctx, "from", self._reader.oldest)
        end = await self._moment(ctx, "to", self._reader.newest)
        if begin.revision > end.revision:
            raise BadRequest("from must not be after to")
        buckets = number_option(ctx, "buckets", _DEFAULT_BUCKETS, _MAX_BUCKETS)
        after = max(number_option(ctx, "after", 0, _MAX_REVISION), begin.revision - 1)
        timeline = Timeline(begin.revision, end.revision, buckets)
        following = await self._count(ctx.user, timeline, after, end.revision)
        oldest, newest = [await self._moments.at(each) for each in (self._reader.oldest, self._reader.newest)]
        found = {
            **{name: _moment_json(each) for name, each in (("oldest", oldest), ("newest", newest))},
            **{name: _moment_json(each) for name, each in (("from", begin), ("to", end))},
            **timeline.to_json(),
            "next": following,
        }
        return Response(200, orjson.dumps(found), [("Content-Type", JSON)])

    async def _moment(self, ctx: RequestContext, name: str, default: int) -> Moment:
        text = ctx.option(name)
        return await self._moments.find(text, ctx.now) if text else await self._moments.at(default)

    async def _count(self, user: UserInfo, timeline: Timeline, after: int, end: int) -> int:
        """Add the writes after a revision. Return the revision after which the rest begins; 0 if there is none."""
        allowed: dict[str, bool | None] = {}
        scanned = 0
        while after < end and scanned < _MAX_SCANNED:
            page = await self._reader.writes(after, _PAGE)
            for write in page:
                if write.revision > end:
                    return 0
                after = write.revision
                scanned += 1
                routine = await self._is_routine(user, write, allowed)
                if routine is not None:
                    timeline.add(write.revision, write.cause, routine)
            if len(page) < _PAGE:
                return 0
        return after if after < end else 0

    async def _is_routine(self, user: UserInfo, write: Write, known: dict[str, bool | None]) -> bool | None:
        """Return whether all that the user may see of a write is routine; None if that is nothing."""
        routine: bool | None = None
        for key in write.keys:
            if key not in known:
                found = await self._history.visible_object(user, key)
                known[key] = is_routine(found["group"], found["resource"]) if found is not None else None
            if known[key] is not None:
                routine = known[key] if routine is None else routine and known[key]
        return routine


def _moment_json(moment: Moment) -> dict[str, Any]:
    return {"revision": moment.revision, "at": unix_milliseconds(moment.at) if moment.at is not None else 0}
