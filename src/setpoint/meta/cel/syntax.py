"""The tree of an expression. The checker writes its findings (type, overloads, what a name means) into the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from setpoint.meta.cel.types import ERROR, Type


class Expr:
    """A node. `position` is the code point that an error about it points at."""

    __slots__ = ("position", "type")

    def __init__(self, position: int) -> None:
        self.position = position
        self.type: Type = ERROR


class Literal(Expr):
    """A constant: None, bool, int, Uint, float, str or bytes."""

    __slots__ = ("value",)

    def __init__(self, position: int, value: Any) -> None:
        super().__init__(position)
        self.value = value


class Ident(Expr):
    __slots__ = ("constant", "is_global", "name")

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name
        self.constant: Any = None  # Set if the name is the name of a type.
        self.is_global = (
            False  # Set if a variable of a macro hides this one and the leading dot refers to the outer one.
        )


class Select(Expr):
    """The selection `operand.field`, or the test `has(operand.field)`."""

    __slots__ = ("field", "operand", "resolved", "test_only")

    def __init__(self, position: int, operand: Expr, field: str, test_only: bool = False) -> None:
        super().__init__(position)
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.resolved: Ident | None = None  # Set if `a.b` is one qualified name.


class Call(Expr):
    __slots__ = ("arguments", "function", "overloads", "target")

    def __init__(self, position: int, function: str, arguments: list[Expr], target: Expr | None = None) -> None:
        super().__init__(position)
        self.function = function
        self.arguments = arguments
        self.target = target
        self.overloads: list[str] = []


class ListExpr(Expr):
    __slots__ = ("elements", "optional")

    def __init__(self, position: int, elements: list[Expr], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(position)
        self.elements = elements
        self.optional = optional


class Entry:
    """One `key: value` of a map."""

    __slots__ = ("key", "optional", "position", "value")

    def __init__(self, position: int, key: Expr, value: Expr, optional: bool) -> None:
        self.position = position
        self.key = key
        self.value = value
        self.optional = optional


class MapExpr(Expr):
    __slots__ = ("entries",)

    def __init__(self, position: int, entries: list[Entry]) -> None:
        super().__init__(position)
        self.entries = entries


class FieldInit:
    """One `field: value` of a message."""

    __slots__ = ("field", "optional", "position", "value")

    def __init__(self, position: int, field: str, value: Expr, optional: bool) -> None:
        self.position = position
        self.field = field
        self.value = value
        self.optional = optional


class Struct(Expr):
    __slots__ = ("fields", "name")

    def __init__(self, position: int, name: str, fields: list[FieldInit]) -> None:
        super().__init__(position)
        self.name = name
        self.fields = fields


class Comprehension(Expr):
    """A fold, to which every macro over a list or map expands."""

    __slots__ = ("accumulator", "condition", "initial", "macro", "range", "result", "step", "variable", "variable2")

    def __init__(
        self,
        position: int,
        range_: Expr,
        variable: str,
        variable2: str,
        accumulator: str,
        initial: Expr,
        condition: Expr,
        step: Expr,
        result: Expr,
        macro: str = "",
    ) -> None:
        super().__init__(position)
        self.range = range_
        self.variable = variable
        self.variable2 = variable2
        self.accumulator = accumulator
        self.initial = initial
        self.condition = condition
        self.step = step
        self.result = result
        self.macro = macro  # The macro it was expanded from: the compiler has faster forms for the common ones.


def children(expr: Expr) -> Iterator[Expr]:
    """Yield the nodes directly below, in the order of evaluation."""
    if isinstance(expr, Select):
        yield expr.operand
    elif isinstance(expr, Call):
        if expr.target is not None:
            yield expr.target
        yield from expr.arguments
    elif isinstance(expr, ListExpr):
        yield from expr.elements
    elif isinstance(expr, MapExpr):
        for entry in expr.entries:
            yield entry.key
            yield entry.value
    elif isinstance(expr, Struct):
        for init in expr.fields:
            yield init.value
    elif isinstance(expr, Comprehension):
        yield from (expr.range, expr.initial, expr.condition, expr.step, expr.result)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield every node of the tree, parents before children."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(list(children(node))))


def depth_of(expr: Expr) -> int:
    deepest, pending = 0, [(expr, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((child, depth + 1) for child in children(node))
    return deepest


def copy(expr: Expr) -> Expr:
    """Return the same tree with nodes of its own: macros that use an argument twice need it."""
    at = expr.position
    if isinstance(expr, Literal):
        return Literal(at, expr.value)
    if isinstance(expr, Ident):
        return Ident(at, expr.name)
    if isinstance(expr, Select):
        return Select(at, copy(expr.operand), expr.field, expr.test_only)
    if isinstance(expr, Call):
        target = copy(expr.target) if expr.target is not None else None
        return Call(at, expr.function, [copy(argument) for argument in expr.arguments], target)
    if isinstance(expr, ListExpr):
        return ListExpr(at, [copy(element) for element in expr.elements], expr.optional)
    if isinstance(expr, MapExpr):
        return MapExpr(at, [Entry(e.position, copy(e.key), copy(e.value), e.optional) for e in expr.entries])
    if isinstance(expr, Struct):
        inits = [FieldInit(init.position, init.field, copy(init.value), init.optional) for init in expr.fields]
        return Struct(at, expr.name, inits)
    assert isinstance(expr, Comprehension)
    return Comprehension(
        at,
        copy(expr.range),
        expr.variable,
        expr.variable2,
        expr.accumulator,
        copy(expr.initial),
        copy(expr.condition),
        copy(expr.step),
        copy(expr.result),
        expr.macro,
    )
