"""The math extension of CEL. Kubernetes does not have it; environments of other uses may."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.macros import VARIADIC, Macro, MacroMisuse
from setpoint.meta.cel.operators import compare
from setpoint.meta.cel.syntax import Call, Expr, Ident, ListExpr, Literal, MapExpr, Struct
from setpoint.meta.cel.values import INT_MIN, UINT_MAX, CelError, Uint

_KINDS = ("double", "int", "uint")


def _numeric(expr: Expr) -> bool:
    """Return whether the expression may be a number: before type checking only known non-numbers are rejected."""
    if isinstance(expr, Literal):
        return type(expr.value) in (int, float, Uint)
    return not isinstance(expr, ListExpr | MapExpr | Struct)


def _extreme_macro(name: str, function: str) -> Macro:
    def expand(at: int, target: Expr | None, arguments: list[Expr]) -> Expr | None:
        if not isinstance(target, Ident) or target.name != "math":
            return None
        if not arguments:
            raise MacroMisuse(f"math.{name}() requires at least one argument", target.position)
        if len(arguments) == 1:
            only = arguments[0]
            listed = isinstance(only, ListExpr) and only.elements and all(map(_numeric, only.elements))
            if listed or _numeric(only):
                return Call(at, function, [only])
            raise MacroMisuse(f"math.{name}() invalid single argument value", only.position)
        for argument in arguments:
            if not _numeric(argument):
                raise MacroMisuse(f"math.{name}() simple literal arguments must be numeric", argument.position)
        return Call(at, function, arguments if len(arguments) == 2 else [ListExpr(at, arguments)])

    return expand


def _pick(name: str, wanted: int) -> list[tuple[str, str, Any]]:
    function = f"math.@{name}"

    def pair(one: Any, other: Any) -> Any:
        return other if compare(one, other, function) == wanted else one

    def listed(values: Any) -> Any:
        elements = list(values)
        if not elements:
            raise CelError(f"{function}(list) argument must not be empty")
        best = elements[0]
        for element in elements[1:]:
            best = pair(best, element)
        return best

    found: list[tuple[str, str, Any]] = []
    for kind in _KINDS:
        found.append((f"math_@{name}_{kind}", f"{function}({kind}) -> {kind}", lambda value: value))
        found.append((f"math_@{name}_list_{kind}", f"{function}(list({kind})) -> {kind}", listed))
        for other in _KINDS:
            result = kind if kind == other else "dyn"
            found.append((f"math_@{name}_{kind}_{other}", f"{function}({kind}, {other}) -> {result}", pair))
    return found


def _integral(apply: Callable[[float], float]) -> Callable[[float], float]:
    return lambda value: value if not math.isfinite(value) else float(apply(value))


def _round(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _abs(value: Any) -> Any:
    if type(value) is int and value == INT_MIN:
        raise CelError("integer overflow")
    return Uint(value) if type(value) is Uint else abs(value)


def _sign(value: Any) -> Any:
    if value != value:
        return value
    return type(value)((value > 0) - (value < 0))


def _signed(value: int) -> int:
    value &= UINT_MAX
    return value - (1 << 64) if value >> 63 else value


def _offset(name: str, bits: int) -> int:
    if bits < 0:
        raise CelError(f"math.{name}() negative offset: {bits}")
    return min(bits, 64)


def _shift_left(value: Any, bits: int) -> Any:
    shifted = int(value) << _offset("bitShiftLeft", bits)
    return Uint(shifted & UINT_MAX) if type(value) is Uint else _signed(shifted)


def _shift_right(value: Any, bits: int) -> Any:
    shifted = (int(value) & UINT_MAX) >> _offset("bitShiftRight", bits)
    return Uint(shifted) if type(value) is Uint else _signed(shifted)


def _bitwise(apply: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    return lambda one, other: type(one)(apply(int(one), int(other)))


def _not(value: Any) -> Any:
    return Uint(int(value) ^ UINT_MAX) if type(value) is Uint else ~value


def _declared() -> list[tuple[str, str, Any]]:
    found = [*_pick("min", 1), *_pick("max", -1)]
    roundings: dict[str, Callable[[float], float]] = {
        "ceil": math.ceil,
        "floor": math.floor,
        "round": _round,
        "trunc": math.trunc,
    }
    for name, apply in roundings.items():
        found.append((f"math_{name}_double", f"math.{name}(double) -> double", _integral(apply)))
    for name, test in {"isInf": math.isinf, "isNaN": math.isnan, "isFinite": math.isfinite}.items():
        found.append((f"math_{name}_double", f"math.{name}(double) -> bool", test))
    for kind in _KINDS:
        found.append((f"math_abs_{kind}", f"math.abs({kind}) -> {kind}", _abs))
        found.append((f"math_sign_{kind}", f"math.sign({kind}) -> {kind}", _sign))
        found.append((f"math_sqrt_{kind}", f"math.sqrt({kind}) -> double", _sqrt))
    for kind in ("int", "uint"):
        for name, bits in (("And", int.__and__), ("Or", int.__or__), ("Xor", int.__xor__)):
            signature = f"math.bit{name}({kind}, {kind}) -> {kind}"
            found.append((f"math_bit{name}_{kind}_{kind}", signature, _bitwise(bits)))
        found.append((f"math_bitNot_{kind}_{kind}", f"math.bitNot({kind}) -> {kind}", _not))
        for name, shift in (("Left", _shift_left), ("Right", _shift_right)):
            signature = f"math.bitShift{name}({kind}, int) -> {kind}"
            found.append((f"math_bitShift{name}_{kind}_int", signature, shift))
    return found


def _sqrt(value: Any) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


MATH = Library(
    "cel.lib.ext.math",
    tuple(_declared()),
    {
        ("least", VARIADIC, True): _extreme_macro("least", "math.@min"),
        ("greatest", VARIADIC, True): _extreme_macro("greatest", "math.@max"),
    },
)
