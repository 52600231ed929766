"""Type checking of expressions: the meaning of names, overload resolution, result types, validation of constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from setpoint.meta.cel import types as t
from setpoint.meta.cel.declarations import Function
from setpoint.meta.cel.libraries.regular import compiled
from setpoint.meta.cel.libraries.standard import string_to_duration, string_to_timestamp
from setpoint.meta.cel.libraries.strings import bad_format
from setpoint.meta.cel.source import Issue
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
    walk,
)
from setpoint.meta.cel.types import Bindings, Kind, Type, all_assignable, assignable, most_general, substitute
from setpoint.meta.cel.values import CelError, type_of_value

FieldType = Callable[[str, str], Type | None]
"""(struct name, field) -> the field's type, or None."""


class Checker:
    """The check of one expression. Afterwards every node has its type, and `issues` holds the type errors."""

    def __init__(
        self,
        variables: Mapping[str, Type],
        functions: Mapping[str, Function],
        type_names: Mapping[str, Type],
        find_struct: Callable[[str], bool],
        find_field: FieldType,
        container: str = "",
    ) -> None:
        self.variables = variables
        self.functions = functions
        self.type_names = type_names
        self.find_struct = find_struct
        self.find_field = find_field
        self.container = container
        self.issues: list[Issue] = []
        self.bindings = Bindings()
        self.scopes: list[dict[str, Type]] = []
        self.unknowns = 0
        self.nodes: list[Expr] = []

    def run(self, tree: Expr) -> Type:
        self.check(tree)
        for node in self.nodes:
            node.type = substitute(self.bindings, node.type, unknown_to_dyn=True)
        return tree.type

    def report(self, position: int, message: str) -> None:
        self.issues.append(Issue(message, position))

    def unknown(self) -> Type:
        self.unknowns += 1
        return t.param(f"_var{self.unknowns - 1}")

    def check(self, expr: Expr) -> None:
        self.nodes.append(expr)
        if isinstance(expr, Call):
            self.call(expr)
        elif isinstance(expr, Select):
            self.select(expr)
        elif isinstance(expr, Ident):
            self.ident(expr)
        elif isinstance(expr, Literal):
            expr.type = type_of_value(expr.value)
        elif isinstance(expr, Comprehension):
            self.comprehension(expr)
        elif isinstance(expr, ListExpr):
            self.list(expr)
        elif isinstance(expr, MapExpr):
            self.map(expr)
        else:
            assert isinstance(expr, Struct)
            self.struct(expr)

    # -- names

    def candidates(self, name: str) -> list[str]:
        """Return the qualified names that a name may refer to, the innermost container first."""
        if name.startswith("."):
            return [name[1:]]
        found = []
        container = self.container
        while container:
            found.append(f"{container}.{name}")
            container = container.rpartition(".")[0]
        found.append(name)
        return found

    def local(self, name: str) -> Type | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def lookup(self, expr: Ident, name: str, first: str) -> bool:
        """Resolve a (qualified) name into the node; `first` is its first part, which a local variable may hide."""
        hidden = self.local(first.lstrip(".")) is not None
        for candidate in self.candidates(name):
            declared = self.variables.get(candidate)
            if declared is not None:
                expr.name, expr.type, expr.is_global = candidate, declared, hidden
                return True
            named = self.type_names.get(candidate)
            if named is None and self.find_struct(candidate):
                named = t.struct(candidate)
            if named is not None:
                expr.name, expr.type, expr.constant = candidate, t.type_of(named), named
                return True
        return False

    def ident(self, expr: Ident) -> None:
        name = expr.name
        if not name.startswith("."):
            local = self.local(name)
            if local is not None:
                expr.type = local
                return
        if not self.lookup(expr, name, name):
            expr.type = t.ERROR
            self.report(expr.position, f"undeclared reference to '{name}' (in container '{self.container}')")

    def select(self, expr: Select) -> None:
        qualified = _qualified(expr)
        if qualified is not None:
            first = qualified.split(".", 2)[1] if qualified.startswith(".") else qualified.partition(".")[0]
            if qualified.startswith(".") or self.local(first) is None:
                resolved = Ident(expr.position, qualified)
                if self.lookup(resolved, qualified, first):
                    expr.resolved = resolved
                    expr.type = resolved.type
                    self.nodes.append(resolved)
                    return
        result = self.field(expr, expr.operand, expr.field, optional=False)
        expr.type = t.BOOL if expr.test_only else substitute(self.bindings, result)

    def field(self, expr: Expr, operand: Expr, name: str, optional: bool) -> Type:
        self.check(operand)
        operand_type = substitute(self.bindings, operand.type)
        target, was_optional = t.unwrap_optional(operand_type)
        result = t.ERROR
        if target.kind is Kind.MAP:
            result = target.parameters[1]
        elif target.kind is Kind.STRUCT:
            result = self.struct_field(expr.position, target.name, name) or t.ERROR
        elif target.kind is Kind.PARAM:
            assignable(self.bindings, t.DYN, target)
            result = t.DYN
        else:
            if not target.is_dyn_or_error:
                self.report(expr.position, f"type '{target}' does not support field selection")
            result = t.DYN
        return t.optional_of(result) if was_optional or optional else result

    def struct_field(self, position: int, struct: str, name: str) -> Type | None:
        if not self.find_struct(struct):
            self.report(position, f"unexpected failed resolution of '{struct}'")
            return None
        found = self.find_field(struct, name)
        if found is None:
            self.report(position, f"undefined field '{name}'")
        return found

    # -- calls

    def function(self, name: str) -> Function | None:
        for candidate in self.candidates(name):
            found = self.functions.get(candidate)
            if found is not None:
                return found
        return None

    def call(self, expr: Call) -> None:
        if expr.function == "_?._":
            operand, name = expr.arguments
            assert isinstance(name, Literal)
            result = self.field(expr, operand, name.value, optional=True)
            name.type = t.STRING
            expr.type = substitute(self.bindings, result)
            expr.overloads = ["select_optional_field"]
            return
        for argument in expr.arguments:
            self.check(argument)
        target = expr.target
        if target is not None:
            prefix = _qualified(target)
            if prefix is not None:
                namespaced = self.function(f"{prefix}.{expr.function}")
                if namespaced is not None:
                    expr.function, expr.target = namespaced.name, None
                    self.resolve(expr, namespaced, None)
                    return
            self.check(target)
        function = self.function(expr.function)
        if function is None:
            expr.type = t.ERROR
            container = f"(in container '{self.container}')"
            self.report(expr.position, f"undeclared reference to '{expr.function}' {container}")
            return
        if target is None:
            expr.function = function.name
        self.resolve(expr, function, target)

    def resolve(self, expr: Call, function: Function, target: Expr | None) -> None:
        arguments = [argument.type for argument in expr.arguments]
        if target is not None:
            arguments.insert(0, target.type)
        if function.name in ("_&&_", "_||_"):
            self.logical(expr, function)
            return
        result: Type | None = None
        for candidate in function.overloads:
            if candidate.member != (target is not None):
                continue
            wanted, gives = candidate.arguments, candidate.result
            if candidate.variables:
                fresh = Bindings({variable: self.unknown() for variable in candidate.variables})
                wanted = tuple(substitute(fresh, value) for value in wanted)
                gives = substitute(fresh, gives)
            if not all_assignable(self.bindings, arguments, wanted):
                continue
            expr.overloads.append(candidate.id)
            gives = substitute(self.bindings, gives)
            if result is None:
                result = gives
            elif not result.is_dyn and gives != result:
                result = t.DYN
        if result is None:
            shown = [str(substitute(self.bindings, value, unknown_to_dyn=True)) for value in arguments]
            signature = f"{shown[0]}.({', '.join(shown[1:])})" if target is not None else f"({', '.join(shown)})"
            self.report(expr.position, f"found no matching overload for '{function.name}' applied to '{signature}'")
            expr.type = t.ERROR
            return
        expr.type = result

    def logical(self, expr: Call, function: Function) -> None:
        fits = True
        for argument in expr.arguments:
            if not assignable(self.bindings, argument.type, t.BOOL):
                self.mismatch(argument, t.BOOL, argument.type)
                fits = False
        expr.overloads = [function.overloads[0].id]
        expr.type = t.BOOL if fits else t.ERROR

    def mismatch(self, expr: Expr, expected: Type, found: Type) -> None:
        self.report(expr.position, f"expected type '{expected}' but found '{found}'")

    # -- construction

    def join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if assignable(self.bindings, previous, current):
            return most_general(previous, current)
        return t.DYN

    def unwrapped(self, expr: Expr) -> Type:
        """Return the type of the value of an optional element."""
        inner, was_optional = t.unwrap_optional(expr.type)
        if not was_optional and not inner.is_dyn:
            self.mismatch(expr, t.optional_of(inner), inner)
        return inner

    def list(self, expr: ListExpr) -> None:
        element_type: Type | None = None
        for index, element in enumerate(expr.elements):
            self.check(element)
            found = self.unwrapped(element) if index in expr.optional else element.type
            element_type = self.join(element_type, found)
        expr.type = t.list_of(element_type or self.unknown())

    def map(self, expr: MapExpr) -> None:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in expr.entries:
            self.check(entry.key)
            key_type = self.join(key_type, entry.key.type)
            self.check(entry.value)
            found = self.unwrapped(entry.value) if entry.optional else entry.value.type
            value_type = self.join(value_type, found)
        expr.type = t.map_of(key_type or self.unknown(), value_type or self.unknown())

    def struct(self, expr: Struct) -> None:
        for candidate in self.candidates(expr.name):
            if candidate in self.type_names or self.find_struct(candidate):
                break
        else:
            expr.type = t.ERROR
            container = f"(in container '{self.container}')"
            self.report(expr.position, f"undeclared reference to '{expr.name}' {container}")
            return
        expr.name = candidate
        named = self.type_names.get(candidate) or t.struct(candidate)
        if named.kind is not Kind.STRUCT:
            self.report(expr.position, f"'{named.name}' is not a message type")
            named = t.ERROR
        expr.type = named
        for init in expr.fields:
            self.check(init.value)
            declared = self.struct_field(init.position, candidate, init.field) or t.ERROR
            found = self.unwrapped(init.value) if init.optional else init.value.type
            if not assignable(self.bindings, declared, found):
                message = f"expected type of field '{init.field}' is '{declared}' but provided type is '{found}'"
                self.report(init.position, message)

    # -- loops

    def comprehension(self, expr: Comprehension) -> None:
        self.check(expr.range)
        self.check(expr.initial)
        ranged = substitute(self.bindings, expr.range.type)
        accumulated = expr.initial.type
        first, second = self.iterated(expr, ranged)
        self.scopes.append({expr.accumulator: accumulated})
        inner = {expr.variable: first}
        if expr.variable2:
            inner[expr.variable2] = second
        self.scopes.append(inner)
        self.check(expr.condition)
        self.expect(expr.condition, t.BOOL)
        self.check(expr.step)
        self.expect(expr.step, accumulated)
        self.scopes.pop()
        self.check(expr.result)
        self.scopes.pop()
        expr.type = substitute(self.bindings, expr.result.type)

    def iterated(self, expr: Comprehension, ranged: Type) -> tuple[Type, Type]:
        """Return the types of the variables."""
        if ranged.kind is Kind.LIST:
            return (t.INT, ranged.parameters[0]) if expr.variable2 else (ranged.parameters[0], t.ERROR)
        if ranged.kind is Kind.MAP:
            return ranged.parameters[0], ranged.parameters[1]
        if ranged.kind in (Kind.DYN, Kind.ERROR, Kind.PARAM):
            assignable(self.bindings, t.DYN, ranged)
            return t.DYN, t.DYN
        message = f"expression of type '{ranged}' cannot be range of a comprehension (must be list, map, or dynamic)"
        self.report(expr.range.position, message)
        return t.ERROR, t.ERROR

    def expect(self, expr: Expr, wanted: Type) -> None:
        if not assignable(self.bindings, wanted, expr.type):
            self.mismatch(expr, wanted, expr.type)


def _qualified(expr: Expr) -> str | None:
    """Return `a.b.c` as one name, or None if it cannot be one."""
    parts: list[str] = []
    while isinstance(expr, Select):
        if expr.test_only:
            return None
        parts.append(expr.field)
        expr = expr.operand
    if not isinstance(expr, Ident):
        return None
    parts.append(expr.name)
    return ".".join(reversed(parts))


_LITERALS: dict[str, Callable[[str], object]] = {
    "duration": string_to_duration,
    "timestamp": string_to_timestamp,
    "matches": compiled,
}


def validate(tree: Expr, homogeneous: bool) -> list[Issue]:
    """Return the issues. `homogeneous` requires one type for list elements, except in arguments of `format`."""
    issues: list[Issue] = []
    exempt: set[int] = set()
    for node in walk(tree):
        if isinstance(node, Call):
            _literal_argument(node, issues)
            if node.function == "format":
                exempt.update(id(inner) for inner in walk(node))
                if node.target is not None:
                    issues.extend(bad_format(node))
        elif homogeneous and id(node) not in exempt:
            if isinstance(node, ListExpr):
                _same_elements(node, issues)
            elif isinstance(node, MapExpr):
                _same_entries(node, issues)
    return issues


def _literal_argument(call: Call, issues: list[Issue]) -> None:
    read = _LITERALS.get(call.function)
    if read is None or not call.arguments:
        return
    literal = call.arguments[0]
    if not isinstance(literal, Literal) or not isinstance(literal.value, str):
        return
    try:
        read(literal.value)
    except CelError:
        issues.append(Issue(f"invalid {call.function} argument", literal.position))


def _element_type(expr: Expr, optional: bool) -> Type:
    return expr.type.parameters[0] if optional and expr.type.is_optional else expr.type


def _mismatch(expr: Expr, expected: Type, found: Type) -> Issue:
    return Issue(f"expected type '{expected}' but found '{found}'", expr.position)


def _same_elements(expr: ListExpr, issues: list[Issue]) -> None:
    first: Type | None = None
    for index, element in enumerate(expr.elements):
        found = _element_type(element, index in expr.optional)
        if first is None:
            first = found
        elif found != first:
            issues.append(_mismatch(element, first, found))
            return


def _same_entries(expr: MapExpr, issues: list[Issue]) -> None:
    keys: Type | None = None
    values: Type | None = None
    for entry in expr.entries:
        key, value = entry.key.type, _element_type(entry.value, entry.optional)
        if keys is None or values is None:
            keys, values = key, value
            continue
        if key != keys:
            issues.append(_mismatch(entry.key, keys, key))
        if value != values:
            issues.append(_mismatch(entry.value, values, value))
