"""WATCH: a stream of changes, from a revision on or from the present state.

Frames are made once per change and form and shared by every stream of that form. A reader who falls too far behind is
cut off; it takes up the watch again from the last revision it saw.

A stream first sends the present state, or nothing, as of one revision. Then it reads the history of the store from
there, a bounded step at a time and no faster than its reader takes it, until it has caught up; from that moment on the
cache calls it with every change. Until then the history is its only buffer: a reader that is slower than compaction
gets 410.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.corrupt import list_refusal
from setpoint.apiserver.http.message import Answer, EventWriter, StreamResponse, StreamWriter, frame, takes_events
from setpoint.apiserver.negotiate import JSON, PROTOBUF, PROTOBUF_STREAM, STREAMS, Form
from setpoint.apiserver.options import ListOptions, list_options
from setpoint.apiserver.protobuf_answers import encode_value
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import column_definitions, columns_of, include_object, partial, table_row
from setpoint.apiserver.waiting import wait_for_revision
from setpoint.apiserver.watch_cache import Change, Entry, Watch
from setpoint.meta.decode import zero
from setpoint.meta.errors import ApiError, Expired, NotAcceptable
from setpoint.meta.protobuf.writing import write_watch_event
from setpoint.store.interface import Compacted, Unavailable

_MAX_BUFFERED = 16 * 1024 * 1024
"""Bytes that a watcher may be behind."""
_MOST_WAITING = 10_000
"""Events that may wait for a conversion."""
_AT_ONCE = 32
"""Events that are sent in one go to a stream that has to catch up."""
_MOST_AT_ONCE = 256
"""The same after some steps that did not suffice to catch up."""
_EXAMINED_AT_ONCE = 512
"""Past events that are examined in one go for a stream that has to catch up."""
_STEP_COST = 0.0002
"""Seconds that one such step takes, about."""
_MIN_TIMEOUT = 1800
_BOOKMARK_EVERY = 60.0
_BOOKMARK_BEFORE_END = 2.0
_CONTENT_TYPES = {JSON: JSON, PROTOBUF: PROTOBUF_STREAM}
_INITIAL_END = "k8s.io/initial-events-end"


async def watch(call: Call, registry: Registry, form: Form) -> Answer:
    options = await call.work(list_options, call, True, registry)
    if form.media_type not in _CONTENT_TYPES:
        raise NotAcceptable(f"only the following media types are accepted: {STREAMS}")
    if form.transform == "Table":
        include_object(call)
    if registry.cache.corrupt:
        raise list_refusal(registry.resource, registry.cache.corrupt, False)
    if options.initial_events:
        await wait_for_revision(registry, options.revision)
    timeout = options.timeout
    if not timeout:
        # Spread, so that watches that began together do not all come back together.
        timeout = _MIN_TIMEOUT + registry.env.ids.below(_MIN_TIMEOUT)

    async def run(writer: StreamWriter) -> None:
        if takes_events(writer) and form.transform != "Table":
            teller: _Teller = _Objects(registry, form, writer)
        else:
            teller = _Frames(call, registry, form, writer)
        if not registry.encoding.remote:
            await _Stream(call, registry, options, writer, teller).run(float(timeout))
            return
        stream = _Stream(call, registry, options, writer, teller)
        later = _Later(registry, teller, stream)
        stream.tell, stream.drained = later.tell, later.drained
        async with asyncio.TaskGroup() as tasks:
            converting = tasks.create_task(later.run())
            await stream.run(float(timeout))
            converting.cancel()

    return StreamResponse(200, [("Content-Type", _CONTENT_TYPES[form.media_type])], run)


class _Teller(Protocol):
    """How one stream is told of events."""

    def tell(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        """With a `change`, others are told of the same."""
        ...

    def refuse(self, error: ApiError) -> None: ...


class _Frames:
    """As bytes, made once for all streams of one form."""

    def __init__(self, call: Call, registry: Registry, form: Form, writer: StreamWriter) -> None:
        self._writer = writer
        self._protobuf = form.media_type == PROTOBUF
        make = _protobuf_encoder if self._protobuf else _encoder
        self._encode, self._form_key = make(call, registry, form)

    def tell(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        if change is None:
            self._writer.write(self._encode(kind, entry))
            return
        if self._form_key:
            key = (kind, self._form_key)
            data = change.frames.get(key)
            if data is None:
                data = change.frames[key] = frame(self._encode(kind, entry))
        else:
            data = frame(self._encode(kind, entry))
        self._writer.write_frames(data)

    def refuse(self, error: ApiError) -> None:
        if self._protobuf:
            self._writer.write(write_watch_event("ERROR", encode_value(error.status()) or b""))
        else:
            self._writer.write(b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.status()))


class _Objects:
    """As they are, shared by everyone in the process."""

    def __init__(self, registry: Registry, form: Form, writer: EventWriter) -> None:
        self._writer = writer
        if form.transform:
            self._form: Callable[[Entry], dict[str, Any]] = lambda entry: partial(registry, entry, form)
        else:
            self._form = registry.encoding.shared

    def tell(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        self._writer.event(kind, self._form(entry), len(entry.value))

    def refuse(self, error: ApiError) -> None:
        self._writer.event("ERROR", error.status(), 0)


class _Later:
    """For objects that must be converted elsewhere first: told in order, each when it is ready. What is selected is
    decided then too, by the fields of the wanted version."""

    def __init__(self, registry: Registry, teller: _Teller, stream: _Stream) -> None:
        self._encoding = registry.encoding
        self._teller = teller
        self._over = stream.over
        self._selecting = stream.watch.choosing(lambda kind, entry, change: teller.tell(kind, entry))
        stream.watch = stream.watch.taking_all()
        self._written = stream.drained
        self._waiting: deque[tuple[str, Entry, Change | None]] = deque()
        self._woken = asyncio.Event()
        self._converted = asyncio.Event()

    def tell(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        self._waiting.append((kind, entry, change))
        self._woken.set()

    def refuse(self, error: ApiError) -> None:
        self._teller.refuse(error)

    async def drained(self) -> None:
        """Return when nothing waits to be converted or to be taken by the reader."""
        while self._waiting:
            self._converted.clear()
            await self._converted.wait()
        await self._written()

    async def run(self) -> None:
        """Until somebody ends it. A failure, or a queue that grows and grows, ends the stream."""
        while True:
            self._converted.set()
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                if len(self._waiting) > _MOST_WAITING:
                    self._over.set()
                    return
                batch = list(self._waiting)
                self._waiting.clear()
                try:
                    await self._encoding.ready(_concerned(batch))
                except ApiError as error:
                    self._teller.refuse(error)
                    self._over.set()
                    return
                for kind, entry, change in batch:
                    if change is not None:
                        self._selecting.accept(change)
                    elif kind == "BOOKMARK" or self._selecting.selects(entry):
                        self._teller.tell(kind, entry)


def _concerned(batch: list[tuple[str, Entry, Change | None]]) -> list[Entry]:
    """Every entry that may be told of, or be compared with."""
    found = []
    for kind, entry, change in batch:
        if kind != "BOOKMARK":
            found.append(entry)
        if change is not None and change.before is not None:
            found += [change.before, change.gone]
    return found


class _Stream:
    def __init__(
        self, call: Call, registry: Registry, options: ListOptions, writer: StreamWriter, teller: _Teller
    ) -> None:
        self.registry = registry
        self.options = options
        self.writer = writer
        self.tell = teller.tell
        self.refuse = teller.refuse
        self.revision = 0
        self.over = asyncio.Event()
        self.drained = writer.drained
        """Returns when the reader has taken what it was sent."""
        self._live = False
        """True once the present and the past have been sent: from then on the cache delivers events."""
        self._empty: dict[str, Any] | None = None
        """An object that says nothing, but for its metadata: what bookmarks are made of."""
        target = call.target
        self.watch = Watch(
            namespace=target.namespace or options.fields.exact("metadata.namespace") or "",
            name=target.name or options.fields.exact("metadata.name") or "",
            labels=options.labels,
            fields=options.fields,
            fields_of=registry.fields_of,
            deliver=self.deliver,
            finish=self.over.set,
            decoded=takes_events(writer),
        )

    def deliver(self, kind: str, entry: Entry, change: Change) -> None:
        self.revision = change.revision
        self.tell(kind, entry, change)
        if self.writer.buffered > _MAX_BUFFERED:
            self.over.set()

    async def run(self, timeout: float) -> None:
        registry, clock = self.registry, self.registry.env.clock
        try:
            try:
                present = self._begin()
            except ApiError as error:
                self.refuse(error)
                return
            ends = clock.monotonic() + timeout
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(self.writer.closed())
                waiting.add_done_callback(lambda _: self.over.set())
                timer = tasks.create_task(self._keep_time(ends))
                catching_up = tasks.create_task(self._catch_up(present))
                await self.over.wait()
                waiting.cancel()
                timer.cancel()
                catching_up.cancel()
        finally:
            registry.cache.remove(self.watch)
            del self.watch  # it refers to this stream: they would be a cycle

    def _begin(self) -> list[Entry]:
        """Choose the revision from which on changes are sent, and return the present state if it is to be sent too:
        it is as of that revision, because nothing awaits in here."""
        cache, options, watch = self.registry.cache, self.options, self.watch
        self.revision = cache.fresh
        initial = options.initial_events
        if initial is None:
            initial = options.revision == 0
        if initial:
            present = list(cache.scan(watch.namespace))
            if watch.name or not (watch.labels.empty and watch.fields.empty):
                present = [entry for entry in present if cache.concerns(watch, entry.key) and watch.selects(entry)]
            return present
        if options.revision:
            if options.revision < cache.since:
                raise Expired(f"too old resource version: {options.revision} ({cache.since})")
            if options.revision > self.revision:
                self._skip_until(options.revision)
            self.revision = options.revision
        return []

    def _skip_until(self, revision: int) -> None:
        """A watch from the future says nothing until the future has come."""
        tell = self.watch.deliver

        def deliver(kind: str, entry: Entry, change: Change) -> None:
            if change.revision > revision:
                tell(kind, entry, change)

        self.watch.deliver = deliver

    async def _catch_up(self, present: list[Entry]) -> None:
        """Send the present state, then what has changed since, each as fast as the reader takes it."""
        try:
            await self._send_present(present)
            with self.registry.cache.replaying():
                await self._send_past()
        except Compacted:
            self.refuse(Expired("The resourceVersion for the provided watch is too old."))
            self.over.set()
        except Unavailable:
            self.over.set()  # the client takes up the watch again
        except ApiError as error:
            self.refuse(error)
            self.over.set()

    async def _send_present(self, present: list[Entry]) -> None:
        in_process = takes_events(self.writer)
        for start in range(0, len(present), _AT_ONCE):
            for entry in present[start : start + _AT_ONCE]:
                self.tell("ADDED", entry)
            # Within the process objects are handed over as they are, which costs little.
            if not in_process and start + _AT_ONCE < len(present):
                await self.drained()
        if self.options.initial_events and self.options.bookmarks:
            self._bookmark({_INITIAL_END: "true"})

    async def _send_past(self) -> None:
        """Send what has changed after the revision that this watch begins with, and join the live events: nothing
        awaits between the last step and that, so nothing is missing or sent twice."""
        cache, after, at_once = self.registry.cache, self.revision, _AT_ONCE
        while not cache.ended:
            if after < cache.fresh:
                await self.registry.env.turns.wait(_STEP_COST)
            changes, after = await cache.changes(self.watch, after, _EXAMINED_AT_ONCE)
            joins = after >= cache.fresh and len(changes) <= at_once
            for start in range(0, max(len(changes), 1), at_once):
                for change in changes[start : start + at_once]:
                    self.watch.accept(change)
                if not joins:
                    await self.drained()
            if joins:
                self.revision = max(self.revision, after)
                self._live = True
                cache.add(self.watch)
                return
            # By small steps it would never catch up where much is written in every turn of the loop.
            at_once = min(2 * at_once, _MOST_AT_ONCE)
        self.over.set()

    async def _keep_time(self, ends: float) -> None:
        """Bookmarks now and then, one shortly before the end, then the end."""
        clock = self.registry.env.clock
        if self.options.bookmarks:
            while True:
                left = ends - clock.monotonic()
                pause = min(_BOOKMARK_EVERY, left - _BOOKMARK_BEFORE_END)
                if pause <= 0:
                    break
                await clock.sleep(pause)
                if self._live:
                    self.revision = max(self.revision, self.registry.cache.fresh)
                    self._bookmark(None)
        await clock.sleep(max(0.0, ends - clock.monotonic()))
        self.over.set()

    def _bookmark(self, annotations: dict[str, str] | None) -> None:
        meta: dict[str, Any] = {"resourceVersion": str(max(self.revision, self.options.revision))}
        if annotations:
            meta["annotations"] = annotations
        if self._empty is None:
            empty = zero(self.registry.resource.type)
            self._empty = {n: value for n, value in empty.items() if n not in ("kind", "apiVersion", "metadata")}
        bookmark = {"metadata": meta, **self._empty}
        self.tell("BOOKMARK", self.registry.encoding.entry("", bookmark, self.revision))


def _protobuf_encoder(call: Call, registry: Registry, form: Form) -> tuple[Callable[[str, Entry], bytes], str]:
    """Return what `_encoder` returns, for events in protobuf, which has no tables."""
    encoding = registry.encoding
    if not form.transform:
        return lambda kind, entry: write_watch_event(kind, encoding.protobuf_single(entry)), encoding.form + "#protobuf"

    def metadata_only(kind: str, entry: Entry) -> bytes:
        return write_watch_event(kind, encode_value(partial(registry, entry, form)) or b"")

    return metadata_only, f"{encoding.form}#metadata#{form.meta_version}#protobuf"


def _encoder(call: Call, registry: Registry, form: Form) -> tuple[Callable[[str, Entry], bytes], str]:
    """How to write one event, and under which name equal bytes may be shared (empty: not at all)."""
    encoding = registry.encoding

    def wrap(kind: str, obj: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)

    if not form.transform:
        return lambda kind, entry: wrap(kind, encoding.single(entry)), encoding.form
    if form.transform.startswith("PartialObjectMetadata"):

        def metadata_only(kind: str, entry: Entry) -> bytes:
            return wrap(kind, orjson.dumps(partial(registry, entry, form)))

        return metadata_only, f"{encoding.form}#metadata#{form.meta_version}"
    include, columns = include_object(call), columns_of(registry)
    first = True

    def table(kind: str, entry: Entry) -> bytes:
        # Only the first event of a stream says what the columns are; ages make every row its own.
        nonlocal first
        definitions = column_definitions(columns) if first else None
        first = False
        body = {
            "kind": "Table",
            "apiVersion": form.meta_version,
            "metadata": {"resourceVersion": str(entry.revision)},
            "columnDefinitions": definitions,
            "rows": [table_row(registry.env.clock.now(), form, registry, entry, include, columns)],
        }
        return wrap(kind, orjson.dumps(body))

    return table, ""
