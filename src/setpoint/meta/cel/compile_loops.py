"""Macros over lists and maps. The common ones are specialized loops; the others run the expanded fold.

Each loop checks the cost limit once per element, which bounds the run time of an expression.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from setpoint.meta.cel.code import Code, Frame, Run, outcome_of, refunding
from setpoint.meta.cel.runtime_cost import LIST_BASE
from setpoint.meta.cel.syntax import Call, Comprehension, ListExpr
from setpoint.meta.cel.values import (
    MISSING,
    CelError,
    CostExceeded,
    Duration,
    Timestamp,
    TypedList,
    TypedMap,
    Uint,
    key_back,
    no_such_overload,
)

if TYPE_CHECKING:
    from setpoint.meta.cel.compiler import Compiler

_GO_NAMES = {
    type(None): "types.Null",
    bool: "types.Bool",
    int: "types.Int",
    Uint: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
}


def elements(value: Any) -> Iterable[Any]:
    """Return the values that a macro with one variable iterates over: elements or keys."""
    if type(value) is list or isinstance(value, TypedList | TypedMap):
        return value
    if type(value) is dict:
        return [key_back(key) for key in value]
    raise CelError(f"got '{_GO_NAMES.get(type(value), type(value).__name__)}', expected iterable type")


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the pairs that a macro with two variables iterates over: index and element, or key and value."""
    if type(value) is list or isinstance(value, TypedList):
        return enumerate(value)
    if type(value) is dict:
        return [(key_back(key), item) for key, item in value.items()]
    if isinstance(value, TypedMap):
        return [(key, found) for key in value if (found := value.find(key)) is not MISSING]
    raise CelError(f"unsupported comprehension range type: {_GO_NAMES.get(type(value), type(value).__name__)}")


def _iteration(source: Run, two: bool) -> Run:
    """Return the function that yields the elements or pairs to iterate over."""
    if two:
        return lambda frame: entries(source(frame))
    return lambda frame: elements(source(frame))


def compile_comprehension(compiler: Compiler, expr: Comprehension) -> Code:
    if expr.macro == "bind":
        return _bind(compiler, expr)
    source = compiler.compile(expr.range)
    places = [compiler.slot()]
    names = [(expr.variable, places[0])]
    if expr.variable2:
        places.append(compiler.slot())
        names.append((expr.variable2, places[1]))
    if expr.macro in ("all", "exists", "exists_one", "map", "filter"):
        return _known(compiler, expr, source, places, names)
    return _fold(compiler, expr, source, places, names)


def _bind(compiler: Compiler, expr: Comprehension) -> Code:
    """Compile a binding, whose value is computed on first use."""
    initial = compiler.compile(expr.initial)
    place = compiler.slot()
    compute, extra = initial.run, initial.cost

    def read(frame: Frame) -> Any:
        value = frame[place]
        if value is MISSING:
            frame[0] += extra
            try:
                value = compute(frame)
            except CelError as error:
                frame[place] = error
                raise
            frame[place] = value
        elif isinstance(value, CelError):
            raise value
        return value

    compiler.locals.append((expr.accumulator, Code(read, 1, attribute=0)))
    result = compiler.compile(expr.result)
    compiler.locals.pop()
    inner = result.run

    def run(frame: Frame) -> Any:
        frame[place] = MISSING
        return inner(frame)

    return Code(run, result.cost)


def _known(
    compiler: Compiler, expr: Comprehension, source: Code, places: list[int], names: list[tuple[str, int]]
) -> Code:
    step = expr.step
    assert isinstance(step, Call)
    iteration = _iteration(source.run, two=len(places) > 1)

    def ranged(result: int) -> Run:
        return refunding(iteration, result)

    compiler.locals.extend(names)
    try:
        if expr.macro == "all":
            run = _quantifier(ranged(1), places, compiler.compile(step.arguments[1]), decisive=False, condition=2)
            return Code(run, source.cost + 1)
        if expr.macro == "exists":
            run = _quantifier(ranged(1), places, compiler.compile(step.arguments[1]), decisive=True, condition=3)
            return Code(run, source.cost + 1)
        if expr.macro == "exists_one":
            run = _exactly_one(ranged(2), places, compiler.compile(step.arguments[0]))
            return Code(run, source.cost + 2)
        predicate: Code | None = None
        if step.function == "_?_:_":
            predicate = compiler.compile(step.arguments[0])
            inner = step.arguments[1]
            assert isinstance(inner, Call)
            step = inner
        singleton = step.arguments[1]
        assert isinstance(singleton, ListExpr)
        # `result + [element]`: reading the result, making the list, adding it.
        element = compiler.compile(singleton.elements[0])
        made = 0 if element.constant else element.cost + LIST_BASE
        run = _collect(ranged(1), places, predicate, element.run, 1 + made + 1)
        return Code(run, source.cost + 1)
    finally:
        del compiler.locals[-len(names) :]


def _quantifier(source: Run, places: list[int], predicate: Code, decisive: bool, condition: int) -> Run:
    """Compile `all`, which ends at a False, or `exists`, which ends at a True; errors count only if neither is
    found."""
    check = predicate.run
    each = condition + 1 + predicate.cost
    place = places[0]
    second = places[1] if len(places) > 1 else 0

    def run(frame: Frame) -> bool:
        items = source(frame)
        error: CelError | None = None
        decided = False
        limit = frame[1]
        for item in items:
            if decided:
                frame[0] += condition  # The loop condition is evaluated once more.
                break
            if second:
                frame[place], frame[second] = item
            else:
                frame[place] = item
            frame[0] += each
            if frame[0] > limit:
                raise CostExceeded
            try:
                value = check(frame)
            except CelError as problem:
                error = error or problem
                continue
            if value is decisive:
                decided = True
            elif value is not (not decisive):
                error = error or no_such_overload()
        if decided:
            return decisive
        if error is not None:
            raise error
        return not decisive

    return run


def _exactly_one(source: Run, places: list[int], predicate: Code) -> Run:
    check, each = predicate.run, predicate.cost
    place = places[0]
    second = places[1] if len(places) > 1 else 0

    def run(frame: Frame) -> bool:
        items = source(frame)
        count = 0
        error: CelError | None = None
        limit = frame[1]
        for item in items:
            if second:
                frame[place], frame[second] = item
            else:
                frame[place] = item
            frame[0] += each
            if frame[0] > limit:
                raise CostExceeded
            try:
                value = check(frame)
            except CelError as problem:
                # The count is lost, but the remaining elements are still evaluated, and the last result counts.
                error = problem
                continue
            if value is True:
                frame[0] += 2
                count += 1
            elif value is not False:
                error = no_such_overload()
        if error is not None:
            raise error
        return count == 1

    return run


def _collect(source: Run, places: list[int], predicate: Code | None, element: Run, cost: int) -> Run:
    """Compile `map` and `filter`."""
    place = places[0]
    second = places[1] if len(places) > 1 else 0
    check = predicate.run if predicate is not None else None
    each = predicate.cost if predicate is not None else cost

    def run(frame: Frame) -> list[Any]:
        items = source(frame)
        result = []
        error: CelError | None = None
        limit = frame[1]
        for item in items:
            if second:
                frame[place], frame[second] = item
            else:
                frame[place] = item
            frame[0] += each
            if frame[0] > limit:
                raise CostExceeded
            if check is not None:
                value = outcome_of(check, frame)
                if value is False:
                    continue
                if value is not True:
                    error = value if isinstance(value, CelError) else no_such_overload()
                    continue
                frame[0] += cost
            # The error stays, but the remaining elements are still evaluated and charged.
            try:
                result.append(element(frame))
            except CelError as problem:
                error = error or problem
        if error is not None:
            raise error
        return result

    return run


def _accumulated(place: int) -> Code:
    """Return the code that reads the accumulator; an error in it persists until the end."""

    def read(frame: Frame) -> Any:
        value = frame[place]
        if isinstance(value, CelError):
            raise value
        return value

    return Code(read, 1, attribute=0)


def _fold(
    compiler: Compiler, expr: Comprehension, source: Code, places: list[int], names: list[tuple[str, int]]
) -> Code:
    initial = compiler.compile(expr.initial)
    accumulator = compiler.slot()
    compiler.locals.append((expr.accumulator, _accumulated(accumulator)))
    compiler.locals.extend(names)
    condition = compiler.compile(expr.condition)
    step = compiler.compile(expr.step)
    del compiler.locals[-len(names) :]
    result = compiler.compile(expr.result)
    compiler.locals.pop()
    goes_on, advance, finish = condition.run, step.run, result.run
    each = condition.cost + step.cost
    iteration = _iteration(source.run, two=len(places) > 1)
    start, read = initial.run, refunding(iteration, initial.cost + result.cost)

    def initially(frame: Frame) -> Any:
        value = start(frame)
        return dict(value) if type(value) is dict else value  # A map is filled in place.

    place = places[0]
    second = places[1] if len(places) > 1 else 0

    def run(frame: Frame) -> Any:
        items = read(frame)
        frame[accumulator] = initially(frame)
        limit = frame[1]
        for item in items:
            if second:
                frame[place], frame[second] = item
            else:
                frame[place] = item
            frame[0] += each
            if frame[0] > limit:
                raise CostExceeded
            if goes_on(frame) is not True:
                break
            frame[accumulator] = outcome_of(advance, frame)
        return finish(frame)

    return Code(run, source.cost + initial.cost + result.cost)
