"""Numbers in specs and statuses: not negative, integers or percentages, counters that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.meta.field import Errors, invalid
from setpoint.meta.integers import parse_integer
from setpoint.meta.names import percent

NOT_NEGATIVE = "must be greater than or equal to 0"


def non_negative(value: int, path: str, errs: Errors) -> None:
    if value < 0:
        errs.append(invalid(path, value, NOT_NEGATIVE))


def non_negative_fields(holder: Mapping[str, Any], names: tuple[str, ...], path: str, errs: Errors) -> None:
    for name in names:
        if holder.get(name, 0) < 0:
            errs.append(invalid(f"{path}.{name}", holder[name], NOT_NEGATIVE))


def int_or_percent(value: int | str, path: str, errs: Errors) -> None:
    if isinstance(value, str):
        errs.extend(invalid(path, value, text) for text in percent(value))
    else:
        non_negative(value, path, errs)


def number_of(value: int | str) -> int:
    """Return the number itself: of a percentage the part before the sign, of any other text what a lenient reader
    sees."""
    if isinstance(value, int):
        return value
    if not percent(value):
        return _go_integer(value[:-1])
    return _go_integer(value)


def _go_integer(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return 0
    return max(-(2**63), min(parse_integer(text), 2**63 - 1))


def at_most_100_percent(value: int | str, path: str, errs: Errors) -> None:
    if isinstance(value, str) and not percent(value) and _go_integer(value[:-1]) > 100:
        errs.append(invalid(path, value, "must not be greater than 100%"))


def never_decremented(status: Mapping[str, Any], old: Mapping[str, Any], name: str, path: str, errs: Errors) -> None:
    value = status.get(name)
    before = old.get(name)
    if before is not None and (value is None or value < before):
        errs.append(invalid(f"{path}.{name}", value or 0, "cannot be decremented"))
