"""An environment declares what an expression may use, and compiles texts into programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.checker import Checker, validate
from setpoint.meta.cel.code import FIRST_VARIABLE, Frame
from setpoint.meta.cel.compiler import Access, Compiler
from setpoint.meta.cel.cost import Sizer, estimate
from setpoint.meta.cel.declarations import Function, Library, overload
from setpoint.meta.cel.libraries.addresses import CIDR, IP
from setpoint.meta.cel.libraries.authorizer import AUTHZ, AUTHZ_SELECTORS
from setpoint.meta.cel.libraries.lists import KUBERNETES_INCLUDES, KUBERNETES_LISTS, LISTS, SETS
from setpoint.meta.cel.libraries.named_formats import FORMAT
from setpoint.meta.cel.libraries.optionals import OPTIONALS, TWO_VARIABLE_COMPREHENSIONS
from setpoint.meta.cel.libraries.quantities import QUANTITY
from setpoint.meta.cel.libraries.regular import KUBERNETES_REGEX
from setpoint.meta.cel.libraries.semver import SEMVER
from setpoint.meta.cel.libraries.standard import STANDARD
from setpoint.meta.cel.libraries.strings import STRINGS
from setpoint.meta.cel.libraries.urls import URLS
from setpoint.meta.cel.macros import Macro, MacroKey
from setpoint.meta.cel.parser import parse
from setpoint.meta.cel.sizes import CostRange
from setpoint.meta.cel.source import CelProblem, Source
from setpoint.meta.cel.syntax import Expr, depth_of
from setpoint.meta.cel.types import StructType, Type
from setpoint.meta.cel.values import MISSING, CelError, CostExceeded, Message

_FRAMES = 10_000
"""Recursion limit for the deepest expression that the parser accepts.

Python functions that call each other use no C stack, so this is memory on the heap."""


_USUAL = sys.getrecursionlimit()
_users: list[None] = []
"""One item for each current user of the raised limit, which is shared by all threads."""


@contextmanager
def _raised_recursion_limit() -> Iterator[None]:
    if _USUAL >= _FRAMES:
        yield
        return
    _users.append(None)
    sys.setrecursionlimit(_FRAMES)
    try:
        yield
    finally:
        _users.pop()
        if not _users:
            sys.setrecursionlimit(_USUAL)
            if _users:  # Another thread may have left it in the meantime.
                sys.setrecursionlimit(_FRAMES)


PER_CALL_LIMIT = 1_000_000
"""Maximum cost of one evaluation."""
_SHALLOW = 60
"""Depth of a tree up to which Python's default recursion limit suffices."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result and the cost of an evaluation. Exactly one of `value` and `error` is meaningful."""

    value: Any
    cost: int
    error: str | None = None
    cost_exceeded: bool = False


class Environment:
    """Variables with their types, libraries and message types. Immutable: `extended` returns another one.

    Building one is expensive, so cache it. Compiling does not change it, so it can be shared.
    """

    def __init__(
        self,
        libraries: Iterable[Library],
        variables: Mapping[str, Type] | None = None,
        structs: Iterable[StructType] = (),
        *,
        homogeneous: bool = True,
        container: str = "",
        resolve_struct: Callable[[str], StructType | None] | None = None,
    ) -> None:
        self._variables = dict(variables or {})
        self._functions: dict[str, Function] = {}
        self._macros: dict[MacroKey, Macro] = {}
        self._types: dict[str, Type] = {}
        self._structs = {struct.name: struct for struct in structs}
        self._resolve_struct = resolve_struct
        self._homogeneous = homogeneous
        self._container = container
        self._optional_syntax = False
        for library in libraries:
            self._add(library)

    def _add(self, library: Library) -> None:
        self._optional_syntax |= library.optional_syntax
        self._macros.update(library.macros)
        self._types.update(library.types)
        for identity, signature, call in library.functions:
            name, declared = overload(identity, signature, call)
            known = self._functions.setdefault(name, Function(name)).overloads
            known[:] = [other for other in known if other.id != identity]
            known.append(declared)

    def extended(
        self,
        variables: Mapping[str, Type] | None = None,
        structs: Iterable[StructType] = (),
        resolve_struct: Callable[[str], StructType | None] | None = None,
        libraries: Iterable[Library] = (),
    ) -> Environment:
        """Return the same environment with more in it; without further libraries, functions and macros are shared."""
        other = object.__new__(Environment)
        other.__dict__.update(self.__dict__)
        other._variables = {**self._variables, **(variables or {})}
        other._structs = {**self._structs, **{struct.name: struct for struct in structs}}
        other._resolve_struct = resolve_struct or self._resolve_struct
        if libraries:
            other._functions = {name: Function(name, list(known.overloads)) for name, known in self._functions.items()}
            other._macros, other._types = dict(self._macros), dict(self._types)
            for library in libraries:
                other._add(library)
        return other

    def struct(self, name: str) -> StructType | None:
        found = self._structs.get(name)
        if found is None and self._resolve_struct is not None:
            found = self._resolve_struct(name)
        return found

    def _field(self, struct: str, field: str) -> Type | None:
        found = self.struct(struct)
        return None if found is None else found.field(field)

    def check(self, text: str) -> tuple[Source, Expr]:
        """Return the checked tree of a text. Raises CelProblem."""
        with _raised_recursion_limit():
            return self._check(text)

    def _check(self, text: str) -> tuple[Source, Expr]:
        source, tree = parse(text, self._macros, self._optional_syntax)
        checker = Checker(
            self._variables,
            self._functions,
            self._types,
            lambda name: self.struct(name) is not None,
            self._field,
            self._container,
        )
        checker.run(tree)
        if checker.issues:
            raise CelProblem(source, checker.issues)
        issues = validate(tree, self._homogeneous)
        if issues:
            raise CelProblem(source, issues)
        return source, tree

    def compile(self, text: str) -> Program:
        """Return a program that can be evaluated any number of times. Raises CelProblem, or CelError where a constant
        part of the expression cannot be computed."""
        _, tree = self.check(text)
        compiler = Compiler(self._functions, self._construct, self._access)
        with _raised_recursion_limit():
            code = compiler.compile(tree)
        return Program(text, tree, code.run, code.cost, dict(compiler.variables), compiler.size)

    def _access(self, struct: Type, field: str) -> Access | None:
        found = self.struct(struct.name)
        return None if found is None or found.access is None else found.access.get(field)

    def _construct(self, name: str, fields: dict[str, Any]) -> Any:
        found = self.struct(name)
        if found is None:
            raise CelError(f"unknown type: {name}")
        if found.construct is not None:
            return found.construct(fields)
        return Message(t.struct(name), fields)


class Program:
    """A compiled expression. Evaluation does not change it."""

    __slots__ = ("_deep", "_places", "_run", "_template", "result", "text", "tree")

    def __init__(
        self, text: str, tree: Expr, run: Callable[[Frame], Any], cost: int, places: dict[str, int], size: int
    ) -> None:
        self.text = text
        self.tree = tree
        self.result: Type = tree.type
        """Type of the result."""
        self._run = run
        self._places = tuple(places.items())
        self._deep = depth_of(tree) > _SHALLOW
        self._template: Frame = [cost, 0, *[MISSING] * (size - FIRST_VARIABLE)]

    @property
    def variables(self) -> frozenset[str]:
        """Return the variables that the program reads."""
        return frozenset(name for name, _ in self._places)

    def evaluate(self, bindings: Mapping[str, Any], limit: int = PER_CALL_LIMIT) -> Outcome:
        """Evaluate the program with these variables. It never raises: the outcome holds the error and the cost until
        then."""
        frame = self._template.copy()
        frame[1] = limit
        for name, place in self._places:
            frame[place] = bindings.get(name, MISSING)
        try:
            if self._deep:
                with _raised_recursion_limit():
                    value = self._run(frame)
            else:
                value = self._run(frame)
        except CelError as error:
            cost = frame[0]
            if cost > limit:
                return Outcome(None, cost, str(CostExceeded()), True)
            return Outcome(None, cost, error.message)
        except CostExceeded as error:
            return Outcome(None, frame[0], str(error), True)
        cost = frame[0]
        if cost > limit:
            return Outcome(None, cost, str(CostExceeded()), True)
        return Outcome(value, cost)

    def cost_estimate(self, sizer: Sizer | None = None) -> CostRange:
        """Return the minimum and maximum cost of an evaluation, given how large the variables can be."""
        with _raised_recursion_limit():
            return estimate(self.tree, sizer)


# In upstream's order, which selects the overload when several match.
_FIRST: tuple[Library, ...] = (STANDARD, URLS, KUBERNETES_REGEX)
_REST: tuple[Library, ...] = (
    AUTHZ,
    OPTIONALS,
    QUANTITY,
    STRINGS,
    SETS,
    IP,
    CIDR,
    FORMAT,
    AUTHZ_SELECTORS,
    TWO_VARIABLE_COMPREHENSIONS,
    SEMVER,
    LISTS,
)


@cache
def kubernetes_environment(stored: bool = False) -> Environment:
    """Return the environment without variables. `stored`: for expressions that are in the cluster already."""
    if stored:
        return Environment((*_FIRST, *_REST, KUBERNETES_LISTS, KUBERNETES_INCLUDES))
    return Environment((*_FIRST, KUBERNETES_LISTS, *_REST))
