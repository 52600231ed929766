"""Quantities: `500m`, `1.5Gi`, `1e3`.

A quantity is an exact whole number of nanos (what is finer is rounded away from zero, as the reference does), the
format it was written in (binary, decimal or exponent) and the text it is shown as. The reference shows a text that is
already tidy as it was written and rewrites every other: 1024Mi becomes 1Gi and 0.5 becomes 500m, but 1500Mi stays.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from setpoint.meta.caching import memoized

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

BINARY: Format = "BinarySI"
DECIMAL: Format = "DecimalSI"
EXPONENT: Format = "DecimalExponent"

NANO = 10**9
_MAX_BINARY = (2**63 - 1) * NANO
_MAX_EXPONENT = 4096
"""Maximum exponent, to bound the memory of a quantity; the reference has no limit."""

# The quantifiers are possessive: digits could be split in so many ways that one invalid text took minutes.
_SPLIT = re.compile(r"([+-]?)0*+([0-9]*+)(\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXPONENT_SUFFIX = re.compile(r"[eE]([+-]?[0-9]+)")
_INT64_DIGITS = 18


class QuantityError(ValueError):
    """The text is not a quantity; the message is the reference's."""


_BAD_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_BAD_NUMBER = "unable to parse numeric part of quantity"
_BAD_SUFFIX = "unable to parse quantity's suffix"


class Quantity(NamedTuple):
    nano: int
    format: Format
    text: str

    def value(self) -> int:
        """Return the value in whole units, rounded away from zero."""
        return _scaled(self.nano, NANO)

    def milli_value(self) -> int:
        """Return the value in thousandths, rounded away from zero."""
        return _scaled(self.nano, NANO // 1000)

    def is_integer(self) -> bool:
        return self.nano % NANO == 0

    def sign(self) -> int:
        return (self.nano > 0) - (self.nano < 0)

    def plus(self, other: Quantity) -> Quantity:
        """Return the sum, in the format of this quantity, or of the other one if this is zero."""
        return of_nano(self.nano + other.nano, self.format if self.nano else other.format)

    def minus(self, other: Quantity) -> Quantity:
        return of_nano(self.nano - other.nano, self.format if self.nano else other.format)


def _scaled(nano: int, unit: int) -> int:
    return -(-nano // unit) if nano >= 0 else nano // unit


def of_nano(nano: int, format: Format = DECIMAL) -> Quantity:
    return Quantity(nano, format, _render(nano, format))


def of_value(value: int, format: Format = DECIMAL) -> Quantity:
    return of_nano(value * NANO, format)


def of_milli(value: int, format: Format = DECIMAL) -> Quantity:
    return of_nano(value * (NANO // 1000), format)


def _render(nano: int, format: Format) -> str:
    if nano == 0:
        return "0"
    if format == BINARY and abs(nano) >= 1024 * NANO and nano % NANO == 0:
        number, times = nano // NANO, 0
        while number % 1024 == 0:
            number //= 1024
            times += 1
        # The reference has no suffix past Ei and then writes none.
        return f"{number}{_BINARY_SUFFIXES[times] if times < len(_BINARY_SUFFIXES) else ''}"
    number, exponent = nano, -9
    while number % 1000 == 0:
        number //= 1000
        exponent += 3
    if format == EXPONENT:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_SUFFIXES.get(exponent, '')}"


@memoized(maxsize=8192)
def parse(text: str) -> Quantity:
    match = _SPLIT.fullmatch(text) if text else None
    if match is None:
        raise QuantityError(_BAD_FORMAT)
    sign, whole, _, fraction, suffix = match.groups()
    whole, fraction = whole or "0", fraction or ""
    digits = whole + fraction
    if len(digits) > _MAX_EXPONENT:
        raise QuantityError(_BAD_NUMBER)
    decimal = _DECIMAL_EXPONENTS.get(suffix)
    if decimal is None and (binary := _BINARY_EXPONENTS.get(suffix)) is not None:
        return _parse_binary(text, sign, whole, fraction, binary)
    format: Format = DECIMAL
    if decimal is None:
        exponent = _EXPONENT_SUFFIX.fullmatch(suffix)
        if exponent is None or len(exponent[1]) > _INT64_DIGITS:
            raise QuantityError(_BAD_SUFFIX)
        format, decimal = EXPONENT, int(exponent[1])
        if decimal > _MAX_EXPONENT:
            raise QuantityError(_BAD_NUMBER)
    scale = decimal - len(fraction)
    number = int(digits)
    nano = _to_nano(number, scale)
    if sign == "-":
        nano = -nano
    # Upstream retains the text if the number fits 64 bits as written and has no shorter form.
    tidy = len(digits) <= _INT64_DIGITS and scale >= -9 and scale % 3 == 0
    if tidy and digits[-3:] != "000" and digits[0] != "0":
        return Quantity(nano, format, text)
    return of_nano(nano, format)


def _to_nano(number: int, scale: int) -> int:
    if scale >= -9:
        return int(number * 10 ** (scale + 9))
    if -scale - 9 > 2 * _MAX_EXPONENT:  # Rounds up to the smallest unit.
        return 1 if number else 0
    return int(-(-number // 10 ** (-scale - 9)))


def _parse_binary(text: str, sign: str, whole: str, fraction: str, exponent: int) -> Quantity:
    nano = -(-((int(whole + fraction) << exponent) * NANO) // 10 ** len(fraction))
    fits = not fraction and 15 - len(whole) - exponent * 3 // 10 - 1 >= 0
    format = BINARY
    if not fits:
        nano = min(nano, _MAX_BINARY)
        if 0 < nano < NANO:
            format = DECIMAL
    if sign == "-":
        nano = -nano
    if fits and int(whole) & 7:
        return Quantity(nano, format, text)
    return of_nano(nano, format)


@memoized(maxsize=8192)
def canonical(text: str) -> str:
    """Return the text that the reference would store and show for this one."""
    return parse(text.strip()).text


def compare(left: str, right: str) -> int:
    difference = parse(left).nano - parse(right).nano
    return (difference > 0) - (difference < 0)


def add(left: str, right: str) -> str:
    return parse(left).plus(parse(right)).text


def sub(left: str, right: str) -> str:
    return parse(left).minus(parse(right)).text


def value(text: str) -> int:
    return parse(text).value()


def milli_value(text: str) -> int:
    return parse(text).milli_value()


def is_integer(text: str) -> bool:
    return parse(text).is_integer()
