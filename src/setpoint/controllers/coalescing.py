"""Delays Pod changes that only affect a status, so that they coalesce.

Two thousand Pods that become ready one by one would each cause a reconcile that counts all of them. A change that only
affects a number in a status can wait for others.
"""

from __future__ import annotations

from typing import Any

from setpoint.controllers.pods import is_active
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

_LARGE = 100
_PER_POD = 100e-6
_LONGEST = 0.25


def coalescing_delay(old: Obj | None, new: Obj | None, size: int) -> float:
    """Return the seconds by which to delay the reconcile of a Pod change. `size` is the owner's number of desired Pods;
    small owners are never delayed."""
    if size < _LARGE or old is None or new is None:
        return 0.0
    before, after = old["metadata"], new["metadata"]
    if (
        is_active(old) != is_active(new)
        or before.get("labels") != after.get("labels")
        or controller_of(old) != controller_of(new)
    ):
        return 0.0
    return min(_LONGEST, size * _PER_POD)
