"""Macros: calls that are rewritten before anything is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from setpoint.meta.cel.syntax import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, copy, walk

Macro = Callable[[int, Expr | None, list[Expr]], Expr | None]
"""Function (position of the call, target, arguments) -> expansion, or None for an ordinary call."""
MacroKey = tuple[str, int, bool]

MAX_COPIED = 4096
"""Maximum number of copied nodes: `optMap` uses its target twice, so each link of a chain doubles it."""
ACCUMULATOR = "@result"
_RESERVED_ACCUMULATORS = (ACCUMULATOR, "__result__")
_UNUSED = "#unused"


class MacroMisuse(ValueError):
    """A macro was called with invalid arguments."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


def _variable(argument: Expr, message: str) -> str:
    if not isinstance(argument, Ident):
        raise MacroMisuse(message, argument.position)
    if argument.name in _RESERVED_ACCUMULATORS:
        raise MacroMisuse("iteration variable overwrites accumulator variable", argument.position)
    return argument.name


def _variables(first: Expr, second: Expr) -> tuple[str, str]:
    for argument in (first, second):
        if not isinstance(argument, Ident):
            raise MacroMisuse("argument must be a simple name", argument.position)
    assert isinstance(first, Ident)
    assert isinstance(second, Ident)
    if first.name == second.name:
        raise MacroMisuse(f"duplicate variable name: {first.name}", second.position)
    return (
        _variable(first, "argument must be a simple name"),
        _variable(second, "argument must be a simple name"),
    )


def _fold(
    at: int, range_: Expr, names: tuple[str, str], initial: Expr, condition: Expr, step: Expr, result: Expr, macro: str
) -> Expr:
    return Comprehension(at, range_, names[0], names[1], ACCUMULATOR, initial, condition, step, result, macro)


def _has(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
    argument = arguments[0]
    if not isinstance(argument, Select):
        raise MacroMisuse("invalid argument to has() macro", argument.position)
    return Select(at, argument.operand, argument.field, test_only=True)


def _quantifier(kind: str) -> Macro:
    def expand(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
        assert target is not None
        if len(arguments) == 2:
            names = (_variable(arguments[0], "argument must be a simple name"), "")
        else:
            names = _variables(arguments[0], arguments[1])
        predicate = arguments[-1]
        result = Ident(at, ACCUMULATOR)
        if kind == "all":
            condition: Expr = Call(at, "@not_strictly_false", [Ident(at, ACCUMULATOR)])
            step: Expr = Call(at, "_&&_", [Ident(at, ACCUMULATOR), predicate])
            return _fold(at, target, names, Literal(at, True), condition, step, result, kind)
        if kind == "exists":
            condition = Call(at, "@not_strictly_false", [Call(at, "!_", [Ident(at, ACCUMULATOR)])])
            step = Call(at, "_||_", [Ident(at, ACCUMULATOR), predicate])
            return _fold(at, target, names, Literal(at, False), condition, step, result, kind)
        more = Call(at, "_+_", [Ident(at, ACCUMULATOR), Literal(at, 1)])
        step = Call(at, "_?_:_", [predicate, more, Ident(at, ACCUMULATOR)])
        one = Call(at, "_==_", [Ident(at, ACCUMULATOR), Literal(at, 1)])
        return _fold(at, target, names, Literal(at, 0), Literal(at, True), step, one, "exists_one")

    return expand


def _append(at: int, element: Expr, condition: Expr | None) -> Expr:
    step: Expr = Call(at, "_+_", [Ident(at, ACCUMULATOR), ListExpr(at, [element])])
    if condition is not None:
        step = Call(at, "_?_:_", [condition, step, Ident(at, ACCUMULATOR)])
    return step


def expand_map(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
    assert target is not None
    name = _variable(arguments[0], "argument is not an identifier")
    step = _append(at, arguments[-1], arguments[1] if len(arguments) == 3 else None)
    return _fold(at, target, (name, ""), ListExpr(at, []), Literal(at, True), step, Ident(at, ACCUMULATOR), "map")


def _filter(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
    assert target is not None
    name = _variable(arguments[0], "argument is not an identifier")
    step = _append(at, arguments[0], arguments[1])
    return _fold(at, target, (name, ""), ListExpr(at, []), Literal(at, True), step, Ident(at, ACCUMULATOR), "filter")


def _transform_list(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
    assert target is not None
    names = _variables(arguments[0], arguments[1])
    step = _append(at, arguments[-1], arguments[2] if len(arguments) == 4 else None)
    return _fold(at, target, names, ListExpr(at, []), Literal(at, True), step, Ident(at, ACCUMULATOR), "map")


def _transform_map(entry: bool) -> Macro:
    def expand(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
        assert target is not None
        names = _variables(arguments[0], arguments[1])
        key = [] if entry else [Ident(at, names[0])]
        step: Expr = Call(at, "cel.@mapInsert", [Ident(at, ACCUMULATOR), *key, arguments[-1]])
        if len(arguments) == 4:
            step = Call(at, "_?_:_", [arguments[2], step, Ident(at, ACCUMULATOR)])
        return _fold(at, target, names, MapExpr(at, []), Literal(at, True), step, Ident(at, ACCUMULATOR), "")

    return expand


def late_binding(at: int, name: str, value: Expr, result: Expr) -> Expr:
    return Comprehension(
        at, ListExpr(at, []), _UNUSED, "", name, value, Literal(at, False), Ident(at, name), result, "bind"
    )


def _bind(at: int, target: Expr | None, arguments: list[Expr]) -> Expr | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = arguments[0]
    if not isinstance(name, Ident):
        raise MacroMisuse("cel.bind() variable names must be simple identifiers", name.position)
    return late_binding(at, name.name, arguments[1], arguments[2])


def _opt_map(flat: bool) -> Macro:
    function = "optFlatMap" if flat else "optMap"

    def expand(at: int, target: Expr | None, arguments: list[Expr]) -> Expr:
        assert target is not None
        name = arguments[0]
        if not isinstance(name, Ident):
            raise MacroMisuse(f"{function}() variable name must be a simple identifier", name.position)
        if sum(1 for _ in islice(walk(target), MAX_COPIED + 1)) > MAX_COPIED:
            raise MacroMisuse(f"{function}() target is too large", at)
        bound = late_binding(at, name.name, Call(at, "value", [], copy(target)), arguments[1])
        some = bound if flat else Call(at, "optional.of", [bound])
        return Call(at, "_?_:_", [Call(at, "hasValue", [], target), some, Call(at, "optional.none", [])])

    return expand


STANDARD: dict[MacroKey, Macro] = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier("all"),
    ("exists", 2, True): _quantifier("exists"),
    ("exists_one", 2, True): _quantifier("exists_one"),
    ("map", 2, True): expand_map,
    ("map", 3, True): expand_map,
    ("filter", 2, True): _filter,
}
TWO_VARIABLES: dict[MacroKey, Macro] = {
    ("all", 3, True): _quantifier("all"),
    ("exists", 3, True): _quantifier("exists"),
    ("exists_one", 3, True): _quantifier("exists_one"),
    ("existsOne", 3, True): _quantifier("exists_one"),
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map(entry=False),
    ("transformMap", 4, True): _transform_map(entry=False),
    ("transformMapEntry", 3, True): _transform_map(entry=True),
    ("transformMapEntry", 4, True): _transform_map(entry=True),
}
BINDINGS: dict[MacroKey, Macro] = {("bind", 3, True): _bind}
OPTIONALS: dict[MacroKey, Macro] = {
    ("optMap", 2, True): _opt_map(flat=False),
    ("optFlatMap", 2, True): _opt_map(flat=True),
}


def merged(groups: Iterable[dict[MacroKey, Macro]]) -> dict[MacroKey, Macro]:
    result: dict[MacroKey, Macro] = {}
    for group in groups:
        result.update(group)
    return result
