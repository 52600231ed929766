"""DefaultTolerationSeconds: Pods tolerate a node that is not ready or unreachable for a limited time."""

from __future__ import annotations

import asyncio
from typing import Any

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.meta.node_labels import TAINT_NOT_READY, TAINT_UNREACHABLE

DEFAULT_TOLERATION_SECONDS = 300
_SLICE = 4_096
"""Number of tolerations that are examined in one iteration of the event loop."""


class DefaultTolerationSeconds(Plugin):
    name = "DefaultTolerationSeconds"

    def __init__(
        self, not_ready: int = DEFAULT_TOLERATION_SECONDS, unreachable: int = DEFAULT_TOLERATION_SECONDS
    ) -> None:
        self._seconds = ((TAINT_NOT_READY, not_ready), (TAINT_UNREACHABLE, unreachable))

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation in ("CREATE", "UPDATE") and (resource.group, resource.plural, subresource) == ("", "pods", "")

    async def mutate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        tolerations = spec.get("tolerations")
        if not tolerations:
            spec["tolerations"] = [_toleration(key, seconds) for key, seconds in self._seconds]
            return
        tolerated: set[str] = set()
        for start in range(0, len(tolerations), _SLICE):
            if start:
                await asyncio.sleep(0)  # there may be tens of thousands: let other tasks run
            tolerated.update(
                toleration.get("key", "")
                for toleration in tolerations[start : start + _SLICE]
                if toleration.get("effect", "") in ("", "NoExecute")
            )
        if "" in tolerated:
            return
        added = [_toleration(key, seconds) for key, seconds in self._seconds if key not in tolerated]
        if added:
            spec["tolerations"] = [*tolerations, *added]


def _toleration(key: str, seconds: int) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
