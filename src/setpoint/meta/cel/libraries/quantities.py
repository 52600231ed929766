"""Kubernetes' quantities (`500m`, `1Gi`) in expressions."""

from __future__ import annotations

from typing import Any

from setpoint.meta import quantity as quantities
from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import INT_MAX, INT_MIN, CelError, Opaque
from setpoint.meta.quantity import Quantity, QuantityError

_NANO = 10**9


class QuantityValue(Opaque):
    __slots__ = ("quantity",)
    TYPE = t.struct("kubernetes.Quantity")

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity

    def equals(self, other: Any) -> bool:
        return isinstance(other, QuantityValue) and self.quantity.nano == other.quantity.nano

    def __str__(self) -> str:
        return self.quantity.text


def _parse(text: str) -> QuantityValue:
    try:
        return QuantityValue(quantities.parse(text))
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
    whole, rest = divmod(value.quantity.nano, _NANO)
    return whole if rest == 0 and INT_MIN <= whole <= INT_MAX else None


def _as_integer(value: QuantityValue) -> int:
    found = _integer(value)
    if found is None:
        raise CelError("cannot convert value to integer")
    return found


def _add(one: QuantityValue, other: Any) -> QuantityValue:
    return QuantityValue(one.quantity.plus(_operand(other)))


def _sub(one: QuantityValue, other: Any) -> QuantityValue:
    return QuantityValue(one.quantity.minus(_operand(other)))


def _operand(other: Any) -> Quantity:
    return other.quantity if isinstance(other, QuantityValue) else quantities.of_value(other)


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
