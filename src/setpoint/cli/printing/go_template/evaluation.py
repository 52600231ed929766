"""Evaluate the nodes of a template on data."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from setpoint.cli.printing.go_template.formatting import (
    ABSENT,
    Boxed,
    Int,
    is_true,
    plain_value,
    type_name,
    unboxed,
    utf8,
)
from setpoint.cli.printing.go_template.functions import ANY, FUNCTIONS, TEXT, VALUE
from setpoint.cli.printing.go_template.nodes import (
    Action,
    Branch,
    Call,
    Chain,
    Command,
    Constant,
    Dot,
    Field,
    Identifier,
    Leave,
    Nil,
    Node,
    Pipe,
    TemplateProblem,
    Text,
    Variable,
)
from setpoint.cli.printing.go_template.parsing import NAME
from setpoint.meta.goformat import plain, quote

MAX_STEPS: Final = 5_000_000
DEEPEST_CALLS: Final = 60
_MISSING: Final = object()
"""Marks a missing pipeline value."""


class _Left(Exception):
    """Raised by `break` and `continue` in the body of a loop."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Evaluation:
    """One evaluation of a template on a value."""

    def __init__(self, text: str, templates: dict[str, list[Node]], allow_missing_keys: bool) -> None:
        self._text = text
        self._templates = templates
        self._allow_missing = allow_missing_keys
        self._template = NAME
        self._node: Node | None = None
        """The node that is being evaluated, for error messages."""
        self._variables: list[tuple[str, Any]] = []
        self._depth = 0
        self._steps = 0
        self._out: list[str] = []

    def run(self, data: Any) -> str:
        self._variables = [("$", data)]
        try:
            try:
                self._walk(data, self._templates[NAME])
            except RecursionError:
                self._fail("exceeded maximum template depth")
        except TemplateProblem as problem:
            problem.output = "".join(self._out)
            raise
        return "".join(self._out)

    def _fail(self, message: str) -> NoReturn:
        node = self._node
        if node is None:
            raise TemplateProblem(f"template: {self._template}: {message}")
        before = self._text[: node.at]
        line = before.count("\n") + 1
        column = len(utf8(before[before.rfind("\n") + 1 :]))
        place = f"{NAME}:{line}:{column}"
        raise TemplateProblem(f"template: {place}: executing {quote(self._template)} at <{node}>: {message}")

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _walk(self, dot: Any, nodes: list[Node]) -> None:
        for node in nodes:
            self._steps += 1
            if self._steps > MAX_STEPS:
                self._fail(f"the template takes more than {MAX_STEPS} steps")
            if isinstance(node, Text):
                self._out.append(node.text)
                continue
            self._node = node
            if isinstance(node, Action):
                value = self._pipe(dot, node.pipe)
                if not node.pipe.variables:
                    self._out.append("<no value>" if value is ABSENT else plain(value))
            elif isinstance(node, Branch):
                self._branch(dot, node)
            elif isinstance(node, Call):
                self._invocation(dot, node)
            elif isinstance(node, Leave):
                raise _Left(node.kind)

    def _branch(self, dot: Any, node: Branch) -> None:
        mark = len(self._variables)
        try:
            if node.kind == "range":
                self._range(dot, node)
                return
            value = self._pipe(dot, node.pipe)
            if is_true(value):
                self._walk(value if node.kind == "with" else dot, node.body)
            elif node.otherwise is not None:
                self._walk(dot, node.otherwise)
        finally:
            del self._variables[mark:]

    def _range(self, dot: Any, node: Branch) -> None:
        names = node.pipe.variables
        value = self._pipe(dot, node.pipe)
        mark = len(self._variables)
        pairs: Any
        if isinstance(value, list):
            pairs = ((Int(at), Boxed(one)) for at, one in enumerate(value))
        elif isinstance(value, dict):
            pairs = ((key, Boxed(value[key])) for key in sorted(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            if len(names) > 1:
                self._fail(f"can't use {plain(value)} to iterate over more than one variable")
            pairs = ((ABSENT, type(value)(at)) for at in range(value))
        elif value is ABSENT:
            pairs = ()
        else:
            self._fail(f"range can't iterate over {plain(value)}")
        empty = True
        for key, one in pairs:
            empty = False
            if names:
                given = (one,) if len(names) == 1 else (key, one)
                for place, (name, item) in enumerate(zip(names, given, strict=True)):
                    if node.pipe.assigns:
                        self._assign(name, item)
                    else:
                        self._variables[mark - len(names) + place] = (name, item)
            try:
                self._walk(one, node.body)
            except _Left as left:
                if left.kind == "break":
                    return
            finally:
                del self._variables[mark:]
        if empty and node.otherwise is not None:
            self._walk(dot, node.otherwise)

    def _invocation(self, dot: Any, node: Call) -> None:
        template = self._templates.get(node.name)
        if template is None:
            self._fail(f"template {quote(node.name)} not defined")
        if self._depth == DEEPEST_CALLS:
            self._fail(f"exceeded maximum template depth ({DEEPEST_CALLS})")
        dot = ABSENT if node.pipe is None else self._pipe(dot, node.pipe)
        outer, outer_name = self._variables, self._template
        self._variables, self._template = [("$", dot)], node.name
        self._depth += 1
        self._walk(dot, template)
        self._depth -= 1
        self._variables, self._template = outer, outer_name

    # -- pipelines --------------------------------------------------------------------------------------------------

    def _pipe(self, dot: Any, pipe: Pipe) -> Any:
        self._node = pipe
        value: Any = _MISSING
        for command in pipe.commands:
            value = unboxed(self._command(dot, command, value))
        for name in pipe.variables:
            if pipe.assigns:
                self._assign(name, value)
            else:
                self._variables.append((name, value))
        return value

    def _assign(self, name: str, value: Any) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == name:
                self._variables[at] = (name, value)
                return
        self._fail(f"undefined variable: {name}")

    def _command(self, dot: Any, command: Command, final: Any) -> Any:
        first = command.args[0]
        if isinstance(first, Field | Chain | Variable):
            return self._fields(dot, first, has_args=len(command.args) > 1 or final is not _MISSING)
        if isinstance(first, Identifier):
            return self._function(dot, first, command, command.args[1:], final)
        if not isinstance(first, Pipe):
            self._node = first
        if len(command.args) > 1 or final is not _MISSING:
            self._not_a_function(first)
        if isinstance(first, Pipe):
            return self._pipe(dot, first)
        if isinstance(first, Dot):
            return dot
        if not isinstance(first, Constant):
            self._fail("nil is not a command")
        return self._constant(first)

    def _not_a_function(self, node: Node) -> NoReturn:
        self._fail(f"can't give argument to non-function {node}")

    def _constant(self, node: Constant) -> Any:
        if isinstance(node.value, Int) and not -(2**63) <= node.value < 2**63:
            self._fail(f"{node.text} overflows int")
        return node.value

    def _fields(self, dot: Any, node: Field | Chain | Variable, has_args: bool = False) -> Any:
        self._node = node
        value = dot
        if isinstance(node, Variable):
            value = next((value for name, value in reversed(self._variables) if name == node.name), _MISSING)
            if value is _MISSING:
                self._fail(f"undefined variable: {node.name}")
            if not node.names and has_args:
                self._not_a_function(node)
        elif isinstance(node, Chain):
            if isinstance(node.node, Nil):
                self._fail(f"indirection through explicit nil in {node}")
            value = self._argument(dot, node.node, "")
        last = len(node.names) - 1
        for at, name in enumerate(node.names):
            value = self._field(value, name, has_args and at == last)
        return value

    def _field(self, receiver: Any, name: str, has_args: bool) -> Any:
        if receiver is ABSENT:
            if not self._allow_missing:
                self._fail(f"nil data; no entry for key {quote(name)}")
            return ABSENT
        inner = receiver.value if isinstance(receiver, Boxed) else receiver
        if inner is None:
            self._fail(f"nil pointer evaluating interface {{}}.{name}")
        if not isinstance(inner, dict):
            self._fail(f"can't evaluate field {name} in type {type_name(receiver)}")
        if has_args:
            self._fail(f"{name} is not a method but has arguments")
        if name in inner:
            return Boxed(inner[name])
        if not self._allow_missing:
            self._fail(f"map has no entry for key {quote(name)}")
        return ABSENT

    # -- functions --------------------------------------------------------------------------------------------------

    def _function(self, dot: Any, node: Identifier, context: Node, args: list[Node], final: Any) -> Any:
        self._node = node
        name = node.name
        function = FUNCTIONS[name]
        piped = final is not _MISSING
        count, fixed = len(args) + piped, function.fixed
        if function.rest:
            if count < len(fixed):
                self._fail(f"wrong number of args for {name}: want at least {len(fixed)} got {len(args)}")
        elif count != len(fixed):
            self._fail(f"wrong number of args for {name}: want {len(fixed)} got {count}")
        if name in ("and", "or"):
            return self._shortcut(dot, name, args, final)
        types = [*fixed, *[function.rest] * (count - len(fixed))]
        given = [self._argument(dot, arg, type_) for arg, type_ in zip(args, types, strict=False)]
        if piped:
            given.append(self._fitting(final, types[count - 1]))
        if name == "call":
            given.insert(0, str(args[0]) if args else "")
        try:
            return function.invocation(*given)
        except ValueError as error:
            self._node = context
            self._fail(f"error calling {name}: {error}")

    def _shortcut(self, dot: Any, name: str, args: list[Node], final: Any) -> Any:
        value: Any = ABSENT
        for arg in args:
            value = self._argument(dot, arg, VALUE)
            if is_true(value) == (name == "or"):
                return value
        return value if final is _MISSING else final

    def _argument(self, dot: Any, node: Node, type_: str) -> Any:
        self._node = node
        if isinstance(node, Constant):
            if type_ == TEXT and not isinstance(node.value, str):
                self._fail(f"expected string; found {node}")
            return self._constant(node)
        if isinstance(node, Nil):
            if type_ == TEXT:
                self._fail("cannot assign nil to string")
            return ABSENT if type_ == VALUE else None
        if isinstance(node, Dot):
            value = dot
        elif isinstance(node, Pipe):
            value = self._pipe(dot, node)
        elif isinstance(node, Identifier):
            value = self._function(dot, node, node, [], _MISSING)
        elif isinstance(node, Field | Chain | Variable):
            value = self._fields(dot, node)
        else:
            self._fail(f"can't handle {node}")
        return self._fitting(value, type_)

    def _fitting(self, value: Any, type_: str) -> Any:
        """Convert a value to the type of the parameter."""
        if type_ == ANY:
            return plain_value(value)
        if type_ == TEXT:
            if value is ABSENT:
                self._fail("invalid value; expected string")
            inner = unboxed(value)
            if not isinstance(inner, str):
                shown = value if inner is ABSENT else inner
                self._fail(f"wrong type for value; expected string; got {type_name(shown)}")
            return inner
        return value
