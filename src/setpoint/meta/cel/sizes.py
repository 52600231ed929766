"""Ranges of sizes and costs, in unsigned 64-bit integers with saturating arithmetic."""

from __future__ import annotations

import math
from typing import NamedTuple

MAX_UINT64 = (1 << 64) - 1


def _add(left: int, right: int) -> int:
    return min(left + right, MAX_UINT64)


def _multiply(left: int, right: int) -> int:
    return min(left * right, MAX_UINT64)


def _scale(size: int, factor: float) -> int:
    value = float(size)
    if value > 0 and factor > 0 and value > 18446744073709551615.0 / factor:
        return MAX_UINT64
    scaled = math.ceil(value * factor)
    return MAX_UINT64 if scaled >= 1 << 64 else scaled


class CostRange(NamedTuple):
    """Minimum and maximum cost."""

    min: int
    max: int

    def plus(self, other: CostRange) -> CostRange:
        return CostRange(_add(self.min, other.min), _add(self.max, other.max))

    def multiplied(self, other: CostRange) -> CostRange:
        return CostRange(_multiply(self.min, other.min), _multiply(self.max, other.max))

    def times(self, factor: float) -> CostRange:
        return CostRange(_scale(self.min, factor), _scale(self.max, factor))

    def union(self, other: CostRange) -> CostRange:
        return CostRange(min(self.min, other.min), max(self.max, other.max))


class SizeRange(NamedTuple):
    """Minimum and maximum size."""

    min: int
    max: int

    def plus(self, other: SizeRange) -> SizeRange:
        return SizeRange(_add(self.min, other.min), _add(self.max, other.max))

    def multiplied(self, other: SizeRange) -> SizeRange:
        return SizeRange(_multiply(self.min, other.min), _multiply(self.max, other.max))

    def times(self, factor: float) -> CostRange:
        """Return the cost of traversing this size at that cost per unit, rounded up."""
        return CostRange(_scale(self.min, factor), _scale(self.max, factor))

    def times_cost(self, cost: CostRange) -> CostRange:
        return CostRange(_multiply(self.min, cost.min), _multiply(self.max, cost.max))

    def union(self, other: SizeRange) -> SizeRange:
        return SizeRange(min(self.min, other.min), max(self.max, other.max))


class CallEstimate(NamedTuple):
    """The cost of a call, and the size of its result if that is known."""

    cost: CostRange
    size: SizeRange | None = None


def fixed(size: int) -> SizeRange:
    return SizeRange(size, size)


ONE = SizeRange(1, 1)
UNKNOWN = SizeRange(0, MAX_UINT64)
