"""Fair queuing of the requests of one priority level.

Each flow is assigned a few of the queues by shuffle sharding. The queue that received the fewest seats so far is served
next. Virtual time advances by the seats that were granted; a queue that becomes active starts at the present virtual
time, so that an idle flow accumulates no credit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from heapq import heappop, heappush


def flow_hash(schema: str, distinguisher: str) -> int:
    """Return the hash of a flow, the same for all of its requests."""
    return int.from_bytes(sha256(f"{len(schema)}{schema},{distinguisher}".encode()).digest()[:8], "little")


def shuffle_shard(value: int, deck_size: int, hand_size: int) -> tuple[int, ...]:
    """Return `hand_size` distinct numbers below `deck_size`."""
    drawn: list[int] = []
    for count in range(hand_size):
        value, card = divmod(value, deck_size - count)
        # The card is an index into the remaining deck: each lower card that was drawn before shifts it by one.
        for other in sorted(drawn):
            if card >= other:
                card += 1
        drawn.append(card)
    return tuple(drawn)


class QueuedRequest:
    """A request without a seat. `granted` is done when it gets one, or fails when it is rejected."""

    __slots__ = ("granted", "queue", "removed", "seats")

    def __init__(self, queue: _Queue, seats: int) -> None:
        self.queue = queue
        self.seats = seats
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.removed = False


class _Queue:
    """One queue of a level."""

    __slots__ = ("active", "requests", "virtual_time", "work")

    def __init__(self) -> None:
        self.requests: list[QueuedRequest] = []
        """The queued requests in their order. A list, because nearly all queues are empty."""
        self.work = 0
        """Number of seats that the queued requests need."""
        self.virtual_time = 0
        """Virtual time at which the next request is due."""
        self.active = False
        """Whether the queue is in the heap of queues with requests."""


class QueueFull(Exception):
    """There is neither a free seat nor space in the queue."""


class Queues:
    """The queues of one level. A level without queues rejects requests that find no seat."""

    def __init__(self) -> None:
        self.limit = 0
        """Number of seats of the level."""
        self.in_use = 0
        """Number of seats in use."""
        self.seats_waiting = 0
        """Number of seats that queued requests need."""
        self.waiting = 0
        """Number of queued requests."""
        self.cancelled = 0
        """Number of requests whose client disconnected while they were queued."""
        self._queue_length = 0
        self._hand_size = 0
        self._count = 0
        """Number of queues."""
        self._queues: dict[int, _Queue] = {}
        """The queues that a request was assigned to so far, by number. There are hundreds; most are never used."""
        self._hand_cache: dict[int, tuple[int, ...]] = {}
        self._active: list[tuple[int, int, _Queue]] = []
        self._sequence = 0
        self._virtual_time = 0

    def configure(self, queues: int, length: int, hand: int) -> None:
        """Set the number of queues, their length and the hand size. Requests in queues that are removed are still
        dispatched."""
        if (self._count, self._hand_size) != (queues, hand):
            self._count, self._queues = queues, {}
            self._hand_cache.clear()
        self._queue_length, self._hand_size = length, hand

    @property
    def has_queues(self) -> bool:
        return self._count > 0

    @property
    def queues(self) -> Sequence[_Queue]:
        """The queues, which must not be changed."""
        return [self._queues.get(number) or _Queue() for number in range(self._count)]

    def fits(self, seats: int) -> bool:
        """Return whether so many seats are free. A request for more than all seats fits if none is in use."""
        return self.in_use + seats <= self.limit or (seats > self.limit and not self.in_use)

    def enqueue(self, flow: int, seats: int) -> QueuedRequest:
        """Queue a request of the flow. Raises QueueFull."""
        if not self._count:
            raise QueueFull
        queue = self._shortest(flow)
        if len(queue.requests) >= self._queue_length and self.in_use >= self.limit:
            raise QueueFull
        request = QueuedRequest(queue, seats)
        queue.requests.append(request)
        queue.work += seats
        self.waiting += 1
        self.seats_waiting += seats
        if not queue.active:
            queue.virtual_time = max(queue.virtual_time, self._virtual_time)
            self._activate(queue)
        return request

    def can_bypass(self, flow: int, seats: int) -> bool:
        """Return whether a new request of the flow would be dispatched next anyway, and if so charge its queue.

        That is the case if its queue is empty and not ahead of the others, and if there are seats for it and for the
        next queued request.
        """
        if not self._count:
            return False
        queue = self._shortest(flow)
        first = self._active[0][2].requests if self._active else ()
        needed = seats + (first[0].seats if first else 0)
        if queue.active or queue.virtual_time > self._virtual_time or self.in_use + needed > self.limit:
            return False
        queue.virtual_time = self._virtual_time + seats
        return True

    def _shortest(self, flow: int) -> _Queue:
        """Return the queue with the least work among those of the flow."""
        hand = self._hand_cache.get(flow)
        if hand is None:
            if len(self._hand_cache) >= 4096:
                self._hand_cache.clear()
            hand = self._hand_cache[flow] = shuffle_shard(flow, self._count, self._hand_size)
        queues = self._queues
        card = min(hand, key=lambda card: queues[card].work if card in queues else 0)
        found = queues.get(card)
        if found is None:
            found = queues[card] = _Queue()
        return found

    def dispatch(self) -> int:
        """Grant seats to the next request and return their number; 0 means that no request is queued, or that it does
        not fit."""
        while self._active:
            queue = self._active[0][2]
            while queue.requests and (queue.requests[0].removed or queue.requests[0].granted.done()):
                self.remove(queue.requests.pop(0))
            if not queue.requests:
                heappop(self._active)
                queue.active = False
                continue
            if not self.fits(queue.requests[0].seats):
                return 0
            heappop(self._active)
            next_ = queue.requests.pop(0)
            self._virtual_time = queue.virtual_time
            queue.virtual_time += next_.seats
            self._activate(queue)
            self.remove(next_)
            self.in_use += next_.seats
            next_.granted.set_result(None)
            return next_.seats
        return 0

    def remove(self, request: QueuedRequest) -> None:
        """Remove a request from the counts of waiting requests."""
        if not request.removed:
            request.removed = True
            request.queue.work -= request.seats
            self.waiting -= 1
            self.seats_waiting -= request.seats
            if request.granted.cancelled():
                self.cancelled += 1

    def _activate(self, queue: _Queue) -> None:
        self._sequence += 1
        queue.active = True
        heappush(self._active, (queue.virtual_time, self._sequence, queue))
