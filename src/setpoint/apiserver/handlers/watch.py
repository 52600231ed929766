"""WATCH: a stream of changes after a revision, or the current state and the changes after it.

An event is encoded once per change and form, and all streams of that form send the same bytes. A client that falls too
far behind is disconnected; it resumes the watch from the last revision it saw.

A stream first sends the current state as of one revision, or nothing. Then it replays the history of the store after
that revision, in bounded steps and no faster than the client reads, until it has caught up. From then on the cache
calls it with every change. Until then the history is its only buffer: a client that is slower than compaction gets 410.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.corrupt_objects import list_error
from setpoint.apiserver.handlers.watch_events import ChunkSink, EventSink, ObjectSink
from setpoint.apiserver.negotiate import JSON, PROTOBUF, PROTOBUF_STREAM, STREAMS, Form
from setpoint.apiserver.options import ListOptions, list_options
from setpoint.apiserver.registry import Registry, wait_for_revision
from setpoint.apiserver.rendering import (
    LARGE_ENTRY,
    include_object,
)
from setpoint.apiserver.request_context import RequestContext, Target
from setpoint.apiserver.shared_watches import FrameEncoder, SharedWatch
from setpoint.apiserver.watch_cache import Change, Watch
from setpoint.apiserver.watchers import WatchPeriod
from setpoint.apiserver.worker import Worker
from setpoint.meta.cause import product_of
from setpoint.meta.decode import zero
from setpoint.meta.errors import ApiError, Expired, NotAcceptable
from setpoint.store.interface import Compacted, Unavailable
from setpoint.tasks import Flag, Timer, child_tasks, first_completed
from setpoint.wire.broadcast import Receiver
from setpoint.wire.message import Answer, StreamResponse, StreamWriter, accepts_events

_MAX_BUFFERED = 16 * 1024 * 1024
"""Maximum number of buffered bytes of a stream."""
_MAX_UNCONVERTED = 10_000
"""Maximum number of events that wait for a conversion."""
_STEP_EVENTS = 32
"""Number of events that are sent in one step of catching up."""
_MAX_STEP_EVENTS = 256
"""Maximum number of events in one step, after steps that did not suffice to catch up."""
_STEP_EXAMINED = 512
"""Number of past events that are examined in one step of catching up."""
_STEP_COST = 0.0002
"""Approximate time in seconds of one step."""
_MIN_TIMEOUT = 1800
_BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_CONTENT_TYPES = {JSON: JSON, PROTOBUF: PROTOBUF_STREAM}
_INITIAL_END = "k8s.io/initial-events-end"
_EVERY_OBJECT = ("kind", "apiVersion", "metadata")


async def watch(ctx: RequestContext, registry: Registry, form: Form) -> Answer:
    options = await ctx.compute(list_options, ctx, True, registry)
    if form.media_type not in _CONTENT_TYPES:
        raise NotAcceptable(f"only the following media types are accepted: {STREAMS}")
    include = ""
    if form.transform == "Table":
        include = include_object(ctx)
    if registry.cache.corrupt:
        raise list_error(registry.resource, registry.cache.corrupt, False)
    if options.initial_events:
        await wait_for_revision(registry, options.revision)
    timeout = options.timeout
    if not timeout:
        # Randomized, so that watches that started together do not end together.
        timeout = _MIN_TIMEOUT + registry.env.ids.below(_MIN_TIMEOUT)

    moment = ctx.now
    now = (lambda: moment) if ctx.is_past else registry.env.clock.now
    start = _Start(registry, options, form, include, now, ctx.worker, ctx.target, float(timeout))
    watchers = registry.env.watchers
    if watchers is not None:
        agent = product_of(ctx.request.headers.get("user-agent", ""))
        start.period = watchers.watching(ctx.user.name, agent, registry.cache.prefix)
    return StreamResponse(200, [("Content-Type", _CONTENT_TYPES[form.media_type])], start.run)


@dataclass(slots=True)
class _Start:
    """Starts the stream of a request. The request is not kept while the stream is open."""

    registry: Registry
    options: ListOptions
    form: Form
    include: str
    """The part of an object that a row of a table contains; empty if the form is no table."""
    now: Callable[[], datetime]
    """Returns the time to which the ages in a table refer."""
    worker: Worker
    target: Target
    timeout: float
    period: WatchPeriod | None = None
    """Remembers that the client watches; None if this is not remembered."""

    async def run(self, writer: StreamWriter) -> None:
        with self.period or nullcontext():
            await self._stream(writer)

    def _stream(self, writer: StreamWriter) -> Awaitable[None]:
        registry, shared = self.registry, None
        if accepts_events(writer) and self.form.transform != "Table":
            sink: EventSink = ObjectSink(registry, self.form, writer)
        else:
            sink = chunks = ChunkSink(registry, self.form, self.include, self.now, writer)
            shared = chunks.encoder if chunks.encoder.form else None
        if registry.encoding.remote:
            return self._convert(_Stream(self, writer, sink), sink)
        return _Stream(self, writer, sink, shared).run(self.timeout)

    async def _convert(self, stream: _Stream, sink: EventSink) -> None:
        converting_sink = _ConvertingSink(self.registry, sink, stream)
        stream.send, stream.drained = converting_sink.send, converting_sink.drained
        async with asyncio.TaskGroup() as tasks:
            converting = tasks.create_task(converting_sink.run())
            await stream.run(self.timeout)
            converting.cancel()


class _ConvertingSink:
    """Sends events after a webhook has converted their objects, in order. The selectors are applied after the
    conversion, to the fields of the requested version."""

    def __init__(self, registry: Registry, sink: EventSink, stream: _Stream) -> None:
        self._encoding = registry.encoding
        self._sink = sink
        self._over = stream.over
        self._selector = stream.watch.with_delivery(lambda kind, entry, change: sink.send(kind, entry))
        stream.watch = stream.watch.without_selectors()
        self._written = stream.drained
        self._waiting: deque[tuple[str, Entry, Change | None]] = deque()
        self._wakeup = asyncio.Event()
        self._converted = asyncio.Event()

    def send(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        self._waiting.append((kind, entry, change))
        self._wakeup.set()

    def send_error(self, error: ApiError) -> None:
        self._sink.send_error(error)

    async def drained(self) -> None:
        """Return when all events are converted and sent."""
        while self._waiting:
            self._converted.clear()
            await self._converted.wait()
        await self._written()

    async def run(self) -> None:
        """Convert and send events until cancelled. A failed conversion or too long a queue ends the stream."""
        while True:
            self._converted.set()
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._waiting:
                if len(self._waiting) > _MAX_UNCONVERTED:
                    self._over.set()
                    return
                batch = list(self._waiting)
                self._waiting.clear()
                try:
                    await self._encoding.ready(_entries_of(batch))
                except ApiError as error:
                    self._sink.send_error(error)
                    self._over.set()
                    return
                for kind, entry, change in batch:
                    if change is not None:
                        self._selector.accept(change)
                    elif kind == "BOOKMARK" or self._selector.selects(entry):
                        self._sink.send(kind, entry)


def _entries_of(batch: list[tuple[str, Entry, Change | None]]) -> list[Entry]:
    """Return all entries that these events need."""
    found = []
    for kind, entry, change in batch:
        if kind != "BOOKMARK":
            found.append(entry)
        if change is not None and change.before is not None:
            found += [change.before, change.deleted]
    return found


class _Stream:
    __slots__ = (
        "_empty",
        "_encoder",
        "_ends",
        "_live",
        "_shared",
        "_step",
        "_timer",
        "_worker",
        "drained",
        "options",
        "over",
        "registry",
        "revision",
        "send",
        "send_error",
        "watch",
        "writer",
    )

    def __init__(
        self, start: _Start, writer: StreamWriter, sink: EventSink, encoder: FrameEncoder | None = None
    ) -> None:
        options, registry, target = start.options, start.registry, start.target
        self.registry = registry
        self._worker = start.worker
        self.options = options
        self.writer = writer
        self.send = sink.send
        self.send_error = sink.send_error
        self.revision = 0
        self.over = Flag()
        self.drained = writer.drained
        """Returns when the client has read what was sent."""
        self._live = False
        """Whether the stream has caught up and receives all changes, so that bookmarks may be sent."""
        self._encoder = encoder
        """Encodes the events of streams like this one; None if this one has a watch of its own."""
        self._shared: tuple[SharedWatch, Receiver] | None = None
        """The shared watch from which this stream receives live events; None if it does not."""
        self._ends = 0.0
        """When the stream ends, on the monotonic clock."""
        self._timer: Timer | None = None
        """The next bookmark or the end; None before the start."""
        self.watch = Watch(
            namespace=target.namespace or options.fields.exact("metadata.namespace") or "",
            name=target.name or options.fields.exact("metadata.name") or "",
            labels=options.labels,
            fields=options.fields,
            fields_of=registry.fields_of,
            deliver=self.deliver,
            finish=self.over.set,
            decoded=accepts_events(writer),
        )

    def deliver(self, kind: str, entry: Entry, change: Change) -> None:
        self.revision = change.revision
        self.send(kind, entry, change)
        if self.writer.buffered > _MAX_BUFFERED:
            self.over.set()

    async def run(self, timeout: float) -> None:
        registry, clock = self.registry, self.registry.env.clock
        try:
            try:
                catching_up = self._catch_up(self._start())
            except ApiError as error:
                self.send_error(error)
                return
            self._ends = clock.monotonic() + timeout
            self._schedule()
            if accepts_events(self.writer):
                # Clients in the process cancel this task when they are gone, and so does their server when it stops.
                await catching_up
                await self.over.wait()
                return
            async with child_tasks(self.writer.closed()) as (closed,):
                closed.add_done_callback(lambda _: self.over.set())
                await first_completed(catching_up, self.over.wait())
                await self.over.wait()
                if closed.done() and self._live and self.options.bookmarks:
                    # The server stops: let the client resume at another one from the present.
                    self._bookmark_present()
                    await self.drained()
        finally:
            if self._timer is not None:
                registry.env.timers.cancel(self._timer)
            if self._shared is not None:
                registry.shared_watches.leave(*self._shared)
                self._shared = None
            registry.cache.remove(self.watch)
            del self.watch  # breaks the reference cycle with this stream

    def _start(self) -> list[Entry]:
        """Choose the revision after which changes are sent, and return the current state if it is to be sent first. The
        state is that of the revision, because there is no await in between."""
        cache, options, watch = self.registry.cache, self.options, self.watch
        self.revision = cache.fresh_revision
        initial = options.initial_events
        if initial is None:
            initial = options.revision == 0
        if initial:
            return [
                entry for entry in cache.scan(watch.namespace) if not watch.name or cache.concerns(watch, entry.key)
            ]
        if options.revision:
            if options.revision < cache.first_revision:
                raise Expired(f"too old resource version: {options.revision} ({cache.first_revision})")
            if options.revision > self.revision:
                self._skip_until(options.revision)
            self.revision = options.revision
        return []

    def _skip_until(self, revision: int) -> None:
        """Suppress events up to a revision that does not exist yet."""
        send = self.watch.deliver

        def deliver(kind: str, entry: Entry, change: Change) -> None:
            if change.revision > revision:
                send(kind, entry, change)

        self.watch.deliver = deliver
        self._encoder = None

    async def _catch_up(self, current: list[Entry]) -> None:
        """Send the current state and then the changes after it, no faster than the client reads."""
        try:
            await self._send_current(current)
            with self.registry.cache.replaying():
                await self._send_past()
        except Compacted:
            self.send_error(Expired("The resourceVersion for the provided watch is too old."))
            self.over.set()
        except Unavailable:
            self.over.set()  # the client resumes the watch
        except ApiError as error:
            self.send_error(error)
            self.over.set()

    async def _send_current(self, current: list[Entry]) -> None:
        in_process, slicer = accepts_events(self.writer), self.registry.env.slicer
        if not (self.watch.labels.empty and self.watch.fields.empty):
            current = await self._select(current)
        for start in range(0, len(current), _STEP_EVENTS):
            for entry in current[start : start + _STEP_EVENTS]:
                self.send("ADDED", entry)
            if start + _STEP_EVENTS >= len(current):
                break
            # Clients in the process share the objects, which costs little.
            if not in_process or self.writer.buffered > _MAX_BUFFERED // 2:
                await self.drained()
            elif slicer.over_budget():
                await slicer.wait(_STEP_COST)
        if self.options.initial_events and self.options.bookmarks:
            self._bookmark({_INITIAL_END: "true"})

    async def _select(self, current: list[Entry]) -> list[Entry]:
        """Return the entries that the selectors admit, examined a few at a time."""
        found: list[Entry] = []
        slicer = self.registry.env.slicer
        for number, entry in enumerate(current, 1):
            if entry.size > LARGE_ENTRY:
                await self._worker.run(entry.size, self.registry.encoding.live, entry)
            if self.watch.selects(entry):
                found.append(entry)
            if not number % _STEP_EVENTS and slicer.over_budget():
                await slicer.wait(_STEP_COST)
        return found

    async def _send_past(self) -> None:
        """Send the changes after the revision at which this watch starts, and join the live events. There is no await
        between the last step and that, so no event is missing or sent twice."""
        cache, after, at_once = self.registry.cache, self.revision, _STEP_EVENTS
        while not cache.stopped:
            if after < cache.fresh_revision:
                await self.registry.env.slicer.wait(_STEP_COST)
            changes, after = await cache.changes(self.watch, after, _STEP_EXAMINED)
            joins = after >= cache.fresh_revision and len(changes) <= at_once
            for start in range(0, max(len(changes), 1), at_once):
                for change in changes[start : start + at_once]:
                    self.watch.accept(change)
                if not joins:
                    await self.drained()
            if joins:
                self.revision = max(self.revision, after)
                self._join()
                return
            # Small steps would never catch up if much is written in each iteration of the loop.
            at_once = min(2 * at_once, _MAX_STEP_EVENTS)
        self.over.set()

    def _join(self) -> None:
        """Receive all changes from now on."""
        self._live = True
        if self._encoder is None:
            self.registry.cache.add(self.watch)
            return
        receiver = Receiver(self.writer, self._end)
        shared = self.registry.shared_watches.join(self.watch, self._encoder, receiver, _MAX_BUFFERED)
        self._shared = shared, receiver

    def _end(self) -> None:
        """End the stream, which may not have received all changes: bookmarks would be wrong from now on."""
        self._live = False
        self.over.set()

    def _schedule(self) -> None:
        """Send the next bookmark, one in a while and one shortly before the end, and then end the stream."""
        env, call, when = self.registry.env, self.over.set, self._ends
        if self.options.bookmarks:
            now = env.clock.monotonic()
            next_bookmark = min(now + _BOOKMARK_EVERY, when - _BOOKMARK_BEFORE_END)
            if next_bookmark > now:
                call, when = self._send_bookmark, next_bookmark
        self._timer = env.timers.call_at(when, call)

    def _send_bookmark(self) -> None:
        if self._live:
            self._bookmark_present()
        self._schedule()

    def _bookmark_present(self) -> None:
        """Send a bookmark of a live stream, after all changes up to the present."""
        if self._shared is not None:
            shared, receiver = self._shared
            shared.broadcast.flush(receiver)
        self.revision = max(self.revision, self.registry.cache.fresh_revision)
        self._bookmark(None)

    def _bookmark(self, annotations: dict[str, str] | None) -> None:
        meta: dict[str, Any] = {"resourceVersion": str(max(self.revision, self.options.revision))}
        if annotations:
            meta["annotations"] = annotations
        empty = zero(self.registry.resource.type)
        bookmark = {"metadata": meta, **{name: empty[name] for name in empty if name not in _EVERY_OBJECT}}
        self.send("BOOKMARK", self.registry.encoding.entry("", bookmark, self.revision))
