"""Compilation of a checked tree to closures. Decisions that the types allow are made at compile time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.meta.cel.code import FIRST_VARIABLE, Code, Frame, Run, constant
from setpoint.meta.cel.compile_calls import compile_call
from setpoint.meta.cel.compile_loops import compile_comprehension
from setpoint.meta.cel.compile_select import compile_opt_select, compile_select, compile_test
from setpoint.meta.cel.declarations import Function
from setpoint.meta.cel.runtime_cost import LIST_BASE, MAP_BASE, STRUCT_BASE
from setpoint.meta.cel.syntax import Call, Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, Struct
from setpoint.meta.cel.types import Type
from setpoint.meta.cel.values import MISSING, CelError, Optional, key_of

Constructor = Callable[[str, dict[str, Any]], Any]
"""(message type, fields) -> the message."""
Access = tuple[str, Callable[[Any], Any] | None]
"""Property of a JSON object for a field, and the function that converts its value."""


class Compiler:
    """Compiles one expression; `variables` then maps each variable to its index in a frame."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        construct: Constructor,
        access: Callable[[Type, str], Access | None],
    ) -> None:
        self.functions = functions
        self.construct = construct
        self.access = access
        self.variables: dict[str, int] = {}
        self.size = FIRST_VARIABLE
        self.locals: list[tuple[str, int | Code]] = []

    def slot(self) -> int:
        self.size += 1
        return self.size - 1

    def compile(self, expr: Expr) -> Code:
        if isinstance(expr, Call):
            if expr.function == "_?._":
                return compile_opt_select(self, expr)
            return compile_call(self, expr)
        if isinstance(expr, Select):
            if expr.resolved is not None:
                return self.ident(expr.resolved)
            return compile_test(self, expr) if expr.test_only else compile_select(self, expr)
        if isinstance(expr, Ident):
            return self.ident(expr)
        if isinstance(expr, Literal):
            return constant(expr.value)
        if isinstance(expr, Comprehension):
            return compile_comprehension(self, expr)
        if isinstance(expr, ListExpr):
            return self.list(expr)
        if isinstance(expr, MapExpr):
            return self.map(expr)
        assert isinstance(expr, Struct)
        return self.struct(expr)

    def ident(self, expr: Ident) -> Code:
        if expr.constant is not None:
            return constant(expr.constant)
        if not expr.is_global:
            for name, place in reversed(self.locals):
                if name == expr.name:
                    return _read(place) if isinstance(place, int) else Code(place.run, place.cost, attribute=0)
        name = expr.name.lstrip(".")
        if name not in self.variables:
            self.variables[name] = self.slot()
        return _variable(self.variables[name], name)

    def list(self, expr: ListExpr) -> Code:
        codes = [self.compile(element) for element in expr.elements]
        optional = expr.optional
        runs = [code.run for code in codes]

        costs = [code.cost for code in codes]

        def build(frame: Frame) -> Any:
            result: list[Any] = []
            try:
                for run in runs:
                    result.append(run(frame))
            except CelError:
                frame[0] -= sum(costs[len(result) + 1 :])  # These were not evaluated.
                raise
            return result

        def build_optional(frame: Frame) -> Any:
            result = []
            for index, run in enumerate(runs):
                try:
                    value = run(frame)
                except CelError:
                    frame[0] -= sum(costs[index + 1 :])
                    raise
                if index in optional:
                    if type(value) is not Optional:
                        raise CelError(f"cannot initialize optional list element from non-optional value {value}")
                    if not value.present:
                        continue
                    value = value.value
                result.append(value)
            return result

        run: Run = build_optional if optional else build
        if all(code.constant for code in codes):
            return constant(run([]))
        return Code(run, sum(code.cost for code in codes) + LIST_BASE)

    def map(self, expr: MapExpr) -> Code:
        keys = [self.compile(entry.key) for entry in expr.entries]
        values = [self.compile(entry.value) for entry in expr.entries]
        parts = [(key, value, entry.optional) for key, value, entry in zip(keys, values, expr.entries)]

        def build(frame: Frame) -> Any:
            result: dict[Any, Any] = {}
            for index, (key_code, value_code, optional) in enumerate(parts):
                rest = value_code.cost
                try:
                    key = key_code.run(frame)
                    rest = 0
                    value = value_code.run(frame)
                except CelError:
                    later = sum(code.cost + other.cost for code, other, _ in parts[index + 1 :])
                    frame[0] -= rest + later
                    raise
                if type(key) is bool:
                    key = key_of(key)
                if optional:
                    if type(value) is not Optional:
                        raise CelError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
                    if not value.present:
                        result.pop(key, None)
                        continue
                    value = value.value
                result[key] = value
            return result

        if all(code.constant for code in (*keys, *values)):
            return constant(build([]))
        return Code(build, sum(code.cost for code in (*keys, *values)) + MAP_BASE)

    def struct(self, expr: Struct) -> Code:
        codes = [self.compile(init.value) for init in expr.fields]
        parts = [(init.field, code.run, init.optional) for init, code in zip(expr.fields, codes)]
        name, construct = expr.name, self.construct
        costs = [code.cost for code in codes]

        def build(frame: Frame) -> Any:
            fields: dict[str, Any] = {}
            for index, (field, run, optional) in enumerate(parts):
                try:
                    value = run(frame)
                except CelError:
                    frame[0] -= sum(costs[index + 1 :])
                    raise
                if optional:
                    if type(value) is not Optional:
                        raise CelError(f"cannot initialize optional entry '{field}' from non-optional value {value}")
                    if not value.present:
                        fields.pop(field, None)
                        continue
                    value = value.value
                fields[field] = value
            return construct(name, fields)

        return Code(build, sum(code.cost for code in codes) + STRUCT_BASE)


def _read(place: int) -> Code:
    return Code(lambda frame: frame[place], 1, attribute=0)


def _variable(place: int, name: str) -> Code:
    def run(frame: Frame) -> Any:
        value = frame[place]
        if value is MISSING:
            raise CelError(f"no such attribute(s): {name}")
        return value

    return Code(run, 1, attribute=0)
