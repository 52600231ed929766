"""A front door with an audit log that is kept in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from front_door import FrontDoor

from setpoint.apiserver.audit.auditor import Auditor
from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.policy import read_policy


class Kept:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.works = True

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        self.events += events
        return self.works

    def taken(self) -> list[dict[str, Any]]:
        """As they are written, and no more kept."""
        told = [orjson.loads(event.line) for event in self.events]
        self.events.clear()
        return told


def policy(*rules: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more})


def audit(door: FrontDoor, *rules: dict[str, Any], **more: Any) -> Kept:
    kept = Kept()
    door.api.auditor = Auditor(read_policy(policy(*rules, **more)), kept, door.clock, door.api.ids)
    return kept
