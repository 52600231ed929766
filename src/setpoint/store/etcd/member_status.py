"""The status that a member of etcd reports: its version, and the alarms of the cluster."""

from __future__ import annotations

import logging
from typing import Any

from setpoint.store.etcd.client import CORRUPT, NO_SPACE
from setpoint.store.interface import StoreError

log = logging.getLogger("setpoint.store")

_Version = tuple[int, ...]
_RECOMMENDED: _Version = (3, 5, 21)
"""Older releases lose events of watches around a compaction (fixed in 3.5.18) or return stale reads after a pause."""
_REFUSED: tuple[tuple[_Version, _Version, str], ...] = (
    ((), (3, 4), "lacks parts of the API that this server uses"),
    ((3, 5, 0), (3, 5, 3), "can lose committed transactions when a member is killed"),
)
"""Ranges of versions (from, before) that are not used, and why."""


def check_version(version: str) -> None:
    """Log a warning if this version has known bugs that concern the store. Raise StoreError if it cannot be used."""
    numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdecimal())
    recommended = ".".join(map(str, _RECOMMENDED))
    for first, end, reason in _REFUSED:
        if first <= numbers < end:
            raise StoreError(f"etcd {version or 'of an unknown version'} {reason}: use {recommended} or newer")
    if numbers < _RECOMMENDED:
        log.warning("etcd %s has known bugs in watches and reads; use %s or newer in production", version, recommended)


def alarm(status: Any) -> str | None:
    """Return the sentence for an alarm in a member's status, or None if there is none."""
    errors = " ".join(status.errors)
    if "CORRUPT" in errors:
        return CORRUPT
    return NO_SPACE if "NOSPACE" in errors else None
