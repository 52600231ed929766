"""Numbers that are given as such or as a percentage of another."""

from __future__ import annotations


def share_of(value: int | str, total: int, *, up: bool) -> int:
    """`value` is a number or a percentage, of which `up` says how to round."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%")) * total
    return -(-percent // 100) if up else percent // 100
