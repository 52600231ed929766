"""Resource amounts keep no more than milli precision."""

from __future__ import annotations

from typing import Any


def round_up_to_milli(amounts: dict[str, Any]) -> None:
    """Canonical quantities: only the suffixes n and u, or a negative exponent, can be finer than a thousandth."""
    for name, amount in amounts.items():
        if amount[-1] in "nu" or "e-" in amount or "E-" in amount:
            amounts[name] = _rounded(amount)


def _rounded(amount: str) -> str:
    from setpoint.meta.quantity import round_up  # rare: only for amounts below a thousandth

    return round_up(amount, -3)
