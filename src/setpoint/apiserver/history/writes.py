"""`/setpoint/v1/writes`: the writes to all objects, as pages, or as a stream of those that are made.

Users see what they may read now (`get`), whatever they were allowed to read then. With `changes=true`, each object has
what has changed in it (`view/writes.py`).

With `watch=true`, the answer is a stream of JSON lines, from the revision `after` or from now on:

    {"type": "start", "revision": 290}              everything after this revision follows
    {"type": "write", "write": {...}}               as with changes=true
    {"type": "folded", "revision": 295, "heartbeats": 3, "events": 1}
                                                    writes that are counted only: Leases, node statuses, Events
    {"type": "counts", "revision": 400, "writes": 96, "actors": {"kubelets": 90, ...}}
                                                    writes beyond the rate that a person can read, by their authors
    {"type": "error", "error": {...}}               a Status; the stream ends

Nothing is computed while no stream is open. A stream has no buffer of its own: it reads the history no faster than its
client reads, and counts instead of describing what it is too far behind of.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.history.endpoints import HistoryEndpoints, check_method, number_option
from setpoint.apiserver.history.reader import HistoryReader, Version, Write
from setpoint.apiserver.history.when import Moments
from setpoint.apiserver.negotiate import JSON
from setpoint.apiserver.request_context import RequestContext, truthy
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Expired
from setpoint.meta.objects import ObjView
from setpoint.store.interface import Unavailable
from setpoint.tasks import first_completed, within
from setpoint.view.history import cause_to_json
from setpoint.view.secrets import SECRETS, SecretMask
from setpoint.view.timeline import is_routine, lane_of
from setpoint.view.why.facts import Ref, Written
from setpoint.view.why.steps import Change
from setpoint.view.writes import HEARTBEATS, described_object, described_write, is_person
from setpoint.wire.message import Answer, Response, StreamResponse, StreamWriter

WRITES_PATH = "/setpoint/v1/writes"
_DEFAULT_LIMIT, _MAX_LIMIT = 100, 500
_MAX_SCANNED = 5_000
"""Number of writes that one request examines."""
_MAX_REVISION = 2**63 - 1
_MAX_STREAM_SECONDS = 1800.0
"""A stream ends after this time; its client opens another one, which is authorized again."""
_PAGE = 100
"""Number of writes that a stream reads at a time."""
_MAX_BEHIND = 1_000
"""Revisions that a stream may be behind before it only counts."""
_WINDOW = 0.25
"""Seconds in which at most `_PER_WINDOW` writes of components are described, and as many of people."""
_PER_WINDOW = 50
_FOLDED_EVERY = 1.0
"""Seconds between two lines about folded writes."""


class WritesEndpoint:
    def __init__(self, api: ApiResources, history: HistoryEndpoints, reader: HistoryReader, moments: Moments) -> None:
        self._api = api
        self._history = history
        self._reader = reader
        self._moments = moments

    async def answer(self, ctx: RequestContext) -> Answer:
        """Answer `?after&limit&from&to&user&changes&watch`: the oldest first. `newest` is the newest revision when the
        request came: without `to` and `next`, a client continues after it."""
        check_method(ctx)
        if truthy(ctx.option("watch") or "false"):
            return self._watch(ctx)
        limit = number_option(ctx, "limit", _DEFAULT_LIMIT, _MAX_LIMIT)
        after = number_option(ctx, "after", 0, _MAX_REVISION)
        if begin := ctx.option("from"):
            after = max(after, (await self._moments.find(begin, ctx.now)).revision - 1)
        end = newest = self._reader.newest
        if until := ctx.option("to"):
            end = (await self._moments.find(until, ctx.now)).revision
        if not after:
            after = self._reader.oldest - 1
        user = ctx.option("user")
        descriptions = Descriptions(self._api, self._history, self._reader, ctx.user)
        shown_as = descriptions.described if truthy(ctx.option("changes") or "false") else descriptions.named
        found: list[dict[str, Any]] = []
        scanned = 0
        while len(found) < limit and scanned < _MAX_SCANNED and after < end:
            page = await self._reader.writes(after, limit)
            if not page:
                after = end
            for write in page:
                after = write.revision
                if after > end or len(found) == limit:
                    break
                scanned += 1
                if user and (write.cause is None or write.cause.user.partition("<")[0] != user):
                    continue
                if shown := await shown_as(write):
                    found.append(shown)
            if found and found[-1]["revision"] < after and len(found) == limit:
                after = found[-1]["revision"]
        answer = {"writes": found, "next": after if after < end else 0, "newest": newest}
        return Response(200, orjson.dumps(answer), [("Content-Type", JSON)])

    def _watch(self, ctx: RequestContext) -> Answer:
        after = number_option(ctx, "after", self._reader.newest, _MAX_REVISION)
        if after + 1 < self._reader.oldest:
            raise Expired(f"writes after revision {after} are no longer known; the oldest is {self._reader.oldest}")
        descriptions = Descriptions(self._api, self._history, self._reader, ctx.user)
        stream = _Stream(self._api, self._reader, descriptions, min(after, self._reader.newest))

        async def run(writer: StreamWriter) -> None:
            await first_completed(writer.closed(), stream.run(writer))

        return StreamResponse(200, [("Content-Type", JSON)], run)


class Descriptions:
    """Describes writes as far as one user may see them."""

    def __init__(self, api: ApiResources, history: HistoryEndpoints, reader: HistoryReader, user: UserInfo) -> None:
        self._api = api
        self._history = history
        self._reader = reader
        self._user = user
        self._mask = SecretMask()

    async def named(self, write: Write) -> dict[str, Any] | None:
        """Return a write with the names of its objects; None if the user may see none of them."""
        objects = [
            each for key in write.keys if (each := await self._history.visible_object(self._user, key)) is not None
        ]
        if not objects:
            return None
        cause = {"cause": cause_to_json(write.cause)} if write.cause is not None else {}
        return {"revision": write.revision, **cause, "objects": objects}

    async def described(self, write: Write) -> dict[str, Any] | None:
        """Return a write with the changes of its objects; None if the user may see none of them."""
        objects = []
        for key in write.keys:
            if (named := await self._history.visible_object(self._user, key)) is not None:
                objects.append(await self._described(write, key, named))
        return described_write(write.revision, write.cause, objects) if objects else None

    async def is_visible(self, write: Write) -> bool:
        for key in write.keys:
            if await self._history.visible_object(self._user, key) is not None:
                return True
        return False

    async def _described(self, write: Write, key: str, named: dict[str, str]) -> dict[str, Any]:
        kind, version = named["resource"], ""
        try:
            resource = self._api.registry(named["group"], named["resource"]).resource
            kind, version = resource.kind, resource.version
        except KeyError:
            pass  # a custom kind that is no longer served
        ref = Ref(named["group"], named["resource"], kind, named["namespace"], named["name"])
        versions = await self._reader.versions(key, before=write.revision + 1, limit=2)
        now = versions[0] if versions else Version(key, write.revision, 0, None)
        created = now.value is not None and now.created == now.revision
        before = versions[1] if len(versions) > 1 and not created else None
        change = Change(
            Written(write.revision, write.cause, write.keys),
            key,
            ref,
            await self._decoded(before),
            await self._decoded(now),
            created or before is not None or now.value is None,
        )
        return described_object(change, version)

    async def _decoded(self, version: Version | None) -> ObjView | None:
        if version is None or version.value is None:
            return None
        try:
            found: ObjView = await self._api.worker.run(len(version.value), orjson.loads, version.value)
        except orjson.JSONDecodeError:  # encrypted, and the key is missing
            return {"metadata": {}}
        return self._mask.masked(found) if version.key.startswith(SECRETS) else found


@dataclass(slots=True)
class _Counts:
    """Writes that are counted instead of described."""

    heartbeats: int = 0
    events: int = 0
    writes: int = 0
    actors: dict[str, int] = field(default_factory=dict)


class _Window:
    """The rate of described writes: a part of each period is for people, who are never lost among components."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends = 0.0
        self._left = {True: 0, False: 0}

    def admits(self, person: bool) -> bool:
        now = self._clock.monotonic()
        if now >= self._ends:
            self._ends = now + _WINDOW
            self._left = {True: _PER_WINDOW, False: _PER_WINDOW}
        self._left[person] -= 1
        return self._left[person] >= 0

    @property
    def remaining(self) -> float:
        """Seconds until the present period ends; 0 if it has ended."""
        return max(0.0, self._ends - self._clock.monotonic())


class _Stream:
    def __init__(self, api: ApiResources, reader: HistoryReader, descriptions: Descriptions, after: int) -> None:
        self._clock = api.clock
        self._store = api.store
        self._reader = reader
        self._descriptions = descriptions
        self._after = after
        self._counts = _Counts()
        self._window = _Window(api.clock)
        self._folded_at = 0.0

    async def run(self, writer: StreamWriter) -> None:
        """Send lines until the stream has lasted long enough, or what it would read is no longer known."""
        changed = asyncio.Event()
        ends = self._clock.monotonic() + _MAX_STREAM_SECONDS
        subscription = self._store.watch("", self._store.revision, lambda events, revision: changed.set())
        try:
            _send(writer, {"type": "start", "revision": self._after})
            while (left := ends - self._clock.monotonic()) > 0:
                changed.clear()
                await self._send_new(writer)
                self._send_counts(writer)
                try:
                    await within(self._clock, min(left, self._pause()), changed.wait())
                except TimeoutError:
                    self._send_counts(writer)
        except ApiError as error:
            _send(writer, {"type": "error", "error": error.status()})
        except Unavailable:
            pass  # the client opens another stream
        finally:
            subscription.close()

    def _pause(self) -> float:
        """Return how long to wait at most before counts are sent."""
        counts = self._counts
        if counts.writes:
            return self._window.remaining or _WINDOW
        folded = counts.heartbeats or counts.events
        return max(0.01, self._folded_at + _FOLDED_EVERY - self._clock.monotonic()) if folded else _MAX_STREAM_SECONDS

    async def _send_new(self, writer: StreamWriter) -> None:
        while self._after < (newest := self._reader.newest):
            page = await self._reader.writes(self._after, _PAGE)
            if not page:
                self._after = newest
                return
            for write in page:
                await self._take(writer, write)
                self._after = write.revision
            await writer.drained()

    async def _take(self, writer: StreamWriter, write: Write) -> None:
        """Describe a write, or count it."""
        routine = [_routine(key) for key in write.keys]
        if all(routine):
            if await self._descriptions.is_visible(write):
                if "leases" in routine:
                    self._counts.heartbeats += 1
                else:
                    self._counts.events += 1
            return
        behind = self._reader.newest - write.revision > _MAX_BEHIND
        if behind or not self._window.admits(is_person(write.cause)):
            if await self._descriptions.is_visible(write):
                self._counts.writes += 1
                lane = lane_of(write.cause)
                self._counts.actors[lane] = self._counts.actors.get(lane, 0) + 1
            return
        shown = await self._descriptions.described(write)
        if shown is None:
            return
        if all(each["part"] == HEARTBEATS for each in shown["objects"]):
            self._counts.heartbeats += 1
            return
        _send(writer, {"type": "write", "write": shown})

    def _send_counts(self, writer: StreamWriter) -> None:
        counts, now = self._counts, self._clock.monotonic()
        if counts.writes and not self._window.remaining:
            _send(
                writer,
                {"type": "counts", "revision": self._after, "writes": counts.writes, "actors": counts.actors},
            )
            counts.writes, counts.actors = 0, {}
        if (counts.heartbeats or counts.events) and now - self._folded_at >= _FOLDED_EVERY:
            self._folded_at = now
            folded = {"heartbeats": counts.heartbeats, "events": counts.events}
            _send(writer, {"type": "folded", "revision": self._after, **folded})
            counts.heartbeats = counts.events = 0


def _routine(key: str) -> str:
    """Return the resource of a key that is written all the time; empty if it is another."""
    group, _, rest = key.partition("/")
    resource = rest.partition("/")[0]
    return resource if is_routine("" if group == "core" else group, resource) else ""


def _send(writer: StreamWriter, line: dict[str, Any]) -> None:
    writer.write(orjson.dumps(line) + b"\n")
