"""Equality, order and arithmetic of values whose types are known only at run time."""

from __future__ import annotations

import math
from typing import Any

from setpoint.meta.cel.go_text import format_general
from setpoint.meta.cel.types import Type
from setpoint.meta.cel.values import (
    INT_MAX,
    INT_MIN,
    MAX_CHARACTERS,
    MAX_ELEMENTS,
    MISSING,
    SECOND,
    UINT_MAX,
    BoolKey,
    CelError,
    Duration,
    Message,
    Opaque,
    Optional,
    Timestamp,
    TypedList,
    TypedMap,
    Uint,
    bounded,
    is_list,
    is_map,
    key_back,
    key_of,
    no_such_overload,
    type_of_value,
)

_NUMBERS = frozenset({int, float, Uint})
_SIMPLE = frozenset({str, int, float, Uint, bytes, bool, Duration, Timestamp, type(None), BoolKey})
MIN_TIMESTAMP = -62135596800 * SECOND
MAX_TIMESTAMP = 253402300799 * SECOND + 999_999_999


def equals(left: Any, right: Any) -> bool:
    """Return whether two values are equal. Values of different types differ; numbers are compared by value."""
    kind, other = type(left), type(right)
    if kind in _SIMPLE:
        if kind is other:
            return bool(left == right)
        if kind in _NUMBERS and other in _NUMBERS:
            return left == left and right == right and _order(left, right) == 0
        return False
    if kind is list:
        if other is list:
            return len(left) == len(right) and all(map(equals, left, right))
        return isinstance(right, TypedList) and len(left) == len(right) and all(map(equals, left, right))
    if kind is dict:
        return _equal_maps(left, right)
    if isinstance(left, TypedList | TypedMap | Opaque):
        return left.equals(right)
    if isinstance(left, Optional):
        if not isinstance(right, Optional) or left.present != right.present:
            return False
        return not left.present or equals(left.value, right.value)
    if isinstance(left, Message):
        return isinstance(right, Message) and left.type == right.type and _equal_maps(left.fields, right.fields)
    if isinstance(left, Type):
        return isinstance(right, Type) and left.name == right.name
    return left is right


def _equal_maps(left: dict[Any, Any], right: Any) -> bool:
    if not is_map(right) or len(left) != len(right):
        return False
    for key, value in left.items():
        other = find(right, key_back(key))
        if other is MISSING or not equals(value, other):
            return False
    return True


def find(container: Any, key: Any) -> Any:
    """Return the value of a key in a map, or MISSING."""
    if type(container) is dict:
        try:
            return container.get(key_of(key) if type(key) is bool else key, MISSING)
        except TypeError:
            return MISSING
    return container.find(key)


def compare(left: Any, right: Any, function: str) -> int:
    """Compare two values and return -1, 0 or 1."""
    kind, other = type(left), type(right)
    if kind is other and kind in (str, int, bytes, bool, Uint):
        return _sign(left, right)
    if kind in _NUMBERS and other in _NUMBERS:
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
        return _order(left, right)
    if kind is other and kind in (Duration, Timestamp):
        return _sign(left.nanoseconds, right.nanoseconds)
    raise no_such_overload() if kind in _SIMPLE and left is not None else no_such_overload(function)


def _order(left: Any, right: Any) -> int:
    """Compare numbers of different types. An integer is compared with a double as a double, within the range of
    doubles."""
    if type(left) is float and type(right) is not float:
        return -_order(right, left)
    if type(right) is float and type(left) is not float:
        low, high = (
            (0.0, 18446744073709551615.0) if type(left) is Uint else (-9223372036854775808.0, 9223372036854775807.0)
        )
        if right < low:
            return 1
        if right > high:
            return -1
        return _sign(float(left), right)
    return _sign(left, right)


def _sign(left: Any, right: Any) -> int:
    return 1 if left > right else -1 if left < right else 0


def less(left: Any, right: Any) -> bool:
    return compare(left, right, "_<_") < 0


def less_equal(left: Any, right: Any) -> bool:
    return compare(left, right, "_<=_") <= 0


def greater(left: Any, right: Any) -> bool:
    return compare(left, right, "_>_") > 0


def greater_equal(left: Any, right: Any) -> bool:
    return compare(left, right, "_>=_") >= 0


def checked_int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def checked_duration(value: int) -> Duration:
    if INT_MIN <= value <= INT_MAX:
        return Duration(value)
    raise CelError("duration overflow")


def checked_timestamp(value: int, offset: int = 0) -> Timestamp:
    if MIN_TIMESTAMP <= value <= MAX_TIMESTAMP:
        return Timestamp(value, offset)
    raise CelError("timestamp overflow")


def _unsupported(left: Any, function: str) -> CelError:
    """Return the error for unsupported arithmetic; for values without any arithmetic it names the operator."""
    known = (int, float, Uint, Duration, Timestamp, str)
    return no_such_overload() if type(left) in known else no_such_overload(function)


def plus(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left + right)
        if kind is float:
            return left + right
        if kind in (str, bytes, list):
            bounded(len(left) + len(right), MAX_ELEMENTS if kind is list else MAX_CHARACTERS)
            return left + right
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind is Duration:
            return checked_duration(left.nanoseconds + right.nanoseconds)
    if kind is Timestamp and other is Duration:
        return checked_timestamp(left.nanoseconds + right.nanoseconds, left.offset)
    if kind is Duration and other is Timestamp:
        return checked_timestamp(left.nanoseconds + right.nanoseconds, right.offset)
    if is_list(left) and is_list(right):
        bounded(len(left) + len(right), MAX_ELEMENTS)
        return left.plus(right) if isinstance(left, TypedList) else [*left, *right]
    if kind in (bool, type(None)) or is_map(left):
        raise no_such_overload("_+_")
    raise no_such_overload()


def minus(left: Any, right: Any) -> Any:
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left - right)
        if kind is float:
            return left - right
        if kind is Uint:
            return checked_uint(int(left) - int(right))
        if kind is Duration:
            return checked_duration(left.nanoseconds - right.nanoseconds)
        if kind is Timestamp:
            return checked_duration(left.nanoseconds - right.nanoseconds)
    if kind is Timestamp and other is Duration:
        return checked_timestamp(left.nanoseconds - right.nanoseconds, left.offset)
    raise _unsupported(left, "_-_")


def times(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)
        if kind is float:
            return left * right
        if kind is Uint:
            return checked_uint(int(left) * int(right))
    raise _unsupported(left, "_*_")


def divided(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right):
        if kind is float:
            return _float_division(left, right)
        if kind in (int, Uint):
            if right == 0:
                raise CelError("division by zero")
            quotient = abs(left) // abs(right)
            if kind is Uint:
                return Uint(quotient)
            return checked_int(quotient if (left < 0) == (right < 0) else -quotient)
    raise _unsupported(left, "_/_")


def _float_division(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Any, right: Any) -> Any:
    kind = type(left)
    if kind is type(right) and kind in (int, Uint):
        if right == 0:
            raise CelError("modulus by zero")
        if kind is int and left == INT_MIN and right == -1:
            raise CelError("integer overflow")
        rest = abs(left) % abs(right)
        return Uint(rest) if kind is Uint else (-rest if left < 0 else rest)
    raise no_such_overload("_%_") if kind is float else _unsupported(left, "_%_")


def negated(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return checked_duration(-value.nanoseconds)
    raise no_such_overload("-_")


def index_of(index: Any) -> int:
    """Return a position in a list."""
    kind = type(index)
    if kind is int or kind is Uint:
        return int(index)
    if kind is float:
        if index == index and abs(index) != math.inf and index == int(index):
            return int(index)
        raise CelError(f"unsupported index value {show(index)} in list")
    raise CelError(f"unsupported index type '{type_of_value(index).name}' in list")


def get_index(container: Any, index: Any) -> Any:
    """Return `container[index]`."""
    found = find_index(container, index)
    if found is MISSING:
        if is_list(container):
            raise CelError(f"index out of bounds: {show(index)}")
        raise CelError(f"no such key: {show(index)}")
    return found


def find_index(container: Any, index: Any) -> Any:
    """Return the same, or MISSING."""
    if is_map(container):
        return find(container, index)
    if is_list(container):
        position = index_of(index)
        return container[position] if 0 <= position < len(container) else MISSING
    if isinstance(container, Message):
        return container.fields.get(index, MISSING)
    return MISSING


def contains(element: Any, container: Any) -> bool:
    """Return `element in container`."""
    if is_list(container):
        return _among(element, container)
    if is_map(container):
        return find(container, element) is not MISSING
    raise no_such_overload()


def _among(element: Any, container: Any) -> bool:
    error: CelError | None = None
    for candidate in container:
        try:
            if equals(candidate, element):
                return True
        except CelError as problem:
            error = error or problem
    if error is not None:
        raise error
    return False


def show(value: Any) -> str:
    """Return a value as error messages show it."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return format_general(value)
    if type(value) is Uint:
        return str(int(value))
    return str(value)
