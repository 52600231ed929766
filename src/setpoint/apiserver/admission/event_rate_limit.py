"""EventRateLimit: so many Events a second for the server, a namespace, a user, or a source and its object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import TooManyRequests

LIMIT_TYPES = ("Namespace", "Server", "SourceAndObject", "User")


class Limit(NamedTuple):
    type: str
    """One of LIMIT_TYPES."""
    qps: float
    burst: int
    cache_size: int = 4096
    """How many keys are remembered; the one longest unused is forgotten first."""


class EventRateLimit(Plugin):
    name = "EventRateLimit"

    def __init__(self, clock: Clock, limits: Sequence[Limit] = ()) -> None:
        self._enforcers = [_Enforcer(limit, clock) for limit in limits]

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation in ("CREATE", "UPDATE") and resource.kind == "Event" and bool(self._enforcers)

    async def validate(self, attrs: Attributes) -> None:
        if attrs.dry_run:
            return
        problems = list(dict.fromkeys(filter(None, (enforcer.refuse(attrs) for enforcer in self._enforcers))))
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise TooManyRequests(f"Too many requests: {text}")


class _Enforcer:
    def __init__(self, limit: Limit, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By key: tokens, and when there were so many."""

    def refuse(self, attrs: Attributes) -> str:
        """Why not; empty: one token is taken."""
        limit, now = self._limit, self._clock.monotonic()
        key = self._key(attrs)
        tokens, since = self._buckets.pop(key, (float(limit.burst), now))
        tokens = min(limit.burst, tokens + (now - since) * limit.qps)
        allowed = tokens >= 1
        self._buckets[key] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > limit.cache_size:
            self._buckets.popitem(last=False)
        return "" if allowed else f"limit reached on type {limit.type} for key {key}"

    def _key(self, attrs: Attributes) -> str:
        if self._limit.type == "Namespace":
            return attrs.namespace
        if self._limit.type == "User":
            return attrs.user.name
        if self._limit.type == "Server":
            return ""
        event = attrs.obj or {}
        source, about = event.get("source") or {}, event.get("involvedObject") or {}
        parts = [source.get("component"), source.get("host")]
        parts += [about.get(name) for name in ("kind", "namespace", "name", "uid", "apiVersion")]
        return "".join(part or "" for part in parts)
