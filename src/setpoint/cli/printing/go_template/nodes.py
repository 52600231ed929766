"""The nodes of a template. Each can be converted to its source text, because errors quote it."""

from __future__ import annotations

from typing import Any

from setpoint.meta.goformat import quote


class TemplateProblem(ValueError):
    """A template is invalid or does not fit the data; the message is Go's. `output` is the text rendered before the
    error."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class Node:
    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at
        """The offset in the template's text."""


class Text(Node):
    __slots__ = ("text",)

    def __init__(self, at: int, text: str) -> None:
        super().__init__(at)
        self.text = text

    def __str__(self) -> str:
        return self.text


class Dot(Node):
    __slots__ = ()

    def __str__(self) -> str:
        return "."


class Nil(Node):
    __slots__ = ()

    def __str__(self) -> str:
        return "nil"


class Constant(Node):
    """A boolean, a number or a string, with its source text."""

    __slots__ = ("text", "value")

    def __init__(self, at: int, value: Any, text: str) -> None:
        super().__init__(at)
        self.value = value
        self.text = text

    def __str__(self) -> str:
        return self.text


class Identifier(Node):
    """The name of a function."""

    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name

    def __str__(self) -> str:
        return self.name


class Field(Node):
    """`.a.b`."""

    __slots__ = ("names",)

    def __init__(self, at: int, names: list[str]) -> None:
        super().__init__(at)
        self.names = names

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


class Variable(Node):
    """`$x.a.b`."""

    __slots__ = ("name", "names")

    def __init__(self, at: int, name: str, names: list[str]) -> None:
        super().__init__(at)
        self.name = name
        self.names = names

    def __str__(self) -> str:
        return ".".join([self.name, *self.names])


class Chain(Node):
    """`(pipeline).a.b`."""

    __slots__ = ("names", "node")

    def __init__(self, at: int, node: Node, names: list[str]) -> None:
        super().__init__(at)
        self.node = node
        self.names = names

    def __str__(self) -> str:
        return _argument(self.node) + "".join(f".{name}" for name in self.names)


class Command(Node):
    """A function or value with its arguments."""

    __slots__ = ("args",)

    def __init__(self, at: int, args: list[Node]) -> None:
        super().__init__(at)
        self.args = args

    def __str__(self) -> str:
        return " ".join(map(_argument, self.args))


class Pipe(Node):
    """A pipeline of commands, each of which gets the previous result as its last argument."""

    __slots__ = ("assigns", "commands", "variables")

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.variables: list[str] = []
        self.assigns = False
        self.commands: list[Command] = []

    def __str__(self) -> str:
        declared = ", ".join(self.variables) + (" = " if self.assigns else " := ") if self.variables else ""
        return declared + " | ".join(map(str, self.commands))


class Action(Node):
    __slots__ = ("pipe",)

    def __init__(self, at: int, pipe: Pipe) -> None:
        super().__init__(at)
        self.pipe = pipe

    def __str__(self) -> str:
        return f"{{{{{self.pipe}}}}}"


class Branch(Node):
    """An `if`, `with` or `range`, by `kind`."""

    __slots__ = ("body", "kind", "otherwise", "pipe")

    def __init__(self, at: int, kind: str, pipe: Pipe, body: list[Node], otherwise: list[Node] | None) -> None:
        super().__init__(at)
        self.kind = kind
        self.pipe = pipe
        self.body = body
        self.otherwise = otherwise

    def __str__(self) -> str:
        otherwise = "" if self.otherwise is None else "{{else}}" + "".join(map(str, self.otherwise))
        return f"{{{{{self.kind} {self.pipe}}}}}{''.join(map(str, self.body))}{otherwise}{{{{end}}}}"


class Leave(Node):
    """A `break` or `continue`, by `kind`."""

    __slots__ = ("kind",)

    def __init__(self, at: int, kind: str) -> None:
        super().__init__(at)
        self.kind = kind

    def __str__(self) -> str:
        return f"{{{{{self.kind}}}}}"


class Call(Node):
    """`{{template "name" pipeline}}`."""

    __slots__ = ("name", "pipe")

    def __init__(self, at: int, name: str, pipe: Pipe | None) -> None:
        super().__init__(at)
        self.name = name
        self.pipe = pipe

    def __str__(self) -> str:
        argument = "" if self.pipe is None else f" {self.pipe}"
        return f"{{{{template {quote(self.name)}{argument}}}}}"


class Mark(Node):
    """An `{{end}}` or `{{else}}`, which ends a list of nodes."""

    __slots__ = ("kind",)

    def __init__(self, at: int, kind: str) -> None:
        super().__init__(at)
        self.kind = kind

    def __str__(self) -> str:
        return f"{{{{{self.kind}}}}}"


def _argument(node: Node) -> str:
    return f"({node})" if isinstance(node, Pipe) else str(node)
