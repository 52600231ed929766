"""Arrays over nodes.

A slot is the position of a node in these arrays for as long as the node exists; every array has an element for every
slot, used or not.
"""

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
    """Return a copy with `capacity` elements in the last dimension; new ones are zero."""
    bigger = np.zeros((*array.shape[:-1], capacity), dtype=array.dtype)
    bigger[..., : array.shape[-1]] = array
    return bigger


class ChangeLog:
    """A log of changed slots, from which readers find what to recompute."""

    def __init__(self) -> None:
        self.epoch = 0
        """Incremented when every slot has changed; earlier log entries are then dropped."""
        self.slots: list[int] = []

    def add(self, slot: int) -> None:
        if len(self.slots) >= _LOG_LIMIT:
            self.all_changed()
        self.slots.append(slot)

    def all_changed(self) -> None:
        self.epoch += 1
        self.slots = []


class Cursor:
    """The read position of one reader of a log."""

    __slots__ = ("_at", "_epoch")

    def __init__(self) -> None:
        self._epoch = -1
        self._at = 0

    def unread(self, log: ChangeLog, worthwhile: int) -> Sequence[int] | None:
        """Return the slots that changed since the last call, or None if more than `worthwhile` did and everything
        should be recomputed."""
        if self._epoch != log.epoch or len(log.slots) - self._at > worthwhile:
            self._epoch, self._at = log.epoch, len(log.slots)
            return None
        if self._at == len(log.slots):
            return ()
        changed = log.slots[self._at :]
        self._at = len(log.slots)
        return changed if len(changed) == 1 else list(dict.fromkeys(changed))


class IncrementalArray:
    """An array over slots that recomputes only changed slots."""

    __slots__ = ("_cursor", "_values")

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._values: Ints | None = None

    def values(self, log: ChangeLog, compute: Callable[[], Ints], compute_one: Callable[[int], int]) -> Ints:
        """Return the values, which callers must not modify. `compute()` returns the values of all slots,
        `compute_one(slot)` that of one, which is faster for scalars."""
        known = self._values
        changed = self._cursor.unread(log, 0 if known is None else len(known) // 32 + 4)
        if known is None or changed is None:
            known = self._values = compute()
        else:
            for slot in changed:
                known[slot] = compute_one(slot)
        return known
