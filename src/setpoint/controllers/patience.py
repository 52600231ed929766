"""How soon a change of a Pod has to be looked at.

Two thousand Pods that become ready one by one are two thousand pieces of news about one owner, each of which would have
it count all of them. What only changes a number in a status may wait a little, and comes together with others.
"""

from __future__ import annotations

from typing import Any

from setpoint.controllers.pods import is_active
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

_LARGE = 100
_PER_POD = 100e-6
_LONGEST = 0.25


def patience(old: Obj | None, new: Obj | None, size: int) -> float:
    """Seconds. `size` is how many Pods the owner is to have; of a small one nothing ever waits."""
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
