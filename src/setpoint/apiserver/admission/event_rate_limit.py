"""EventRateLimit: limits the rate of Events per server, namespace, user, or source and object."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.apiserver.config_files import NUMBER, TEXT, FileProblem, document, many, read_config, struct
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import TooManyRequests
from setpoint.meta.field import Errors, aggregate_message, invalid, not_supported
from setpoint.meta.goformat import aggregate

_LIMIT_TYPES = ("Namespace", "Server", "SourceAndObject", "User")
_LIMIT = struct("v1alpha1.Limit", type=TEXT, qps=NUMBER, burst=NUMBER, cacheSize=NUMBER)
_CONFIGURATIONS = {
    ("eventratelimit.admission.k8s.io/v1alpha1", "Configuration"): document(
        "v1alpha1.Configuration", limits=many(_LIMIT)
    )
}


class Limit(NamedTuple):
    """One limit of the configuration: a token bucket for each key."""

    type: str
    """One of _LIMIT_TYPES."""
    qps: float
    burst: int
    cache_size: int = 4096
    """Number of keys whose buckets are retained; the least recently used one is evicted first."""


class EventRateLimit(Plugin):
    name = "EventRateLimit"

    def __init__(self, clock: Clock, limits: Sequence[Limit] = ()) -> None:
        self._enforcers = [_Enforcer(limit, clock) for limit in limits]

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return operation in ("CREATE", "UPDATE") and resource.kind == "Event" and bool(self._enforcers)

    async def validate(self, attrs: Attributes) -> None:
        if attrs.dry_run:
            return
        problems = [problem for enforcer in self._enforcers if (problem := enforcer.take_token(attrs))]
        if problems:
            raise TooManyRequests(f"Too many requests: {aggregate(problems)}")


class _Enforcer:
    def __init__(self, limit: Limit, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Number of tokens and the time of that count (monotonic seconds), by key."""

    def take_token(self, attrs: Attributes) -> str:
        """Take one token. Return "" on success, or the reason for the denial."""
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


def read_event_limits(data: bytes | None) -> list[Limit]:
    """Read the plugin's configuration; None stands for a missing one. Raises FileProblem if it is invalid."""
    given = (read_config(data, _CONFIGURATIONS).get("limits") or []) if data else []
    errs: Errors = [] if given else [invalid("limits", None, "must not be empty")]
    limits = []
    for at, one in enumerate(given):
        type_, qps, burst, cache = (one.get(key, 0) for key in ("type", "qps", "burst", "cacheSize"))
        path = f"limits[{at}]"
        if type_ not in _LIMIT_TYPES:
            errs.append(not_supported(f"{path}.type", type_ or "", _LIMIT_TYPES))
        for key, value in (("burst", burst), ("qps", qps)):
            if value <= 0:
                errs.append(invalid(f"{path}.{key}", value, "must be positive"))
        if type_ != "Server" and cache < 0:
            errs.append(invalid(f"{path}.cacheSize", cache, "must not be negative"))
        limits.append(Limit(type_, qps, burst, cache or Limit._field_defaults["cache_size"]))
    if errs:
        raise FileProblem(aggregate_message(errs))
    return limits
