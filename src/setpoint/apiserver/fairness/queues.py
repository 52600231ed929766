"""Requests that wait for a seat, in fair order.

Fair means: of the queues that hold somebody, that one is served next which got least so far. Time is counted in seats
given away: a queue that was empty begins where the others are, so nobody saves up, and nobody is punished for having
come early.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from setpoint.apiserver.fairness.dealing import deal


class Waiting:
    """A request without a seat. `turn` is done when it has one, or is told that it will get none."""

    __slots__ = ("gone", "queue", "seats", "turn")

    def __init__(self, queue: _Queue, seats: int) -> None:
        self.queue = queue
        self.seats = seats
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gone = False


class _Queue:
    __slots__ = ("active", "served", "waiting", "work")

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.work = 0
        """Seats that are asked for here."""
        self.served = 0
        """By the level's count, when the next one is due."""
        self.active = False
        """Whether it is among those that are looked at."""


class QueueFull(Exception):
    """There is neither a seat nor room to wait."""


class Queues:
    """Of one level. Without queues nobody waits: who finds no seat is refused."""

    def __init__(self) -> None:
        self.limit = 0
        """How many seats there are."""
        self.in_use = 0
        self.seats_waiting = 0
        self.waiting = 0
        self.cancelled = 0
        """How many went away while they waited."""
        self._length = 0
        self._hand = 0
        self._queues: list[_Queue] = []
        self._hands: dict[int, tuple[int, ...]] = {}
        self._active: list[tuple[int, int, _Queue]] = []
        self._order = 0
        self._count = 0

    def configure(self, queues: int, length: int, hand: int) -> None:
        """Whoever waits in a queue that is no longer one is still served in its turn."""
        if (len(self._queues), self._hand) != (queues, hand):
            self._queues = [_Queue() for _ in range(queues)]
            self._hands.clear()
        self._length, self._hand = length, hand

    @property
    def can_wait(self) -> bool:
        return bool(self._queues)

    @property
    def each(self) -> Sequence[_Queue]:
        """To be looked at, not to be changed."""
        return self._queues

    def fits(self, seats: int) -> bool:
        """Whether so many are free. More than there are at all can be had when nobody else has any."""
        return self.in_use + seats <= self.limit or (seats > self.limit and not self.in_use)

    def wait(self, flow: int, seats: int) -> Waiting:
        """Raises QueueFull."""
        if not self._queues:
            raise QueueFull
        queue = self._shortest(flow)
        if len(queue.waiting) >= self._length and self.in_use >= self.limit:
            raise QueueFull
        waiting = Waiting(queue, seats)
        queue.waiting.append(waiting)
        queue.work += seats
        self.waiting += 1
        self.seats_waiting += seats
        if not queue.active:
            queue.served = max(queue.served, self._count)
            self._activate(queue)
        return waiting

    def is_next(self, flow: int, seats: int) -> bool:
        """Whether somebody who comes now would be the next one anyway: nobody waits in the same queue, which had no
        more than the others, and there are seats for them and for whoever is next without them. If so, that was their
        turn."""
        if not self._queues:
            return False
        queue = self._shortest(flow)
        first = self._active[0][2].waiting if self._active else ()
        needed = seats + (first[0].seats if first else 0)
        if queue.active or queue.served > self._count or self.in_use + needed > self.limit:
            return False
        queue.served = self._count + seats
        return True

    def _shortest(self, flow: int) -> _Queue:
        """Of those in which this flow may wait."""
        hand = self._hands.get(flow)
        if hand is None:
            if len(self._hands) >= 4096:
                self._hands.clear()
            hand = self._hands[flow] = deal(flow, len(self._queues), self._hand)
        return min((self._queues[card] for card in hand), key=lambda each: each.work)

    def dispatch(self) -> int:
        """Gives seats to the one whose turn it is, and says how many; 0: nobody waits, or there are not enough."""
        while self._active:
            queue = self._active[0][2]
            while queue.waiting and (queue.waiting[0].gone or queue.waiting[0].turn.done()):
                self.give_up(queue.waiting.popleft())
            if not queue.waiting:
                heappop(self._active)
                queue.active = False
                continue
            if not self.fits(queue.waiting[0].seats):
                return 0
            heappop(self._active)
            next_ = queue.waiting.popleft()
            self._count = queue.served
            queue.served += next_.seats
            self._activate(queue)
            self.give_up(next_)
            self.in_use += next_.seats
            next_.turn.set_result(None)
            return next_.seats
        return 0

    def give_up(self, waiting: Waiting) -> None:
        """It waits no longer."""
        if not waiting.gone:
            waiting.gone = True
            waiting.queue.work -= waiting.seats
            self.waiting -= 1
            self.seats_waiting -= waiting.seats
            if waiting.turn.cancelled():
                self.cancelled += 1

    def _activate(self, queue: _Queue) -> None:
        self._order += 1
        queue.active = True
        heappush(self._active, (queue.served, self._order, queue))
