"""Static cost estimation: the minimum and maximum cost of an expression, from its form and the sizes of its inputs.

The estimate decides which rules may be stored at all, so it must never change for a given expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from setpoint.meta.cel.call_cost import Node, call_estimate, standard_estimate
from setpoint.meta.cel.runtime_cost import LIST_BASE, MAP_BASE, STRUCT_BASE
from setpoint.meta.cel.sizes import ONE, UNKNOWN, CallEstimate, CostRange, SizeRange, fixed
from setpoint.meta.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    Struct,
)
from setpoint.meta.cel.types import Kind, Type

Path = tuple[str, ...]
Sizer = Callable[[Path, Type], SizeRange | None]
"""Function (path, type) -> size range of a value.

A path starts with a variable, followed by fields, `@items`, `@keys` and `@values`. The empty path means a value that is
not part of a variable."""

_SCALARS = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})
_ACCUMULATORS = ("__result__", "@result")


class _Entries(NamedTuple):
    """Size ranges of the keys (or indexes) and the values of a container."""

    kind: Kind
    key: SizeRange
    value: SizeRange

    def union(self, other: _Entries | None) -> _Entries | None:
        if other is None:
            return None
        return _Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class _Local(NamedTuple):
    path: Path
    size: SizeRange | None
    entries: _Entries | None


def estimate(tree: Expr, sizer: Sizer | None = None) -> CostRange:
    return _Estimator(sizer).cost(tree)


class _Estimator:
    def __init__(self, sizer: Sizer | None) -> None:
        self.sizer = sizer
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, SizeRange] = {}
        self.entries: dict[int, _Entries] = {}
        self.locals: dict[str, list[_Local]] = {}

    # -- what is known about a node

    def path(self, expr: Expr) -> Path:
        expr = _resolved(expr)
        if isinstance(expr, Ident) and (local := self.local(expr.name)) is not None:
            return local.path
        return self.paths.get(id(expr), ())

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def size(self, expr: Expr) -> SizeRange | None:
        expr = _resolved(expr)
        known = self.sizes.get(id(expr))
        if known is not None:
            return known
        literal = _literal_size(expr)
        if literal is not None:
            return literal
        if self.sizer is not None:
            estimate = self.sizer(self.path(expr), expr.type)
            if estimate is not None:
                self.sizes[id(expr)] = estimate
                return estimate
        if _is_scalar(expr.type):
            return ONE
        if isinstance(expr, Ident):
            local = self.local(expr.name)
            if local is not None and local.size is not None:
                return local.size
        return None

    def size_or_unknown(self, expr: Expr) -> SizeRange:
        return self.size(expr) or UNKNOWN

    def entries_of(self, expr: Expr) -> _Entries | None:
        expr = _resolved(expr)
        known = self.entries.get(id(expr))
        if known is not None:
            return known
        if isinstance(expr, Ident):
            local = self.local(expr.name)
            if local is not None:
                return local.entries
        return None

    def set_size(self, expr: Expr, size: SizeRange | None) -> None:
        if size is not None:
            self.sizes[id(expr)] = size

    def set_entries(self, expr: Expr, entries: _Entries | None) -> None:
        if entries is not None:
            self.entries[id(expr)] = entries

    def node(self, expr: Expr) -> Node:
        path = self.path(expr)
        if path and path[0] in _ACCUMULATORS:
            path = ()
        literal = expr.value if isinstance(expr, Literal) else None
        return Node(path, expr.type, self.size(expr), literal)

    # -- costs

    def cost(self, expr: Expr) -> CostRange:
        if isinstance(expr, Call):
            return self.call(expr)
        if isinstance(expr, Select):
            return self.select(expr)
        if isinstance(expr, Ident):
            return self.ident(expr)
        if isinstance(expr, Literal):
            return CostRange(0, 0)
        if isinstance(expr, Comprehension):
            return self.bind(expr) if self.is_bind(expr) else self.comprehension(expr)
        if isinstance(expr, ListExpr):
            return self.list(expr)
        if isinstance(expr, MapExpr):
            return self.map(expr)
        assert isinstance(expr, Struct)
        total = CostRange(STRUCT_BASE, STRUCT_BASE)
        for init in expr.fields:
            total = total.plus(self.cost(init.value))
        return total

    def ident(self, expr: Ident) -> CostRange:
        local = self.local(expr.name)
        self.paths[id(expr)] = (expr.name,) if local is None else local.path
        return CostRange(1, 1)

    def select(self, expr: Select) -> CostRange:
        if expr.resolved is not None:
            return self.ident(expr.resolved)
        total = self.cost(expr.operand)
        if expr.test_only:
            return total
        if expr.operand.type.kind in (Kind.MAP, Kind.STRUCT, Kind.PARAM):
            total = total.plus(CostRange(1, 1))
        self.paths[id(expr)] = (*self.path(expr.operand), expr.field)
        return total

    def list(self, expr: ListExpr) -> CostRange:
        total = CostRange(LIST_BASE, LIST_BASE)
        item = SizeRange(0 if not expr.elements else UNKNOWN.max, 0)
        for element in expr.elements:
            total = total.plus(self.cost(element))
            item = item.union(self.size_or_unknown(element))
        self.entries[id(expr)] = _Entries(Kind.LIST, ONE, item)
        return total

    def map(self, expr: MapExpr) -> CostRange:
        total = CostRange(MAP_BASE, MAP_BASE)
        key = value = SizeRange(0 if not expr.entries else UNKNOWN.max, 0)
        for entry in expr.entries:
            total = total.plus(self.cost(entry.key)).plus(self.cost(entry.value))
            key = key.union(self.size_or_unknown(entry.key))
            value = value.union(self.size_or_unknown(entry.value))
        self.entries[id(expr)] = _Entries(Kind.MAP, key, value)
        return total

    # -- loops

    def is_bind(self, expr: Comprehension) -> bool:
        return (
            isinstance(expr.range, ListExpr)
            and not expr.range.elements
            and isinstance(expr.condition, Literal)
            and expr.condition.value is False
            and expr.accumulator != _ACCUMULATORS[0]
        )

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def bind(self, expr: Comprehension) -> CostRange:
        total = self.cost(expr.range).plus(self.cost(expr.initial))
        self.push(
            expr.accumulator, _Local(self.path(expr.initial), self.size(expr.initial), self.entries_of(expr.initial))
        )
        total = total.plus(self.cost(expr.result))
        # The size of the result may be that of the variable: compute it while the variable is in scope.
        size, entries = self.size(expr.result), self.entries_of(expr.result)
        self.locals[expr.accumulator].pop()
        self.set_size(expr, size)
        self.set_entries(expr, entries)
        return total

    def iterate(self, name: str, ranged: Expr, part: str) -> None:
        entries = self.entries_of(ranged)
        kind = entries.kind if entries is not None else ranged.type.kind
        is_list = kind is Kind.LIST
        if part == "key":
            suffix = "@indices" if is_list else "@keys"
            size = entries.key if entries is not None else None
        elif part == "value" or is_list:
            suffix = "@items" if is_list else "@values"
            size = entries.value if entries is not None else None
        else:
            suffix = "@keys"
            size = entries.key if entries is not None else None
        self.push(name, _Local((*self.path(ranged), suffix), size, None))

    def comprehension(self, expr: Comprehension) -> CostRange:
        total = self.cost(expr.range).plus(self.cost(expr.initial))
        self.push(
            expr.accumulator, _Local(self.path(expr.initial), self.size(expr.initial), self.entries_of(expr.initial))
        )
        if expr.variable2:
            self.iterate(expr.variable, expr.range, "key")
            self.iterate(expr.variable2, expr.range, "value")
        else:
            self.iterate(expr.variable, expr.range, "single")
        each = self.cost(expr.condition)
        each = self.cost(expr.step).plus(each)
        self.locals[expr.variable].pop()
        if expr.variable2:
            self.locals[expr.variable2].pop()
        total = total.plus(self.cost(expr.result))
        self.locals[expr.accumulator].pop()
        count = self.size_or_unknown(expr.range)
        total = total.plus(count.times_cost(each))
        if isinstance(expr.initial, Literal):
            self.set_size(expr, self.size(expr.initial))
        elif isinstance(expr.initial, ListExpr | MapExpr):
            self.set_size(expr, count)
            self.set_entries(expr, self.entries_of(expr.step))
        return total

    # -- calls

    def call(self, expr: Call) -> CostRange:
        if expr.function == "dyn":
            argument = expr.arguments[0]
            cost = self.cost(argument)
            self.set_size(expr, self.size(argument))
            self.set_entries(expr, self.entries_of(argument))
            return cost.plus(CostRange(1, 1))
        costs: list[CostRange] = []
        nodes: list[Node] = []
        for argument in expr.arguments:
            costs.append(self.cost(argument))
            nodes.append(self.node(argument))
        if not expr.overloads:
            return CostRange(0, 0)
        total = CostRange(0, 0)
        target: Node | None = None
        if expr.target is not None:
            total = self.cost(expr.target)
            target = self.node(expr.target)
        cost = CostRange(UNKNOWN.max, 0)
        size: SizeRange | None = None
        for overload in expr.overloads:
            estimate = self.function(expr, overload, target, nodes, costs)
            cost = cost.union(estimate.cost)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if overload in ("index_list", "index_map"):
                entries = self.entries_of(expr.arguments[0])
                size = entries.value if entries is not None else None
                suffix = "@items" if overload == "index_list" else "@values"
                self.paths[id(expr)] = (*self.path(expr.arguments[0]), suffix)
            if size is None:
                size = self.size(expr)
        self.set_size(expr, size)
        return total.plus(cost)

    def function(
        self, expr: Call, overload: str, target: Node | None, nodes: Sequence[Node], costs: Sequence[CostRange]
    ) -> CallEstimate:
        arguments = CostRange(0, 0)
        for cost in costs:
            arguments = arguments.plus(cost)
        estimate = call_estimate(expr.function, overload, target, nodes, self.sizer)
        if estimate is not None:
            return CallEstimate(estimate.cost.plus(arguments), estimate.size)
        if overload in ("logical_and", "logical_or"):
            return CallEstimate(CostRange(costs[0].min, costs[0].plus(costs[1]).max))
        if overload == "conditional":
            self.set_entries(expr, self.common_entries(expr.arguments[1], expr.arguments[2]))
            size = (nodes[1].size or UNKNOWN).union(nodes[2].size or UNKNOWN)
            return CallEstimate(costs[0].plus(costs[1].union(costs[2])), size)
        if overload in ("add_string", "add_bytes", "add_list"):
            self.set_entries(expr, self.common_entries(expr.arguments[0], expr.arguments[1]))
        found = standard_estimate(overload, target, nodes)
        return CallEstimate(found.cost.plus(arguments), found.size)

    def common_entries(self, one: Expr, other: Expr) -> _Entries | None:
        entries = self.entries_of(one)
        return None if entries is None else entries.union(self.entries_of(other))


def _resolved(expr: Expr) -> Expr:
    return expr.resolved if isinstance(expr, Select) and expr.resolved is not None else expr


def _literal_size(expr: Expr) -> SizeRange | None:
    if isinstance(expr, Literal):
        return fixed(len(expr.value)) if isinstance(expr.value, str | bytes) else ONE
    if isinstance(expr, ListExpr):
        return fixed(len(expr.elements))
    if isinstance(expr, MapExpr):
        return fixed(len(expr.entries))
    return None


def _is_scalar(value: Type) -> bool:
    if value.is_optional:
        return _is_scalar(value.parameters[0])
    return value.kind in _SCALARS
