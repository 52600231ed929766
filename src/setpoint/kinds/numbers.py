"""Numbers in specs and statuses: not negative, integers or percentages, counters that only grow."""

from __future__ import annotations

from setpoint.meta.field import Errors, invalid
from setpoint.meta.goformat import parse_integer
from setpoint.meta.names import percent
from setpoint.meta.objects import ObjView

NOT_NEGATIVE = "must be greater than or equal to 0"


def non_negative(value: int, path: str, errs: Errors) -> None:
    if value < 0:
        errs.append(invalid(path, value, NOT_NEGATIVE))


def non_negative_fields(holder: ObjView, names: tuple[str, ...], path: str, errs: Errors) -> None:
    for name in names:
        if holder.get(name, 0) < 0:
            errs.append(invalid(f"{path}.{name}", holder[name], NOT_NEGATIVE))


def int_or_percent(value: int | str, path: str, errs: Errors) -> None:
    if isinstance(value, str):
        errs.extend(invalid(path, value, text) for text in percent(value))
    else:
        non_negative(value, path, errs)


def number_of(value: int | str) -> int:
    """Return an integer, the number of a percentage, or the integer value of another text (0 if it has none)."""
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


def never_decremented(status: ObjView, old: ObjView, name: str, path: str, errs: Errors) -> None:
    value = status.get(name)
    before = old.get(name)
    if before is not None and (value is None or value < before):
        errs.append(invalid(f"{path}.{name}", value or 0, "cannot be decremented"))


def scaled_value(value: int | str, total: int, *, up: bool) -> int:
    """Scale a percentage of `total`, rounded up or down; return an integer unchanged."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%")) * total
    return -(-percent // 100) if up else percent // 100
