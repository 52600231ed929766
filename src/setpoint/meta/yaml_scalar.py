"""Resolution of plain YAML scalars: YAML 1.1 as in upstream's library, which also decides about quoting.

Yes, no, on, off, y and n are booleans; a leading zero means octal; dates and base-60 numbers are strings.
"""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

from setpoint.meta.caching import memoized

STR, BOOL, INT, FLOAT, NULL, MERGE, TIMESTAMP, BINARY = (
    "!!str",
    "!!bool",
    "!!int",
    "!!float",
    "!!null",
    "!!merge",
    "!!timestamp",
    "!!binary",
)


class Resolved(NamedTuple):
    tag: str
    value: Any


_WORDS: dict[str, Resolved] = {"": Resolved(NULL, None), "~": Resolved(NULL, None)}
for _tag, _value, _words in (
    (BOOL, True, ("yes", "true", "on")),
    (BOOL, False, ("no", "false", "off")),
    (NULL, None, ("null",)),
):
    for _word in _words:
        for _form in (_word, _word.capitalize(), _word.upper()):
            _WORDS[_form] = Resolved(_tag, _value)
for _word, _value in (("y", True), ("Y", True), ("n", False), ("N", False)):
    _WORDS[_word] = Resolved(BOOL, _value)
for _form in (".nan", ".NaN", ".NAN"):
    _WORDS[_form] = Resolved(FLOAT, float("nan"))
for _form in (".inf", ".Inf", ".INF"):
    _WORDS[_form] = _WORDS["+" + _form] = Resolved(FLOAT, float("inf"))
    _WORDS["-" + _form] = Resolved(FLOAT, float("-inf"))

_INT = re.compile(r"([+-]?)(?:(0[xX])([0-9a-fA-F]+)|(0[bB])([01]+)|(0[oO]?)([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_LENGTH = 400
"""Maximum number of digits of a number; longer texts are strings."""
_TIMESTAMP = re.compile(
    r"[0-9]{4}-(1[0-2]|0?[1-9])-(0?[1-9]|[12][0-9]|3[01])"
    r"([Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?)?"
)


@memoized(maxsize=2048)
def resolve(text: str) -> Resolved:
    """Return the type and value of a plain scalar without a tag."""
    word = _WORDS.get(text)
    if word is not None:
        return word
    first = text[0]
    if first == ".":
        number = _number(text)
        return Resolved(FLOAT, number) if number is not None else Resolved(STR, text)
    if first not in "+-0123456789" or len(text) > _MAX_LENGTH:
        return Resolved(STR, text)
    if _TIMESTAMP.fullmatch(text):
        return Resolved(TIMESTAMP, text)
    plain = text.replace("_", "")
    integer = _integer(plain)
    if integer is not None:
        return Resolved(INT, integer)
    number = _number(plain)
    return Resolved(FLOAT, number) if number is not None else Resolved(STR, text)


def _integer(text: str) -> int | None:
    match = _INT.fullmatch(text)
    if match is None:
        return None
    sign, _, hexadecimal, _, binary, _, octal, decimal = match.groups()
    if hexadecimal is not None:
        value = int(hexadecimal, 16)
    elif binary is not None:
        value = int(binary, 2)
    elif octal is not None:
        value = int(octal, 8)
    else:
        value = int(decimal)
    if sign == "-":
        value = -value
    return value if -(2**63) <= value < (2**63 if sign else 2**64) else None


def _number(text: str) -> float | None:
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) != float("inf") else None


def shortest(number: float, bits: int = 64) -> str:
    """Return a float as Go's %g in its shortest form for that many bits, which is how YAML has them."""
    if number != number:
        return ".nan"
    if abs(number) == float("inf"):
        return ".inf" if number > 0 else "-.inf"
    digits, _, exponent = (_shortest32(number) if bits == 32 else repr(number)).partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    point = len(whole) + int(exponent or 0)
    all_digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(all_digits)
    all_digits = all_digits.rstrip("0") or "0"
    if all_digits == "0":
        return f"{sign}0"
    power = point - 1
    if not -4 <= power < 6:
        mantissa = all_digits[0] + ("." + all_digits[1:] if len(all_digits) > 1 else "")
        return f"{sign}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{all_digits}"
    if point >= len(all_digits):
        return sign + all_digits + "0" * (point - len(all_digits))
    return f"{sign}{all_digits[:point]}.{all_digits[point:]}"


def _shortest32(number: float) -> str:
    try:
        packed = struct.pack("f", number)
    except OverflowError:
        return repr(float("inf"))
    for places in range(9):
        text = f"{number:.{places}e}"
        if struct.pack("f", float(text)) == packed:
            return text
    return f"{number:.9e}"
