"""Queues of keys for concurrent workers.

A `WorkQueue` is fair (first in, first out), stingy (a key that is added several times before it is dequeued is
processed once) and exclusive (a key that is being processed is not given to a second worker; if it is added meanwhile,
it is queued again when it is done). It keeps what triggered each key until the key is dequeued, and merges the triggers
of a key that is added several times (`reconcile/run.py`); what is added while a key is being processed belongs to the
next time. A `DelayingQueue` also adds keys after a delay, and a `RateLimitingQueue` delays failed keys with exponential
backoff. A gate (`reconcile/gate.py`) can hold back what is queued.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush, nsmallest
from itertools import islice
from operator import itemgetter
from typing import Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Histogram, exponential
from setpoint.meta.token_bucket import TokenBucket
from setpoint.reconcile.gate import Gate
from setpoint.reconcile.run import TIMER, Trigger, Triggers, delivery, trigger_later, trigger_now, trigger_of_retry

_SECONDS = exponential(1e-8, 10, 12)
_PRUNE_THRESHOLD = 1000
_COALESCING = 1.0
"""Delays of up to this many seconds coalesce changes, and are not mentioned as a trigger of their own."""
INITIAL_BACKOFF, MAX_BACKOFF = 0.005, 1000.0


class ShutDown(Exception):
    """The queue is empty and was shut down."""


class WorkQueue:
    """A queue of keys with the guarantees that the module describes."""

    def __init__(self, monotonic: Callable[[], float] | None = None) -> None:
        """Create a queue. With a clock, it measures how long keys wait."""
        self._queue: deque[str] = deque()
        """Keys in the order of processing. Every key in it is in `_dirty` and not in `_processing`."""
        self._dirty: set[str] = set()
        """Keys that need processing: those in `_queue`, and those to be queued when their current processing is
        done."""
        self._processing: set[str] = set()
        """Keys that were dequeued and are not done."""
        self._triggers: dict[str, Trigger] = {}
        """The triggers of the keys in `_dirty`, as far as they are known."""
        self.taken: Trigger | None = None
        """The trigger of the key that was dequeued last; None if it is not known. Valid until the next await after
        `get`."""
        self.gate: Gate | None = None
        """Decides which key is dequeued; None means the oldest, at once."""
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.add_workers: Callable[[int], None] | None = None
        """Starts workers, as far as there may be more; called when more keys are queued than workers wait. None means
        that their number is fixed."""
        self._closed = False
        self.added = 0
        """Keys that were added, not counting those that were queued already."""
        self.waited = Histogram(_SECONDS)
        """Seconds from when a key was added until it was dequeued."""
        self._monotonic = monotonic
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, key: str) -> None:
        """Add the key, unless it is queued already. What triggers it is noted in any case."""
        if self._closed:
            return
        trigger = delivery.cause
        if trigger is None:
            trigger = trigger_now()
        if trigger is not None:
            known = self._triggers.get(key)
            if known is None and isinstance(trigger, int):
                self._triggers[key] = trigger
            elif isinstance(known, Triggers):
                known.add(trigger)
            else:
                _note(self._triggers, key, trigger)
        if key not in self._dirty:
            self._enqueue(key)

    def _enqueue(self, key: str) -> None:
        """Add a key that is not in `_dirty`."""
        self._dirty.add(key)
        self.added += 1
        if self._monotonic is not None:
            self._since[key] = self._monotonic()
        if key not in self._processing:
            self._queue.append(key)
            self._wake()

    async def get(self) -> str:
        """Dequeue the oldest key, or the one that the gate admits; the caller calls `done` when it has processed it.
        Raise ShutDown when the queue is shut down."""
        while True:
            if self._queue:
                if self.gate is None or self._closed:
                    key = self._queue.popleft()
                    break
                admitted = self.gate.admit(self)
                if admitted is not None:
                    self._queue.remove(admitted)
                    key = admitted
                    break
            elif self._closed:
                raise ShutDown
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                # The waiter that was woken is cancelled: wake the next one for the key.
                if waiter.done() and not waiter.cancelled() and self._queue:
                    self._wake()
                raise
        self._dirty.discard(key)
        self._processing.add(key)
        self.taken = self._take_trigger(key)
        if self._monotonic is not None:
            self.waited.observe(self._monotonic() - self._since.pop(key))
        return key

    def _take_trigger(self, key: str) -> Trigger | None:
        """Remove and return the trigger of a key that is dequeued."""
        return self._triggers.pop(key, None)

    def done(self, key: str) -> None:
        """Mark the key as processed, and queue it again if it was added meanwhile."""
        self._processing.discard(key)
        if key in self._dirty:
            self._queue.append(key)
            self._wake()

    def _remove_queued(self, key: str) -> bool:
        """Remove a key that is queued and not being processed. Return whether it was."""
        if key not in self._dirty or key in self._processing:
            return False
        self._dirty.discard(key)
        self._queue.remove(key)
        self._since.pop(key, None)
        return True

    def next_key(self) -> str | None:
        """Return the oldest key; None if the queue is empty."""
        return self._queue[0] if self._queue else None

    def waiting_since(self, key: str) -> float | None:
        """Return when the key was added, 0 without a clock; None if it is not queued or is being processed."""
        if key not in self._dirty or key in self._processing:
            return None
        return self._since.get(key, 0.0)

    def expedite(self, key: str) -> bool:
        """Return whether the key can be dequeued."""
        return self.waiting_since(key) is not None

    def wake(self) -> None:
        """Let all waiting workers look again."""
        while self._waiters:
            self._wake()
        if self._queue and self.add_workers is not None:
            self.add_workers(len(self._queue))

    def queued(self, most: int) -> list[tuple[str, int, float]]:
        """Return the oldest keys, each with the number of changes that led to it and when it was added."""
        return [
            (key, _changes(self._triggers.get(key)), self._since.get(key, 0.0)) for key in islice(self._queue, most)
        ]

    def processing(self, most: int) -> list[str]:
        """Return keys that are being processed."""
        return [*islice(self._processing, most)]

    def position(self, key: str) -> int | None:
        """Return the number of keys before this one, or None if it is not queued."""
        return next((place for place, queued in enumerate(self._queue) if queued == key), None)

    def is_processing(self, key: str) -> bool:
        return key in self._processing

    def shut_down(self) -> None:
        """Accept no more keys; those that are queued can still be dequeued."""
        self._closed = True
        self.wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        if self.add_workers is not None and self._queue:
            self.add_workers(1)


def _changes(trigger: Trigger | None) -> int:
    return trigger.count or 1 if isinstance(trigger, Triggers) else 1


def _note(triggers: dict[str, Trigger], key: str, trigger: Trigger) -> None:
    """Merge a trigger into those of a key."""
    known = triggers.get(key)
    if isinstance(known, Triggers):
        known.add(trigger)
    elif known is None:
        triggers[key] = trigger if isinstance(trigger, int) else trigger.copy()
    elif known != trigger:
        merged = triggers[key] = Triggers((known,))
        merged.add(trigger)


class DelayingQueue(WorkQueue):
    """Adds delayed keys while `run` runs. A key that is scheduled twice is added at the earlier time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._clock = clock
        self._due: dict[str, float] = {}
        """The time at which each delayed key is added. A heap entry with another time is stale."""
        self._delayed_triggers: dict[str, Trigger] = {}
        """The triggers of the keys in `_due`."""
        self._heap: list[tuple[float, str]] = []
        self._woken = asyncio.Event()
        self._throttled: dict[str, float] = {}
        """Throttled keys, and the time before which they are not dequeued."""

    def add(self, key: str) -> None:
        if self._throttled and key in self._throttled:
            left = self._throttled[key] - self._clock.monotonic()
            if left > 0:
                self._delay(key, left, trigger_now())
                return
            del self._throttled[key]
        WorkQueue.add(self, key)  # faster than super(), and called for every change

    def throttle(self, key: str, seconds: float) -> None:
        """Do not dequeue the key for this many seconds; a key that is queued already is delayed as well."""
        now = self._clock.monotonic()
        if len(self._throttled) >= _PRUNE_THRESHOLD:
            self._throttled = {other: until for other, until in self._throttled.items() if until > now}
        self._throttled[key] = now + seconds
        if self._remove_queued(key):
            self._delay(key, seconds, self._triggers.pop(key, None))

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after this many seconds, unless it is scheduled earlier already."""
        if seconds <= 0:
            self.add(key)
        else:
            self._delay(key, seconds, trigger_later(seconds, _COALESCING))

    def _delay(self, key: str, seconds: float, trigger: Trigger | None) -> None:
        """Add the key after this many seconds, or at the earlier time for which it is scheduled already."""
        if self._closed:
            return
        if trigger is not None:
            _note(self._delayed_triggers, key, trigger)
        at = self._clock.monotonic() + seconds
        if at >= self._due.get(key, float("inf")):
            return
        self._due[key] = at
        heappush(self._heap, (at, key))
        if self._heap[0] == (at, key):
            self._woken.set()

    def _take_trigger(self, key: str) -> Trigger | None:
        """Remove and return also the changes for which the key is delayed: the caches show them already, so that this
        run acts on them, and not the one after the delay. What a timer was set for waits for the timer."""
        taken = self._triggers.pop(key, None)
        delayed = self._delayed_triggers.get(key) if self._delayed_triggers else None
        if delayed is None or (isinstance(delayed, Triggers) and delayed.besides.startswith(TIMER)):
            return taken
        del self._delayed_triggers[key]
        merged = Triggers((delayed,)) if isinstance(delayed, int) else delayed
        if taken is not None:
            merged.add(taken)
        return merged

    def due_in(self, key: str) -> float | None:
        """Return the seconds until a delayed key is added; None if it is not delayed."""
        at = self._due.get(key)
        return None if at is None else max(0.0, at - self._clock.monotonic())

    def expedite(self, key: str) -> bool:
        if key in self._due:
            self._due[key] = 0.0  # its entry in the heap is stale now
            heappush(self._heap, (0.0, key))
            self._throttled.pop(key, None)
            self._release(self._clock.monotonic())
        return WorkQueue.expedite(self, key)

    def delayed_keys(self, most: int) -> list[tuple[str, float]]:
        """Return the delayed keys that are added next, each with the seconds until then."""
        now = self._clock.monotonic()
        return [(key, max(0.0, at - now)) for key, at in nsmallest(most, self._due.items(), key=itemgetter(1))]

    @property
    def is_busy(self) -> bool:
        """Whether there are keys: queued, being processed or delayed."""
        return bool(self._dirty or self._processing or self._due)

    @property
    def delayed(self) -> int:
        """The number of delayed keys."""
        return len(self._due)

    @property
    def due_within(self) -> float:
        """Seconds until the last delayed key has been added; 0 if there is none."""
        return max(0.0, max(self._due.values()) - self._clock.monotonic()) if self._due else 0.0

    async def run(self) -> None:
        """Add delayed keys when they are due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._woken.clear()
                now = self._clock.monotonic()
                self._release(now)
                sleeper = tasks.create_task(self._sleep(self._heap[0][0] - now)) if self._heap else None
                try:
                    await self._woken.wait()
                finally:
                    if sleeper is not None:
                        sleeper.cancel()

    def _release(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            at, key = heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                trigger = self._delayed_triggers.pop(key, None)
                if self._throttled.get(key, now) > now:
                    self._delay(key, self._throttled[key] - now, trigger)
                elif not self._closed:
                    if trigger is not None:
                        _note(self._triggers, key, trigger)
                    if key not in self._dirty:
                        self._enqueue(key)

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._woken.set()


class Limiter(Protocol):
    """Decides how long a failed key waits before it is retried."""

    def when(self, key: str) -> float:
        """Record a failure of the key and return the seconds until it may be retried."""
        ...

    def forget(self, key: str) -> None:
        """Reset the key's failures after a success."""
        ...


class ExponentialBackoff:
    """Doubles the delay with each failure of a key, up to a maximum."""

    def __init__(self, initial: float = INITIAL_BACKOFF, maximum: float = MAX_BACKOFF) -> None:
        self._initial = initial
        self._maximum = maximum
        self._failures: dict[str, int] = {}

    def when(self, key: str) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._initial * 2.0 ** min(failures, 64), self._maximum)

    def forget(self, key: str) -> None:
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        return self._failures.get(key, 0)


class Bucket:
    """Limits the retries of all keys together to `rate` per second, with bursts of up to `burst`."""

    def __init__(self, clock: Clock, rate: float = 10.0, burst: int = 100) -> None:
        self._bucket = TokenBucket(clock, rate, burst)

    def when(self, key: str) -> float:
        return self._bucket.take()

    def forget(self, key: str) -> None:
        pass


class RateLimitingQueue(DelayingQueue):
    """A delaying queue that requeues failed keys with the longest delay any of its limiters asks for."""

    def __init__(self, clock: Clock, limiters: tuple[Limiter, ...] | None = None) -> None:
        """Create a queue. The default limiters are 5 ms doubling to 1,000 s per key, and 10 retries per second with
        bursts of 100 overall."""
        super().__init__(clock)
        self._limiters: tuple[Limiter, ...] = limiters or (ExponentialBackoff(), Bucket(clock))
        self._failures: dict[str, int] = {}
        """The number of times that a key was added with a delay since it was forgotten."""

    def add_rate_limited(self, key: str) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = max(limiter.when(key) for limiter in self._limiters)
        trigger = trigger_of_retry(failures) if delivery.cause is None else trigger_later(seconds, _COALESCING)
        if seconds <= 0:
            _note(self._triggers, key, trigger)
            self.add(key)
        else:
            self._delay(key, seconds, trigger)

    def failures(self, key: str) -> int:
        """Return how often the key was requeued since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        self._failures.pop(key, None)
        for limiter in self._limiters:
            limiter.forget(key)
