"""A workqueue that delays failed keys with exponential backoff."""

from __future__ import annotations

from typing import Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.token_bucket import TokenBucket
from setpoint.reconcile.delaying import DelayingQueue

FIRST_RETRY, LONGEST_RETRY = 0.005, 1000.0


class Limiter(Protocol):
    """Decides how long a failed key waits before it is retried."""

    def when(self, key: str) -> float:
        """Record a failure of the key and return the seconds until it may be retried."""
        ...

    def forget(self, key: str) -> None:
        """Reset the key's failures after a success."""
        ...


class ExponentialBackoff:
    """Doubles the delay with each failure of a key, up to a maximum."""

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
    """Limits the retries of all keys together to `rate` per second, with bursts of up to `burst`."""

    def __init__(self, clock: Clock, rate: float = 10.0, burst: int = 100) -> None:
        self._bucket = TokenBucket(clock, rate, burst)

    def when(self, key: str) -> float:
        return self._bucket.take()

    def forget(self, key: str) -> None:
        pass


class RateLimitingQueue(DelayingQueue):
    """A delaying queue that requeues failed keys with the longest delay any of its limiters asks for."""

    def __init__(self, clock: Clock, limiters: tuple[Limiter, ...] | None = None) -> None:
        """Create a queue. The default limiters are 5 ms doubling to 1,000 s per key, and 10 retries per second with
        bursts of 100 overall."""
        super().__init__(clock)
        self._limiters: tuple[Limiter, ...] = limiters or (ExponentialBackoff(), Bucket(clock))

    def add_rate_limited(self, key: str) -> None:
        self.add_after(key, max(limiter.when(key) for limiter in self._limiters))

    def forget(self, key: str) -> None:
        for limiter in self._limiters:
            limiter.forget(key)
