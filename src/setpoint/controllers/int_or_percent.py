"""Values that are an integer or a percentage (upstream's IntOrString)."""

from __future__ import annotations


def scaled_value(value: int | str, total: int, *, up: bool) -> int:
    """Scale a percentage of `total`, rounded up or down; return an integer unchanged."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%")) * total
    return -(-percent // 100) if up else percent // 100
