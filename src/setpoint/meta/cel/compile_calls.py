"""Calls: selection of the overload, its cost, and the cost that remains when an argument fails.

Constant costs are charged in advance, for a whole expression at once. When something fails in the middle, the cost of
what did not run is refunded, so that the total is the same as if each step had been charged separately: an error can be
absorbed by `||`, and then the cost counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from setpoint.meta.cel.code import Code, Frame, Run, constant, outcome_of
from setpoint.meta.cel.compile_operators import (
    OPERATORS,
    compile_and,
    compile_conditional,
    compile_equality,
    compile_not,
    compile_operator,
    compile_or,
)
from setpoint.meta.cel.compile_select import compile_index, compile_opt_index
from setpoint.meta.cel.declarations import Overload
from setpoint.meta.cel.runtime_cost import CallCost, call_cost, needs_result
from setpoint.meta.cel.syntax import Call
from setpoint.meta.cel.types import Kind, Type
from setpoint.meta.cel.values import (
    CelError,
    CostExceeded,
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
        return compile_equality(arguments, types, negate=False)
    if name == "_!=_":
        return compile_equality(arguments, types, negate=True)
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
    if name in OPERATORS:
        return compile_operator(name, overload, arguments, types, cost)
    return _function(compiler, expr, arguments, types, overload, cost)


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
    """Return whether a value is a valid argument of that type."""
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
    """Return whether the checker has proved that the argument fits."""
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
    total = sum(argument.cost for argument in arguments)
    if name in _CONVERSIONS and len(arguments) == 1 and arguments[0].constant:
        return constant(call(arguments[0].value))
    folded = _folded_regex(name, arguments)
    invoke = _charged(folded or call, cost, needs_result(name, overload))
    if folded is not None or len(arguments) not in (1, 2) or name == "format":
        run = _variadic(invoke, arguments, cost)
    elif len(arguments) == 1:
        only = arguments[0].run
        run = (lambda frame: call(only(frame))) if isinstance(cost, int) else _unary(invoke, only, cost)
    else:
        run = _binary(invoke, arguments[0].run, arguments[1].run, cost)
    return Code(run, total + (cost if isinstance(cost, int) else 0))


def _folded_regex(name: str, arguments: list[Code]) -> Callable[..., Any] | None:
    """Compile a constant pattern once."""
    from setpoint.meta.cel.libraries.regular import PREPARED

    prepare = PREPARED.get(name)
    if prepare is None or len(arguments) < 2 or not arguments[1].constant or type(arguments[1].value) is not str:
        return None
    return prepare(arguments[1].value)


_Invoke = Callable[[Frame, Sequence[Any]], Any]


def _charged(call: Callable[..., Any], cost: CallCost, afterwards: bool) -> _Invoke:
    """Return the call with its cost beyond the constants.

    Where possible the cost is charged first, so that a call that exceeds the limit does not start."""
    if isinstance(cost, int):
        return lambda frame, values: call(*values)
    charge = cost

    def first(frame: Frame, values: Sequence[Any]) -> Any:
        frame[0] += charge(values, None)
        if frame[0] > frame[1]:
            raise CostExceeded
        return call(*values)

    def later(frame: Frame, values: Sequence[Any]) -> Any:
        try:
            result = call(*values)
        except CelError as error:
            frame[0] += charge(values, error)
            raise
        frame[0] += charge(values, result)
        if frame[0] > frame[1]:
            raise CostExceeded
        return result

    return later if afterwards else first


def _charge_failed(frame: Frame, cost: CallCost, values: Sequence[Any], error: CelError) -> None:
    """Charge a call that is not made because one of its arguments, all of which were evaluated, is an error."""
    if not isinstance(cost, int):
        frame[0] += cost(values, error)


def _unary(invoke: _Invoke, only: Run, cost: CallCost) -> Run:
    def run(frame: Frame) -> Any:
        try:
            value = only(frame)
        except CelError as error:
            _charge_failed(frame, cost, (error,), error)
            raise
        return invoke(frame, (value,))

    return run


def _binary(invoke: _Invoke, first: Run, second: Run, cost: CallCost) -> Run:
    """Compile a call with two arguments, which are both evaluated even if the first fails."""

    def run(frame: Frame) -> Any:
        try:
            one = first(frame)
        except CelError as error:
            other = outcome_of(second, frame)
            _charge_failed(frame, cost, (error, other), error)
            raise
        try:
            other = second(frame)
        except CelError as error:
            _charge_failed(frame, cost, (one, error), error)
            raise
        return invoke(frame, (one, other))

    return run


def _variadic(invoke: _Invoke, arguments: list[Code], cost: CallCost) -> Run:
    """Compile a call that ends at the first argument that fails.

    The arguments after it are not evaluated, and if there are any, the call costs nothing."""
    runs = [argument.run for argument in arguments]
    costs = [argument.cost for argument in arguments]
    fixed = cost if isinstance(cost, int) else 0

    def run(frame: Frame) -> Any:
        values: list[Any] = []
        try:
            for each in runs:
                values.append(each(frame))
        except CelError as error:
            if len(values) == len(runs) - 1:
                _charge_failed(frame, cost, [*values, error], error)
            else:
                frame[0] -= sum(costs[len(values) + 1 :]) + fixed
            raise
        return invoke(frame, values)

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
    """Stand in for functions that the compiler translates itself. It is never called."""
    raise no_such_overload()
