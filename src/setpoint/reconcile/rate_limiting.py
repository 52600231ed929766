"""A workqueue that makes keys which fail wait, longer each time."""

from __future__ import annotations

from typing import Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.token_bucket import TokenBucket
from setpoint.reconcile.delaying import DelayingQueue

FIRST_RETRY, LONGEST_RETRY = 0.005, 1000.0


class Limiter(Protocol):
    def when(self, key: str) -> float:
        """The key failed once more: in how many seconds it may be tried again."""
        ...

    def forget(self, key: str) -> None:
        """The key is well."""
        ...


class ExponentialBackoff:
    """Each key for itself, doubling."""

    def __init__(self, first: float = FIRST_RETRY, longest: float = LONGEST_RETRY) -> None:
        self._first = first
        self._longest = longest
        self._failures: dict[str, int] = {}

    def when(self, key: str) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._first * 2.0 ** min(failures, 64), self._longest)

    def forget(self, key: str) -> None:
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        return self._failures.get(key, 0)


class Bucket:
    """All keys together: `rate` retries a second in the long run, up to `burst` at once."""

    def __init__(self, clock: Clock, rate: float = 10.0, burst: int = 100) -> None:
        self._bucket = TokenBucket(clock, rate, burst)

    def when(self, key: str) -> float:
        return self._bucket.take()

    def forget(self, key: str) -> None:
        pass


class RateLimitingQueue(DelayingQueue):
    def __init__(self, clock: Clock, limiters: tuple[Limiter, ...] | None = None) -> None:
        """The limiter that asks for the longest wait has its way. By default: 5 ms doubling to 1,000 s for each key,
        10 a second with bursts of 100 for all together."""
        super().__init__(clock)
        self._limiters: tuple[Limiter, ...] = limiters or (ExponentialBackoff(), Bucket(clock))

    def add_rate_limited(self, key: str) -> None:
        self.add_after(key, max(limiter.when(key) for limiter in self._limiters))

    def forget(self, key: str) -> None:
        for limiter in self._limiters:
            limiter.forget(key)
