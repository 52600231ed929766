"""Ranges of sizes and costs, in unsigned 64-bit integers that stop at their largest value instead of wrapping."""

from __future__ import annotations

import math
from typing import NamedTuple

MOST = (1 << 64) - 1


def _add(left: int, right: int) -> int:
    return min(left + right, MOST)


def _multiply(left: int, right: int) -> int:
    return min(left * right, MOST)


def _scale(size: int, factor: float) -> int:
    value = float(size)
    if value > 0 and factor > 0 and value > 18446744073709551615.0 / factor:
        return MOST
    scaled = math.ceil(value * factor)
    return MOST if scaled >= 1 << 64 else scaled


class CostRange(NamedTuple):
    """Minimum and maximum cost."""

    least: int
    most: int

    def plus(self, other: CostRange) -> CostRange:
        return CostRange(_add(self.least, other.least), _add(self.most, other.most))

    def multiplied(self, other: CostRange) -> CostRange:
        return CostRange(_multiply(self.least, other.least), _multiply(self.most, other.most))

    def times(self, factor: float) -> CostRange:
        return CostRange(_scale(self.least, factor), _scale(self.most, factor))

    def union(self, other: CostRange) -> CostRange:
        return CostRange(min(self.least, other.least), max(self.most, other.most))


class SizeRange(NamedTuple):
    """Minimum and maximum size."""

    least: int
    most: int

    def plus(self, other: SizeRange) -> SizeRange:
        return SizeRange(_add(self.least, other.least), _add(self.most, other.most))

    def multiplied(self, other: SizeRange) -> SizeRange:
        return SizeRange(_multiply(self.least, other.least), _multiply(self.most, other.most))

    def times(self, factor: float) -> CostRange:
        """Return the cost of traversing this size at that cost per unit, rounded up."""
        return CostRange(_scale(self.least, factor), _scale(self.most, factor))

    def times_cost(self, cost: CostRange) -> CostRange:
        return CostRange(_multiply(self.least, cost.least), _multiply(self.most, cost.most))

    def union(self, other: SizeRange) -> SizeRange:
        return SizeRange(min(self.least, other.least), max(self.most, other.most))


class CallEstimate(NamedTuple):
    """The cost of a call, and the size of its result if that is known."""

    cost: CostRange
    size: SizeRange | None = None


def fixed(size: int) -> SizeRange:
    return SizeRange(size, size)


ONE = SizeRange(1, 1)
UNKNOWN = SizeRange(0, MOST)
