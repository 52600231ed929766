"""Events that stay in memory, for whoever wants to look at them in the same process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import orjson

from setpoint.apiserver.audit.event import AuditEvent

_MOST = 100_000


class Kept:
    """The newest of them."""

    def __init__(self) -> None:
        self._events: deque[AuditEvent] = deque(maxlen=_MOST)

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        self._events.extend(events)
        return True

    def events(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return [orjson.loads(event.line) for event in self._events]
