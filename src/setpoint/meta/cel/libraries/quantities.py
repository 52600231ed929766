"""Kubernetes' quantities (`500m`, `1Gi`) in expressions."""

from __future__ import annotations

import re
from typing import Any

from setpoint.meta import quantity as quantities
from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import INT_MAX, INT_MIN, CelError, Opaque
from setpoint.meta.quantity import Quantity, QuantityError

_NANO = 10**9
_TEXT = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(.*)", re.ASCII)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

Amount = tuple[int, int]
"""A number and its power of ten.

The reference represents a quantity this way if it fits 64 bits. Only then, and only if the power is not negative, is it
an integer in expressions: `1.0` is not."""


class QuantityValue(Opaque):
    __slots__ = ("amount", "quantity")
    TYPE = t.struct("kubernetes.Quantity")

    def __init__(self, quantity: Quantity, amount: Amount | None) -> None:
        self.quantity = quantity
        self.amount = amount

    def equals(self, other: Any) -> bool:
        return isinstance(other, QuantityValue) and self.quantity.nano == other.quantity.nano

    def __str__(self) -> str:
        return self.quantity.text


def _amount(text: str) -> Amount | None:
    found = _TEXT.fullmatch(text)
    assert found is not None
    sign, whole, fraction, suffix = found[1], found[2] or "0", found[3] or "", found[4]
    factor = 1
    if suffix in _BINARY:
        exponent = _BINARY[suffix]
        if fraction or 15 - len(whole) - int(exponent * 3 / 10) - 1 < 0:
            return None
        scale, factor = 0, 1 << exponent
    else:
        scale = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        if 18 - len(whole) - len(fraction) < 0:
            return None
        scale -= len(fraction)
    value = int(whole + fraction) * factor
    if scale < -9 or value > INT_MAX:
        return None
    return (-value if sign == "-" else value), scale


def _added(one: Amount | None, other: Amount | None) -> Amount | None:
    if one is None or other is None:
        return None
    if other[0] == 0:
        return one
    if one[0] == 0:
        return other
    scale = min(one[1], other[1])
    total = one[0] * 10 ** (one[1] - scale) + other[0] * 10 ** (other[1] - scale)
    return (total, scale) if INT_MIN <= total <= INT_MAX else None


def _parse(text: str) -> QuantityValue:
    try:
        return QuantityValue(quantities.parse(text), _amount(text))
    except QuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        quantities.parse(text)
    except QuantityError:
        return False
    return True


def _compare(one: QuantityValue, other: QuantityValue) -> int:
    return (one.quantity.nano > other.quantity.nano) - (one.quantity.nano < other.quantity.nano)


def _integer(value: QuantityValue) -> int | None:
    if value.amount is None or value.amount[1] < 0 or value.amount[1] > 18:
        return 0 if value.amount is not None and value.amount[0] == 0 else None
    whole = value.amount[0] * 10 ** value.amount[1]
    return whole if INT_MIN <= whole <= INT_MAX else None


def _as_integer(value: QuantityValue) -> int:
    found = _integer(value)
    if found is None:
        raise CelError("cannot convert value to integer")
    return found


def _add(one: QuantityValue, other: Any) -> QuantityValue:
    addend = _operand(other)
    return QuantityValue(one.quantity.plus(addend.quantity), _added(one.amount, addend.amount))


def _sub(one: QuantityValue, other: Any) -> QuantityValue:
    operand = _operand(other)
    negated = None if operand.amount is None else (-operand.amount[0], operand.amount[1])
    return QuantityValue(one.quantity.minus(operand.quantity), _added(one.amount, negated))


def _operand(other: Any) -> QuantityValue:
    return other if isinstance(other, QuantityValue) else QuantityValue(quantities.of_value(other), (other, 0))


_Q = "kubernetes.Quantity"
QUANTITY = Library(
    "kubernetes.quantity",
    (
        ("string_to_quantity", f"quantity(string) -> {_Q}", _parse),
        ("is_quantity_string", "isQuantity(string) -> bool", _is_quantity),
        ("quantity_sign", f"sign({_Q}) -> int", lambda value: value.quantity.sign()),
        ("quantity_is_greater_than", f"{_Q}::isGreaterThan({_Q}) -> bool", lambda a, b: _compare(a, b) > 0),
        ("quantity_is_less_than", f"{_Q}::isLessThan({_Q}) -> bool", lambda a, b: _compare(a, b) < 0),
        ("quantity_compare_to", f"{_Q}::compareTo({_Q}) -> int", _compare),
        ("quantity_get_float", f"{_Q}::asApproximateFloat() -> double", lambda value: value.quantity.nano / _NANO),
        ("quantity_get_int", f"{_Q}::asInteger() -> int", _as_integer),
        ("quantity_is_integer", f"{_Q}::isInteger() -> bool", lambda value: _integer(value) is not None),
        ("quantity_add", f"{_Q}::add({_Q}) -> {_Q}", _add),
        ("quantity_add_int", f"{_Q}::add(int) -> {_Q}", _add),
        ("quantity_sub", f"{_Q}::sub({_Q}) -> {_Q}", _sub),
        ("quantity_sub_int", f"{_Q}::sub(int) -> {_Q}", _sub),
    ),
)
