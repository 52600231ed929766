"""Random faults between a component and the server."""

from __future__ import annotations

import random
from typing import Any

from setpoint.client import Unreachable
from setpoint.client.interface import WatchEvent
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict, Expired, InternalError
from setpoint.testing.link import Proceed, Write


class Noise:
    """Fails writes, loses answers, and delays, duplicates, drops or expires watches, at random."""

    def __init__(self, chance: random.Random, clock: Clock) -> None:
        self._chance = chance
        self._clock = clock

    async def write(self, write: Write, proceed: Proceed) -> Any:
        drawn = self._chance.random()
        if drawn < 0.08:
            raise Conflict.modified("", write.resource, write.name)
        if drawn < 0.14:
            raise InternalError.of("injected fault: internal error")
        if drawn < 0.2:
            raise Unreachable("injected fault: connection lost")
        answer = await proceed()
        if self._chance.random() < 0.1:
            raise Unreachable("injected fault: connection lost before the answer")
        return answer

    async def events(self, given: list[WatchEvent]) -> list[WatchEvent]:
        drawn = self._chance.random()
        if drawn < 0.04:
            # the event is lost with the watch, and is sent again from its revision
            raise Unreachable("injected fault: watch closed")
        if drawn < 0.06:
            raise Expired("too old resource version")
        if drawn < 0.3:
            await self._clock.sleep(self._chance.uniform(0, 3))
        return [*given, *given] if drawn > 0.85 else given
