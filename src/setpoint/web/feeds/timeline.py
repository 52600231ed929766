"""The feed `timeline`: the writes of a range of revisions, one by one or counted, and how long ago history reaches.

Arguments: `from` and `to`, revisions, 0 or absent for the oldest and the newest; `buckets`, at most `MAX_BUCKETS`. The
feed ends when the range is complete: the latest writes are in the feed `writes`. Leases and Events are left out.

Of a range with few writes, each is an entry of the log:

    {"revision": 291, "at": 1763299132123, "lane": "replicaset-controller", "verb": "create",
     "objects": [{"group": "", "resource": "pods", "namespace": "default", "name": "web-x7"}],
     "reconcile": "replicaset-controller/b3f1.6", "key": "default/web"}

Of others, each bucket is an item with its number as the key, as `/setpoint/v1/timeline` answers it. The item `range` is
always there, and `gaps` with buckets:

    {"oldest": {"revision": 1, "at": 1763299132123}, "newest": {...}, "from": {...}, "to": {...}, "counted": false}
    {"gaps": [{"after": 17, "begin": 1763299132123, "end": 1763299192123}]}
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from setpoint.client import Client
from setpoint.client.resources import query_of
from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.view.history import cause_from_json
from setpoint.view.timeline import is_routine, lane_of
from setpoint.web.feed import FEED_LOG_LENGTH, Args, FeedOutput, Item, PageContext
from setpoint.web.write_stream import MISSING

MAX_BUCKETS: Final = 2_000
_TIMELINE, _WRITES = "/setpoint/v1/timeline", "/setpoint/v1/writes"
_PAGE: Final = 500
_MAX_REVISION: Final = 2**53 - 1


async def run(ctx: PageContext, args: Args, output: FeedOutput) -> None:
    if "/at/" in ctx.cluster:
        raise BadRequest("a past moment has no timeline of its own")
    begin, end = _number(args, "from", 0, _MAX_REVISION), _number(args, "to", 0, _MAX_REVISION)
    buckets = _number(args, "buckets", 400, MAX_BUCKETS)
    query = {"from": begin or None, "to": end or None, "buckets": buckets}
    try:
        page = await ctx.client.sender.json("GET", _TIMELINE, query_of(query))
    except ApiError as error:
        if error.code in (404, 405):
            raise NotFound(MISSING) from None
        raise
    begin, end = page["from"]["revision"], page["to"]["revision"]
    counted = bool(page["next"]) or sum(map(_size, page["buckets"])) > FEED_LOG_LENGTH
    output.set("range", {**{name: page[name] for name in ("oldest", "newest", "from", "to")}, "counted": counted})
    if counted:
        await _count(ctx.client, page, {**query, "from": begin, "to": end}, output)
    else:
        async for write in _writes(ctx.client, begin, end):
            output.log(write)
    output.synced()


def _size(bucket: dict[str, Any]) -> int:
    return sum(bucket["writes"].values())


async def _count(client: Client, page: dict[str, Any], query: dict[str, Any], output: FeedOutput) -> None:
    """Set the buckets of all pages. A bucket that two pages have a part of is added up."""
    width = max(1, -(-(query["to"] - query["from"] + 1) // query["buckets"]))
    last: dict[str, Any] | None = None
    gaps: list[dict[str, Any]] = []
    while True:
        for bucket in page["buckets"]:
            number = (bucket["first"] - query["from"]) // width
            if last is not None and (last["first"] - query["from"]) // width == number:
                bucket = _joined(last, bucket)
            output.set(str(number), bucket)
            last = bucket
        gaps += page["gaps"]
        if not page["next"]:
            break
        page = await client.sender.json("GET", _TIMELINE, query_of({**query, "after": page["next"]}))
    output.set("gaps", {"gaps": gaps})


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    writes = dict(one["writes"])
    for lane, count in other["writes"].items():
        writes[lane] = writes.get(lane, 0) + count
    times = {"begin": one.get("begin", 0) or other.get("begin", 0), "end": other.get("end", 0) or one.get("end", 0)}
    routine = one.get("routine", 0) + other.get("routine", 0)
    return {"first": one["first"], "last": other["last"], **times, "writes": writes, "routine": routine}


async def _writes(client: Client, begin: int, end: int) -> AsyncIterator[Item]:
    """Yield the writes of a range that are not routine."""
    after = begin - 1
    while True:
        # `from` is a revision that exists; 0 would mean the oldest.
        query = query_of({"from": begin, "after": after or None, "to": end, "limit": _PAGE})
        page = await client.sender.json("GET", _WRITES, query)
        for write in page["writes"]:
            if not all(is_routine(each["group"], each["resource"]) for each in write["objects"]):
                yield _entry(write)
        after = page["next"]
        if not after:
            return


def _entry(write: dict[str, Any]) -> Item:
    cause = cause_from_json(write["cause"]) if "cause" in write else None
    found: dict[str, Any] = {"revision": write["revision"], "lane": lane_of(cause), "objects": write["objects"]}
    if cause is not None:
        claim = cause.claim
        found |= {"at": cause.at, "verb": cause.verb}
        found |= {"reconcile": claim.reconcile, "key": claim.key} if claim.reconcile else {}
    return found


def _number(args: Args, name: str, default: int, most: int) -> int:
    value = args.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadRequest(f"argument {name} must be a number from 0 to {most}")
    return value or default
