"""Calls and operators. Operators on types that are known become the Python operation itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.meta.cel import operators as ops
from setpoint.meta.cel.code import Code, Frame, Run, constant
from setpoint.meta.cel.compile_logic import compile_and, compile_conditional, compile_not, compile_or
from setpoint.meta.cel.compile_select import compile_index, compile_opt_index
from setpoint.meta.cel.declarations import Overload
from setpoint.meta.cel.runtime_cost import CallCost, call_cost, equality_cost
from setpoint.meta.cel.syntax import Call
from setpoint.meta.cel.types import Kind, Type
from setpoint.meta.cel.values import (
    CelError,
    Duration,
    Message,
    Opaque,
    Optional,
    Timestamp,
    Uint,
    is_list,
    is_map,
    no_such_overload,
    type_of_value,
)

if TYPE_CHECKING:
    from setpoint.meta.cel.compiler import Compiler

_CONVERSIONS = frozenset(["bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"])
_SINGLETONS = frozenset({"size", "sort", "matches"})
_UNGUARDED = frozenset({"contains", "startsWith", "endsWith"})
_SCALARS = frozenset({Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.DURATION, Kind.TIMESTAMP})
_DIRECT_EQUALITY = frozenset({Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.STRING, Kind.BYTES})
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
_GENERAL: dict[str, Callable[[Any, Any], Any]] = {
    "_<_": ops.less,
    "_<=_": ops.less_equal,
    "_>_": ops.greater,
    "_>=_": ops.greater_equal,
    "_+_": ops.plus,
    "_-_": ops.minus,
    "_*_": ops.times,
    "_/_": ops.divided,
    "_%_": ops.modulo,
    "@in": ops.contains,
}


def compile_call(compiler: Compiler, expr: Call) -> Code:
    name = expr.function
    arguments = [compiler.compile(argument) for argument in expr.arguments]
    if expr.target is not None:
        arguments.insert(0, compiler.compile(expr.target))
    types = [argument.type for argument in expr.arguments]
    if expr.target is not None:
        types.insert(0, expr.target.type)
    if name == "_&&_":
        return compile_and(arguments[0], arguments[1])
    if name == "_||_":
        return compile_or(arguments[0], arguments[1])
    if name == "_?_:_":
        return compile_conditional(arguments[0], arguments[1], arguments[2])
    if name == "!_":
        return compile_not(arguments[0])
    if name == "_==_":
        return _equality(arguments, types, negate=False)
    if name == "_!=_":
        return _equality(arguments, types, negate=True)
    if name == "_[_]":
        return compile_index(arguments[0], arguments[1])
    if name == "_[?_]":
        return compile_opt_index(arguments[0], arguments[1])
    if name == "@not_strictly_false":
        return _not_strictly_false(arguments[0])
    if name in ("or", "orValue") and len(arguments) == 2 and expr.overloads[0].startswith("optional_or"):
        return _optional_or(arguments[0], arguments[1], unwrap=name == "orValue")
    overload = expr.overloads[0] if len(expr.overloads) == 1 else ""
    cost = call_cost(name, overload)
    if name in _GENERAL:
        return _operator(name, overload, arguments, types, cost)
    return _function(compiler, expr, arguments, types, overload, cost)


# -- operators


def _equality(arguments: list[Code], types: list[Type], negate: bool) -> Code:
    left, right = arguments[0].run, arguments[1].run
    total = arguments[0].cost + arguments[1].cost
    kind = types[0].kind
    same = kind is types[1].kind and not types[0].nullable and not types[1].nullable
    if same and kind in _DIRECT_EQUALITY:
        if kind in _SCALARS:
            if negate:
                return Code(lambda frame: left(frame) != right(frame), total + 1)
            return Code(lambda frame: left(frame) == right(frame), total + 1)

        def text(frame: Frame) -> bool:
            one, other = left(frame), right(frame)
            shorter = min(len(one), len(other))
            frame[0] += 1 if 0 < shorter <= 10 else (shorter + 9) // 10
            return (one == other) is not negate

        return Code(text, total)

    def general(frame: Frame) -> bool:
        one, other = left(frame), right(frame)
        frame[0] += equality_cost(one, other)
        return ops.equals(one, other) is not negate

    return Code(general, total)


def _operator(name: str, overload: str, arguments: list[Code], types: list[Type], cost: CallCost) -> Code:
    left, right = arguments[0].run, arguments[1].run
    total = arguments[0].cost + arguments[1].cost
    kinds = (types[0].kind, types[1].kind)
    apply = _GENERAL[name]
    if name == "@in" and overload == "in_list" and arguments[1].constant:
        members = _constant_members(arguments[1].value)
        if members is not None:
            return _membership(arguments[0], members)
    if isinstance(cost, int):
        if kinds == (Kind.INT, Kind.INT) and name in _ORDER:
            python = _ORDER[name]
            return Code(lambda frame: python(left(frame), right(frame)), total + cost)
        if kinds == (Kind.INT, Kind.INT) and name in ("_+_", "_-_"):
            python = operator.add if name == "_+_" else operator.sub
            return Code(lambda frame: ops.checked_int(python(left(frame), right(frame))), total + cost)
        return Code(lambda frame: apply(left(frame), right(frame)), total + cost)

    def run(frame: Frame) -> Any:
        pair = (left(frame), right(frame))
        frame[0] += cost(pair, None)
        return apply(pair[0], pair[1])

    return Code(run, total)


def _constant_members(values: Any) -> frozenset[Any] | None:
    """The elements of a constant list as a set, when they are simple enough. Numbers of all types are one kind."""
    if not all(type(value) in (str, int, float, Uint, bool) for value in values):
        return None
    return frozenset((type(value) is bool, value) for value in values)


def _membership(element: Code, members: frozenset[Any]) -> Code:
    if not members:
        return constant(False)
    read = element.run
    if all(type(value) is str for _, value in members):
        texts = frozenset(value for _, value in members)
        return Code(lambda frame: _text_in(read(frame), texts), element.cost)

    def run(frame: Frame) -> bool:
        value = read(frame)
        return type(value) in (str, int, float, Uint, bool) and (type(value) is bool, value) in members

    return Code(run, element.cost)


def _text_in(value: Any, texts: frozenset[Any]) -> bool:
    return type(value) is str and value in texts


def _not_strictly_false(argument: Code) -> Code:
    read = argument.run

    def run(frame: Frame) -> bool:
        try:
            value = read(frame)
        except CelError:
            return True
        return value is not False

    return Code(run, argument.cost + 1)


def _optional_or(first: Code, second: Code, unwrap: bool) -> Code:
    left, right, more = first.run, second.run, second.cost

    def run(frame: Frame) -> Any:
        value = left(frame)
        if type(value) is not Optional:
            raise no_such_overload()
        if value.present:
            return value.value if unwrap else value
        frame[0] += more
        return right(frame)

    return Code(run, first.cost)


# -- functions

_CLASSES: dict[Kind, type] = {
    Kind.BOOL: bool,
    Kind.INT: int,
    Kind.UINT: Uint,
    Kind.DOUBLE: float,
    Kind.STRING: str,
    Kind.BYTES: bytes,
    Kind.DURATION: Duration,
    Kind.TIMESTAMP: Timestamp,
    Kind.NULL: type(None),
}


def fits(value: Any, wanted: Type) -> bool:
    """Whether a value may be an argument of that type."""
    kind = wanted.kind
    exact = _CLASSES.get(kind)
    if exact is not None:
        return type(value) is exact
    if kind is Kind.LIST:
        return is_list(value)
    if kind is Kind.MAP:
        return is_map(value)
    if kind is Kind.TYPE:
        return isinstance(value, Type)
    if kind is Kind.OPAQUE or kind is Kind.STRUCT:
        if wanted.is_optional:
            return type(value) is Optional
        if isinstance(value, Opaque):
            return value.TYPE.name == wanted.name
        return isinstance(value, Message) or is_map(value)
    return True


def _certain(static: Type, wanted: Type) -> bool:
    """The checker has proved that the argument fits."""
    return wanted.kind in (Kind.DYN, Kind.PARAM) or (static.kind is wanted.kind and not static.nullable)


def _function(
    compiler: Compiler, expr: Call, arguments: list[Code], types: list[Type], overload: str, cost: CallCost
) -> Code:
    name = expr.function
    declared = compiler.functions[name]
    member = expr.target is not None
    candidates = [o for o in declared.overloads if o.id in expr.overloads]
    if len(candidates) == 1 and all(_certain(a, b) for a, b in zip(types, candidates[0].arguments)):
        call: Callable[..., Any] = candidates[0].call
    else:
        everywhere = [o for o in declared.overloads if o.member == member and len(o.arguments) == len(arguments)]
        call = _dispatch(name, candidates if len(candidates) == 1 else everywhere)
    runs = [argument.run for argument in arguments]
    total = sum(argument.cost for argument in arguments)
    if name in _CONVERSIONS and len(arguments) == 1 and arguments[0].constant:
        return constant(call(arguments[0].value))
    folded = _folded_regex(name, arguments)
    if folded is not None:
        call = folded
    return Code(_invocation(call, runs, cost), total + (cost if isinstance(cost, int) else 0))


def _folded_regex(name: str, arguments: list[Code]) -> Callable[..., Any] | None:
    """A constant pattern is compiled once."""
    from setpoint.meta.cel.libraries.regular import PREPARED

    prepare = PREPARED.get(name)
    if prepare is None or len(arguments) < 2 or not arguments[1].constant or type(arguments[1].value) is not str:
        return None
    return prepare(arguments[1].value)


def _invocation(call: Callable[..., Any], runs: list[Run], cost: CallCost) -> Run:
    if isinstance(cost, int):
        if len(runs) == 1:
            only = runs[0]
            return lambda frame: call(only(frame))
        if len(runs) == 2:
            first, second = runs
            return lambda frame: call(first(frame), second(frame))
        return lambda frame: call(*[run(frame) for run in runs])
    charge = cost

    def run(frame: Frame) -> Any:
        values = [each(frame) for each in runs]
        try:
            result = call(*values)
        except CelError as error:
            frame[0] += charge(values, error)
            raise
        frame[0] += charge(values, result)
        return result

    return run


def _dispatch(name: str, overloads: Sequence[Overload]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        for candidate in overloads:
            if all(map(fits, values, candidate.arguments)):
                return candidate.call(*values)
        if name in _UNGUARDED:
            raise no_such_overload()
        if name in _SINGLETONS:
            raise no_such_overload(name)
        shown = ", ".join(type_of_value(value).name for value in values)
        raise CelError(f"no such overload: {name}({shown})")

    return call


def never(*_: Any) -> Any:
    """The implementation of what the compiler translates itself."""
    raise no_such_overload()
