"""Arrays over nodes. A slot is a place in them that one node has for as long as it is known; every array has a place
for every slot, taken or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LOG_LIMIT = 1 << 16


def grown(array: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """The same with more places in the last dimension, the new ones zero."""
    bigger = np.zeros((*array.shape[:-1], capacity), dtype=array.dtype)
    bigger[..., : array.shape[-1]] = array
    return bigger


class ChangeLog:
    """Which slots have changed, in order: whoever computed something of them sees what to compute again."""

    def __init__(self) -> None:
        self.epoch = 0
        """Raised when everything has changed; what was noted before is then forgotten."""
        self.slots: list[int] = []

    def add(self, slot: int) -> None:
        if len(self.slots) >= _LOG_LIMIT:
            self.all_changed()
        self.slots.append(slot)

    def all_changed(self) -> None:
        self.epoch += 1
        self.slots = []


class Cursor:
    """How far somebody has read a log."""

    __slots__ = ("_at", "_epoch")

    def __init__(self) -> None:
        self._epoch = -1
        self._at = 0

    def unread(self, log: ChangeLog, worthwhile: int) -> Sequence[int] | None:
        """The slots that have changed since the last call; None: compute everything, as more than `worthwhile` have."""
        if self._epoch != log.epoch or len(log.slots) - self._at > worthwhile:
            self._epoch, self._at = log.epoch, len(log.slots)
            return None
        if self._at == len(log.slots):
            return ()
        changed = log.slots[self._at :]
        self._at = len(log.slots)
        return changed if len(changed) == 1 else list(dict.fromkeys(changed))


class Followed:
    """An array over slots that stays right by computing again only what has changed."""

    __slots__ = ("_cursor", "_values")

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._values: Ints | None = None

    def values(self, log: ChangeLog, compute: Callable[[], Ints], compute_one: Callable[[int], int]) -> Ints:
        """`compute()` gives the values of all slots, `compute_one(slot)` the same for one: numbers are quicker than
        arrays of one number. Nobody changes what is returned."""
        known = self._values
        changed = self._cursor.unread(log, 0 if known is None else len(known) // 32 + 4)
        if known is None or changed is None:
            known = self._values = compute()
        else:
            for slot in changed:
                known[slot] = compute_one(slot)
        return known
