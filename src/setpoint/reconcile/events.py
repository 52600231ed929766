"""Records Events about objects.

Repeated Events are counted, similar ones are aggregated and floods are rate-limited: a ReplicaSet that creates two
thousand Pods needs a few Events, not two thousand. Events are written at a lower priority than all other work, but with
a bounded delay.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from zlib import crc32

from setpoint.client import Unreachable, Writer
from setpoint.client.current_run import current_run
from setpoint.client.run import Run
from setpoint.meta.clock import Clock
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

log = logging.getLogger("setpoint.reconcile")

_MAX_ENTRIES = 4096
_MAX_SIMILAR = 10
"""Distinct messages with one reason about one object that stay separate; further ones are aggregated."""
_AGGREGATION_SECONDS = 600.0
_EVICTION_INTERVAL = 1.0
_BURST = 25
_REFILL = 1 / 300
"""Events per second about one object once its burst is used up."""
COMBINED = "(combined from similar events): "

K = TypeVar("K")
V = TypeVar("V")
_BATCH_SIZE = 16
"""Events written concurrently in one batch. A batch occupies the loop for a few milliseconds, and the store commits it
in one transaction."""
_LATE_BATCH_SIZE = 32
"""Events written concurrently when they are late."""
_PAUSE_FACTOR = 3.0
"""The pause after a batch as a multiple of the time it took, so that in a burst objects are written before Events."""
_MAX_PAUSE = 1.0
_LATE_AFTER = 2.0
"""Seconds that an Event may wait before pauses are skipped and Events are written as fast as the server accepts them.
"""
_DROP_AFTER = 30.0
"""Seconds after which an Event that is still queued is dropped."""
_MAX_QUEUED = 4096
Write = Callable[[], Awaitable[None]]
NORMAL, WARNING = "Normal", "Warning"
_EVENTS = ("v1", "Event")
_MAX_MESSAGE_LENGTH = 1024
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class LruCache(OrderedDict[K, V], Generic[K, V]):
    """A bounded map that evicts the least recently used entry."""

    def lookup(self, key: K) -> V | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _MAX_ENTRIES:
            self.popitem(last=False)

    def evict(self, stale: Callable[[V], bool]) -> None:
        """Evict the least recently used entries for as long as they are stale."""
        while self and stale(next(iter(self.values()))):
            self.popitem(last=False)


class EventIdentity(NamedTuple):
    """The fields by which Events are compared."""

    source: tuple[str, str]
    about: tuple[str, ...]
    """Kind, namespace, name, uid and apiVersion of the involved object."""
    field_path: str
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class EventState:
    """The state of an Event that was written or is about to be written."""

    name: str
    first: str
    count: int = 0
    stored: bool = False


@dataclass(slots=True)
class _Aggregate:
    at: float
    messages: tuple[int, ...] = ()
    """The hashes of the different messages, in the order of their first occurrence."""


@dataclass(slots=True)
class _Tokens:
    at: float
    left: float = _BURST


class Correlator:
    """Counts, aggregates and rate-limits Events.

    The state is kept in memory only: after a restart, Events are counted from 1 again. It is found by 64-bit hashes,
    because it outlives the texts: two of a few thousand Events are equal with a probability of 10^-12.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._aggregates: LruCache[int, _Aggregate] = LruCache()
        self._states: LruCache[int, EventState] = LruCache()
        self._tokens: LruCache[int, _Tokens] = LruCache()
        self._evict_at = 0.0
        """The time from which stale entries are evicted again."""

    def correlate(self, identity: EventIdentity, name: str, stamp: str) -> tuple[EventState, str] | None:
        """Return the Event to write and its message, or None if it exceeds the rate limit.

        A new Event has a count of 1 and gets `name` and `stamp`.
        """
        now = self._clock.monotonic()
        if now >= self._evict_at:
            self._evict_at = now + _EVICTION_INTERVAL
            self._aggregates.evict(lambda each: now - each.at > _AGGREGATION_SECONDS)
            self._tokens.evict(lambda each: each.left + (now - each.at) * _REFILL >= _BURST)
        key, message = self._aggregated(identity, now)
        state = self._states.lookup(key)
        if state is None:
            state = EventState(name, stamp)
            self._states.put(key, state)
        state.count += 1
        return (state, message) if self._is_within_rate(identity, now) else None

    def forget(self, identity: EventIdentity) -> None:
        """Forget an Event that could not be written or no longer exists, so that the next occurrence creates a new
        one."""
        self._states.pop(hash(identity), None)
        self._states.pop(_aggregate_key(identity), None)

    def _aggregated(self, identity: EventIdentity, now: float) -> tuple[int, str]:
        key = _aggregate_key(identity)
        aggregate = self._aggregates.lookup(key)
        if aggregate is None or now - aggregate.at > _AGGREGATION_SECONDS:
            aggregate = _Aggregate(now)
            self._aggregates.put(key, aggregate)
        aggregate.at = now
        message = hash(identity.message)
        if message not in aggregate.messages:
            aggregate.messages += (message,)
        if len(aggregate.messages) < _MAX_SIMILAR:
            return hash(identity), identity.message
        aggregate.messages = aggregate.messages[1:]
        return key, COMBINED + identity.message

    def _is_within_rate(self, identity: EventIdentity, now: float) -> bool:
        key = hash((identity.source, identity.about, identity.type))
        tokens = self._tokens.lookup(key)
        if tokens is None:
            tokens = _Tokens(now)
            self._tokens.put(key, tokens)
        tokens.left = min(_BURST, tokens.left + (now - tokens.at) * _REFILL)
        tokens.at = now
        if tokens.left < 1:
            return False
        tokens.left -= 1
        return True


def _aggregate_key(identity: EventIdentity) -> int:
    return hash(("aggregate", identity.source, identity.about, identity.field_path, identity.type, identity.reason))


class _Queued(NamedTuple):
    since: float
    """The time at which the write was queued."""
    write: Write
    run: Run | None
    """The run that recorded the Event."""
    about: Hashable
    """The object of the Event; None if its writes need no order."""


class EventWriteQueue:
    """Queues writes of Events without blocking. Each is made on behalf of the run that recorded the Event.

    Writes with the same key never run concurrently, and of several queued writes with one key only the last is made.
    Writes about one object are made one after the other, so that a watch shows its Events in order.
    Sources are served round-robin, so that one busy source does not delay the others. When the queue is full, the
    oldest write of the source with the most is dropped, and so is a write that has waited too long; `dropped` counts
    them.
    """

    def __init__(self, component: str, clock: Clock) -> None:
        self.component = component
        self.dropped = 0
        self._clock = clock
        self._queued: dict[str, dict[Hashable, _Queued]] = {}
        """Queued writes by source, in round-robin order, then by key. A source without writes has no entry."""
        self._count = 0
        self._most = 0
        """The number of writes of each source in `_longest`, which no source exceeds; 0 means that it is not known."""
        self._longest: list[str] = []
        """Sources that had the most writes when they were last compared, in reverse round-robin order. Some may have
        fewer by now."""
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of queued writes."""
        return self._count

    def put(self, key: Hashable, write: Write, source: str = "", about: Hashable = None) -> None:
        """Queue a write. `source` is the host of the Event where one component records for many hosts, `about` is the
        object of the Event."""
        waiting = self._queued.get(source)
        if waiting is None:
            waiting = self._queued[source] = {}
        before = waiting.get(key)
        since = self._clock.monotonic() if before is None else before.since
        run = current_run.get()
        waiting[key] = _Queued(since, write, None if run is None else run.for_events(), about)
        if before is None:
            self._count += 1
            if self._count > _MAX_QUEUED:
                self._dequeue(source if len(waiting) > self._most > 0 else self._source_with_most())
                self.dropped += 1
        self._woken.set()

    def _source_with_most(self) -> str:
        """Return a source that has as many writes as any other.

        The sources are compared once for all that have the most, and not for every dropped write."""
        while self._longest:
            source = self._longest.pop()
            if len(self._queued.get(source, ())) == self._most:
                return source
        self._most = max(map(len, self._queued.values()))
        self._longest = [source for source, waiting in self._queued.items() if len(waiting) == self._most]
        self._longest.reverse()
        return self._longest.pop()

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._queued:
                began = self._clock.monotonic()
                batch, late = self._batch(began)
                if len(batch) == 1:
                    await self._attempt(batch)
                elif batch:
                    async with asyncio.TaskGroup() as tasks:
                        for number, writes in enumerate(_by_object(batch), 1):
                            tasks.create_task(self._attempt(writes))
                            if number % _BATCH_SIZE == 0:
                                await asyncio.sleep(0)
                took = self._clock.monotonic() - began
                if took > 0 and not late:
                    await self._clock.sleep(min(_PAUSE_FACTOR * took, _MAX_PAUSE))

    def _batch(self, now: float) -> tuple[list[_Queued], bool]:
        """Return the next batch of writes, and whether any of them is late."""
        batch: list[_Queued] = []
        late = False
        self._most, self._longest = 0, []  # sources may grow unobserved until the queue is full again
        while self._queued and len(batch) < (_LATE_BATCH_SIZE if late else _BATCH_SIZE):
            queued = self._dequeue(next(iter(self._queued)))
            if now - queued.since > _DROP_AFTER:
                self.dropped += 1
                late = True
                continue
            late = late or now - queued.since > _LATE_AFTER
            batch.append(queued)
        return batch, late

    def _dequeue(self, source: str) -> _Queued:
        """Remove the oldest write of a source and move the source to the end of the round-robin order."""
        waiting = self._queued.pop(source)
        oldest = waiting.pop(next(iter(waiting)))
        self._count -= 1
        if waiting:
            self._queued[source] = waiting
        return oldest

    async def _attempt(self, writes: Iterable[_Queued]) -> None:
        for queued in writes:
            current_run.set(queued.run)
            try:
                await queued.write()
            except (ApiError, Unreachable) as error:
                log.info("%s: cannot write an Event, dropping it: %s", self.component, error)
            except Exception:  # one Event must not end the component
                log.exception("%s: writing an Event failed", self.component)


def _by_object(batch: Iterable[_Queued]) -> Iterable[Sequence[_Queued]]:
    """Group the writes about one object, in their order."""
    groups: dict[Hashable, list[_Queued]] = {}
    for number, queued in enumerate(batch):
        groups.setdefault(number if queued.about is None else queued.about, []).append(queued)
    return groups.values()


class Recorder(Protocol):
    def normal(self, about: Mapping[str, Any], reason: str, message: str) -> None: ...

    def warning(self, about: Mapping[str, Any], reason: str, message: str) -> None: ...


def reference(about: Mapping[str, Any], field_path: str = "") -> Obj:
    """Return the reference by which an Event names its involved object."""
    meta = about["metadata"]
    found = {
        "kind": about.get("kind"),
        "namespace": meta.get("namespace"),
        "name": meta["name"],
        "uid": meta.get("uid"),
        "apiVersion": about.get("apiVersion"),
        "resourceVersion": meta.get("resourceVersion"),
        "fieldPath": field_path,
    }
    return {key: found[key] for key in _REFERENCE if found[key]}


def event_log(component: str) -> logging.Logger:
    """Return the logger to which the Events of a component are logged."""
    return logging.getLogger(f"setpoint.events.{component}")


def log_event(log: logging.Logger, about: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
    level = logging.INFO
    if log.isEnabledFor(level):
        meta = about["metadata"]
        where = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        fields = (where, about.get("kind"), kind, reason, message)
        # Build the record directly: finding the caller, as the logging functions do, would dominate the cost of an
        # Event.
        log.handle(logging.LogRecord(log.name, level, __file__, _LINE, _TEXT, fields, None, "log_event"))


_LINE = log_event.__code__.co_firstlineno
_TEXT = '"Event occurred" object="%s" kind="%s" type="%s" reason="%s" message="%s"'


class EventNames:
    """Generates Event names that are unique for an object, also for two Events in the same instant."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, about: str, nanoseconds: int) -> str:
        self._last = max(self._last + 1, nanoseconds)
        return f"{about}.{self._last:x}"


class EventRecorder:
    """Records Events without blocking and without raising; an Event that cannot be written is dropped.

    A repeated Event increments the count of the first one, similar Events are aggregated, and floods are rate-limited.
    """

    def __init__(self, writer: Writer, clock: Clock, component: str, host: str = "") -> None:
        self._writer = writer
        self._clock = clock
        self._component = component
        self._host = host
        self._correlator = Correlator(clock)
        self.write_queue = EventWriteQueue(component, clock)
        self._names = EventNames()
        self._log = event_log(component)
        # The clock has microsecond resolution: the nanoseconds distinguish components that record in the same one.
        self._nanosecond_offset = crc32(component.encode()) % 1000

    def normal(
        self, about: Mapping[str, Any], reason: str, message: str, *, field_path: str = "", host: str = ""
    ) -> None:
        """Record an Event of type Normal.

        `field_path` names a part of the object, `host` the node it occurred on if that is not the recorder's own host.
        """
        self._record(about, NORMAL, reason, message, field_path, host)

    def warning(
        self, about: Mapping[str, Any], reason: str, message: str, *, field_path: str = "", host: str = ""
    ) -> None:
        self._record(about, WARNING, reason, message, field_path, host)

    def _record(
        self, about: Mapping[str, Any], kind: str, reason: str, message: str, field_path: str, host: str
    ) -> None:
        meta = about["metadata"]
        now, host = self._clock.now(), host or self._host
        stamp = format_time(now)
        message = message[:_MAX_MESSAGE_LENGTH]
        log_event(self._log, about, kind, reason, message)
        involved: tuple[str, ...] = (
            about.get("kind") or "",
            meta.get("namespace") or "",
            meta["name"],
            meta.get("uid") or "",
            about.get("apiVersion") or "",
        )
        identity = EventIdentity((self._component, host), involved, field_path, kind, reason, message)
        name = self._names.next(meta["name"], int(now.timestamp() * 1e6) * 1000 + self._nanosecond_offset)
        correlated = self._correlator.correlate(identity, name, stamp)
        if correlated is None:
            return
        state, message = correlated
        count = state.count
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": state.name, "namespace": meta.get("namespace") or "default"},
            "involvedObject": reference(about, field_path),
            "reason": reason,
            "message": message,
            "source": {"component": self._component, **({"host": host} if host else {})},
            "firstTimestamp": state.first,
            "lastTimestamp": stamp,
            "count": count,
            "type": kind,
            "reportingComponent": self._component,
            "reportingInstance": host,
        }

        async def write() -> None:
            try:
                await self._write(event, state)
            except BaseException:
                self._correlator.forget(identity)
                raise

        self.write_queue.put(state.name, write, host, involved)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        await self.write_queue.run()

    async def _write(self, event: Obj, state: EventState) -> None:
        meta = event["metadata"]
        if state.stored:
            change = {key: event[key] for key in ("count", "lastTimestamp", "message")}
            try:
                await self._writer.patch(_EVENTS, meta["name"], change, meta["namespace"])
                return
            except NotFound:
                pass  # it has expired: create it again
        with suppress(AlreadyExists):  # from an attempt whose response was lost
            await self._writer.create(event)
        state.stored = True
