"""The clock, randomness, host name, address and heap of the machine, which no other module uses, and its file locks.

The composition roots use this module: `cluster`, `cli`, and an operator's own process (`sdk/process.py`). Everything
else receives a clock and ids as arguments.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from setpoint.wire.time_limits import TimeLimits

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        from asyncio import sleep  # most commands of the command line do without an event loop

        await sleep(seconds)


class BlockingClock(SystemClock):
    """A clock for a program without an event loop: `sleep` blocks the thread."""

    def __init__(self) -> None:
        self.limits = TimeLimits(self.monotonic)
        """The time limits of `sleep` and of all other blocking calls."""

    async def sleep(self, seconds: float) -> None:
        self._block(seconds)

    def _block(self, seconds: float) -> None:
        left = self.limits.remaining()
        if left is None or seconds < left:
            time.sleep(seconds)
        else:
            time.sleep(left)
            raise self.limits.reached()


class RandomIds:
    """Generates ids from the machine's entropy, or from a seed for reproducible runs."""

    def __init__(self, seed: int | None = None) -> None:
        import random  # slow to load, and most commands need no ids

        self._random = random.Random(seed) if seed is not None else random.SystemRandom()
        # SystemRandom costs a system call per number, and every object gets a uid: uids use a seeded generator.
        self._uids = random.Random(self._random.getrandbits(128))

    def uid(self) -> str:
        # Same form as uuid4, without the cost of a UUID object: every new object needs one.
        digits = f"{self._uids.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def suffix(self) -> str:
        return "".join(self._uids.choices(_SUFFIX, k=5))

    def below(self, limit: int) -> int:
        return self._uids.randrange(limit)

    def secret(self) -> str:
        """Return an unguessable token, from the machine's entropy even if there is a seed."""
        from random import SystemRandom

        return f"{SystemRandom().getrandbits(256):064x}"


def hostname() -> str:
    return socket.gethostname()


def outward_address(family: int = 4) -> str:
    """Return the address from which this machine reaches other machines; empty if it has only loopback addresses."""
    kind, destination = (socket.AF_INET, "192.0.2.1") if family == 4 else (socket.AF_INET6, "2001:db8::1")
    try:
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect((destination, 9))  # chooses a route; nothing is sent
            found = probe.getsockname()[0]
    except OSError:
        return ""
    return "" if found.startswith("127.") or found in ("::1", "0.0.0.0", "::") else str(found)


def trim_heap() -> None:
    """Return the free memory of the C library's heap to the system, if the library can do that; glibc can."""
    import ctypes  # slow to load, and small clusters need it never

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of this file. A file that does not exist is not locked."""
    try:
        lock = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
