"""An API server whose audit events are recorded in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from server_harness import ServerHarness

from setpoint.apiserver.audit.auditor import Auditor
from setpoint.apiserver.audit.event import AuditEvent
from setpoint.apiserver.audit.policy import read_policy


class RecordingSink:
    """Records events."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.succeeds = True
        """What `process` returns."""

    async def process(self, events: Sequence[AuditEvent]) -> bool:
        self.events += events
        return self.succeeds

    def drain(self) -> list[dict[str, Any]]:
        """Return the recorded events as they are written, and remove them."""
        drained = [orjson.loads(event.line) for event in self.events]
        self.events.clear()
        return drained


def policy(*rules: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more})


def audit(harness: ServerHarness, *rules: dict[str, Any], **more: Any) -> RecordingSink:
    sink = RecordingSink()
    harness.replace_parts(
        auditor=Auditor(read_policy(policy(*rules, **more)), sink, harness.clock, harness.api.resources.ids)
    )
    return sink
