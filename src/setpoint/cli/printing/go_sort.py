"""Reproduce the order in which Go's `sort.Sort` leaves equal elements.

It is not stable: which of two equal objects comes first depends on the algorithm (pattern-defeating quicksort,
insertion sort up to twelve). kubectl sorts with it, and many objects are equal by common sort fields, such as
everything that a rollout created within one second.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

Less = Callable[[int, int], bool]
"""Returns whether the first of two elements, given by index, comes before the second."""

_INSERTION = 12
_NINTHER = 50
_MAX_SWAPS = 12
_SHIFTING = 50
_STEPS = 5
_MASK = 2**64 - 1


def sort(count: int, less: Less) -> list[int]:
    """Return the indices below `count` in order."""
    sorter = _Sorter(count, less)
    if count > 1:
        sorter.quick(0, count, count.bit_length())
    return sorter.order


class _Hint(Enum):
    UNKNOWN = 0
    INCREASING = 1
    DECREASING = 2


class _Sorter:
    """Sorts positions, not elements."""

    def __init__(self, count: int, less: Less) -> None:
        self.order = list(range(count))
        self._less = less

    def less(self, left: int, right: int) -> bool:
        return self._less(self.order[left], self.order[right])

    def swap(self, left: int, right: int) -> None:
        order = self.order
        order[left], order[right] = order[right], order[left]

    def quick(self, start: int, end: int, limit: int) -> None:
        balanced = partitioned = True
        while end - start > _INSERTION:
            length = end - start
            if limit == 0:
                self._heap(start, end)
                return
            if not balanced:
                self._break_patterns(start, end)
                limit -= 1
            pivot, hint = self._pivot(start, end)
            if hint is _Hint.DECREASING:
                self.order[start:end] = self.order[start:end][::-1]
                pivot = end - 1 - (pivot - start)
                hint = _Hint.INCREASING
            if balanced and partitioned and hint is _Hint.INCREASING and self._nearly_sorted(start, end):
                return
            if start > 0 and not self.less(start - 1, pivot):
                start = self._partition_equal(start, end, pivot)
                continue
            middle, partitioned = self._partition(start, end, pivot)
            left, right = middle - start, end - middle
            balanced = min(left, right) >= length // 8
            if left < right:
                self.quick(start, middle, limit)
                start = middle + 1
            else:
                self.quick(middle + 1, end, limit)
                end = middle
        self._insertion(start, end)

    def _insertion(self, start: int, end: int) -> None:
        for at in range(start + 1, end):
            while at > start and self.less(at, at - 1):
                self.swap(at, at - 1)
                at -= 1

    def _partition(self, start: int, end: int, pivot: int) -> tuple[int, bool]:
        """Move elements less than the pivot to its left; return the pivot's position, and whether nothing moved."""
        self.swap(start, pivot)
        left, right = start + 1, end - 1
        moved = False
        while True:
            while left <= right and self.less(left, start):
                left += 1
            while left <= right and not self.less(right, start):
                right -= 1
            if left > right:
                break
            self.swap(left, right)
            moved = True
            left, right = left + 1, right - 1
        self.swap(right, start)
        return right, not moved

    def _partition_equal(self, start: int, end: int, pivot: int) -> int:
        """Move elements equal to the pivot to the left; return where the rest begins."""
        self.swap(start, pivot)
        left, right = start + 1, end - 1
        while True:
            while left <= right and not self.less(start, left):
                left += 1
            while left <= right and self.less(start, right):
                right -= 1
            if left > right:
                return left
            self.swap(left, right)
            left, right = left + 1, right - 1

    def _nearly_sorted(self, start: int, end: int) -> bool:
        """Return whether the range is sorted, after a few attempts to sort it."""
        at = start + 1
        for _ in range(_STEPS):
            while at < end and not self.less(at, at - 1):
                at += 1
            if at == end:
                return True
            if end - start < _SHIFTING:
                return False
            self.swap(at, at - 1)
            if at - start >= 2:
                back = at - 1
                while back >= 1 and self.less(back, back - 1):
                    self.swap(back, back - 1)
                    back -= 1
            if end - at >= 2:
                forth = at + 1
                while forth < end and self.less(forth, forth - 1):
                    self.swap(forth, forth - 1)
                    forth += 1
        return False

    def _break_patterns(self, start: int, end: int) -> None:
        length = end - start
        state, modulus = length, 1 << length.bit_length()
        index = start + length // 4 * 2 - 1
        for step in range(3):
            state ^= state << 13 & _MASK
            state ^= state >> 7
            state ^= state << 17 & _MASK
            other = state & (modulus - 1)
            self.swap(index + step, start + (other - length if other >= length else other))

    def _pivot(self, start: int, end: int) -> tuple[int, _Hint]:
        quarter = (end - start) // 4
        first, second, third = start + quarter, start + quarter * 2, start + quarter * 3
        swaps = 0

        def median(a: int, b: int, c: int) -> int:
            nonlocal swaps
            if self.less(b, a):
                swaps += 1
                a, b = b, a
            if self.less(c, b):
                swaps += 1
                b = c
            if self.less(b, a):
                swaps += 1
                b = a
            return b

        if end - start >= _NINTHER:
            first, second, third = (median(at - 1, at, at + 1) for at in (first, second, third))
        pivot = median(first, second, third)
        if swaps == 0:
            return pivot, _Hint.INCREASING
        return pivot, _Hint.DECREASING if swaps == _MAX_SWAPS else _Hint.UNKNOWN

    def _heap(self, start: int, end: int) -> None:
        count = end - start
        for root in range((count - 1) // 2, -1, -1):
            self._sift(root, count, start)
        for last in range(count - 1, -1, -1):
            self.swap(start, start + last)
            self._sift(0, last, start)

    def _sift(self, root: int, count: int, start: int) -> None:
        while (child := 2 * root + 1) < count:
            if child + 1 < count and self.less(start + child, start + child + 1):
                child += 1
            if not self.less(start + root, start + child):
                return
            self.swap(start + root, start + child)
            root = child
