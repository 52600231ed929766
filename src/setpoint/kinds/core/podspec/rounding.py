"""Rounding of resource amounts to milli precision."""

from __future__ import annotations

from typing import Any

from setpoint.meta.quantity import of_milli, parse


def round_up_to_milli(amounts: dict[str, Any]) -> None:
    """Round canonical quantities; only the suffixes n and u, or a negative exponent, can be finer than milli."""
    for name, amount in amounts.items():
        if amount[-1] in "nu" or "e-" in amount or "E-" in amount:
            exact = parse(amount)
            if exact.nano % 1_000_000:
                amounts[name] = of_milli(exact.milli_value(), exact.format).text
