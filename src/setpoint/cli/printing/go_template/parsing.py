"""Parse tokens into nodes."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn

from setpoint.cli.printing.go_template.formatting import Int
from setpoint.cli.printing.go_template.lexing import T, Token, lex
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
    Mark,
    Nil,
    Node,
    Pipe,
    TemplateProblem,
    Text,
    Variable,
)
from setpoint.meta.goformat import Unquotable, quote, unquote, unquote_char

_INTEGER = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO]?(_?[0-7])+|0|[1-9](_?[0-9])*)")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def number(text: str) -> Int | float:
    """Parse a number. Raise ValueError with Go's message."""
    if _INTEGER.fullmatch(text) and len(text) < 400:
        digits = text.replace("_", "")
        sign, digits = (digits[0], digits[1:]) if digits[0] in "+-" else ("", digits)
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
        value = int(digits, 8) if octal else int(digits, 0)
        value = -value if sign == "-" else value
        if -(2**63) <= value < 2**63:
            return Int(value)
        if value >= 2**64 or value < 0:
            raise ValueError(f"integer overflow: {quote(text)}")
        return Int(value)
    if _FLOAT.fullmatch(text.replace("_", "")) and "_" not in text:
        return float(text)
    raise ValueError(f"illegal number syntax: {quote(text)}")


def character(text: str) -> Int:
    """Return the code point of a character constant such as `'a'`."""
    try:
        piece, at = unquote_char(text, 1, "'")
        if at != len(text) - 1:
            raise Unquotable
    except (Unquotable, IndexError):
        raise ValueError(f"malformed character constant: {text}") from None
    if text[1] == "\\" and len(piece) == 1:
        return Int(piece[0])
    return Int(ord(piece.decode("utf-8", "surrogateescape")))


NAME = "output"
"""The name of kubectl's template."""

_STARTS_COMMAND = frozenset(
    (T.BOOL, T.CHAR_CONSTANT, T.FIELD, T.IDENTIFIER, T.NUMBER, T.STRING, T.VARIABLE, T.LEFT_PAREN)
)


def parse(text: str, functions: Collection[str]) -> dict[str, list[Node]]:
    """Return the template under its name, and the templates that it defines."""
    parser = _Parser(text, functions)
    try:
        parser.run()
    except RecursionError:
        raise TemplateProblem(f"template: {NAME}: the template is nested too deep") from None
    return parser.templates


class _Parser:
    def __init__(self, text: str, functions: Collection[str]) -> None:
        self._functions = functions
        self._tokens = lex(text)
        self._next_at = 0
        self._furthest = 0
        """The last token that was read, whose line errors report."""
        self._variables = ["$"]
        self._ranges = 0
        self._action_line = 0
        self.templates: dict[str, list[Node]] = {}

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _next(self) -> Token:
        token = self._peek()
        self._next_at = min(self._next_at + 1, len(self._tokens) - 1)
        return token

    def _back(self, token: Token) -> None:
        self._next_at = self._tokens.index(token, max(0, self._next_at - 3))

    def _peek(self) -> Token:
        self._furthest = max(self._furthest, self._next_at)
        return self._tokens[self._next_at]

    def _next_solid(self) -> Token:
        token = self._next()
        return self._next() if token.type is T.SPACE else token

    def _peek_solid(self) -> Token:
        if self._peek().type is T.SPACE:
            self._next()
        return self._peek()

    def _expect_right(self, context: str) -> Token:
        token = self._next_solid()
        if token.type is not T.RIGHT:
            self._unexpected(token, context)
        return token

    def _fail(self, message: str) -> NoReturn:
        raise TemplateProblem(f"template: {NAME}:{self._tokens[self._furthest].line}: {message}")

    def _unexpected(self, token: Token, context: str) -> NoReturn:
        if token.type is not T.ERROR:
            self._fail(f"unexpected {token} in {context}")
        extra = ""
        if self._action_line and self._action_line != token.line:
            extra = f" in action started at {NAME}:{self._action_line}"
            if token.text.endswith(" action"):
                extra = extra.removeprefix(" in action")
        self._fail(f"{token}{extra}")

    # -- lists of nodes ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        nodes: list[Node] = []
        while self._peek().type is not T.EOF:
            if self._peek().type is T.LEFT:
                left = self._next()
                if self._next_solid().is_keyword("define"):
                    self._definition()
                    continue
                self._back(left)
            node = self._text_or_action()
            if isinstance(node, Mark):
                self._fail(f"unexpected {node}")
            nodes.append(node)
        self._add(NAME, nodes)

    def _add(self, name: str, nodes: list[Node]) -> None:
        known = self.templates.get(name)
        if known is None or _is_empty(known):
            self.templates[name] = nodes
        elif not _is_empty(nodes):
            self._fail(f"template: multiple definition of template {quote(name)}")

    def _definition(self) -> None:
        context = "define clause"
        name = self._name(self._next_solid(), context)
        self._expect_right(context)
        self._add(name, self._own_nodes(context))

    def _own_nodes(self, context: str) -> list[Node]:
        """Parse the nodes of a nested template, which has its own variables."""
        outer, self._variables = self._variables, ["$"]
        depth, self._ranges = self._ranges, 0
        nodes, end = self._nodes()
        if end.kind != "end":
            self._fail(f"unexpected {end} in {context}")
        self._variables, self._ranges = outer, depth
        return nodes

    def _nodes(self) -> tuple[list[Node], Mark]:
        nodes: list[Node] = []
        while True:
            if self._peek_solid().type is T.EOF:
                self._fail("unexpected EOF")
            node = self._text_or_action()
            if isinstance(node, Mark):
                return nodes, node
            nodes.append(node)

    def _text_or_action(self) -> Node:
        token = self._next_solid()
        if token.type is T.TEXT:
            return Text(token.at, token.text)
        if token.type is not T.LEFT:
            self._unexpected(token, "input")
        self._action_line = token.line
        try:
            node = self._action()
        finally:
            self._action_line = 0
        return node

    def _action(self) -> Node:
        token = self._next_solid()
        if token.type is T.KEYWORD:
            match token.text:
                case "if" | "with" | "range":
                    return self._branch(token.text)
                case "else":
                    return self._else()
                case "end":
                    return Mark(self._expect_right("end").at, "end")
                case "break" | "continue":
                    return self._leave(token)
                case "template":
                    return self._invocation()
                case "block":
                    return self._block()
        self._back(token)
        return Action(self._peek().at, self._pipeline("command", T.RIGHT))

    def _leave(self, token: Token) -> Node:
        ending = self._next_solid()
        if ending.type is not T.RIGHT:
            self._unexpected(ending, f"{{{{{token.text}}}}}")
        if not self._ranges:
            self._fail(f"{{{{{token.text}}}}} outside {{{{range}}}}")
        return Leave(token.at, token.text)

    def _else(self) -> Mark:
        peek = self._peek_solid()
        if peek.is_keyword("if") or peek.is_keyword("with"):
            return Mark(peek.at, "else")
        return Mark(self._expect_right("else").at, "else")

    def _branch(self, kind: str) -> Node:
        count = len(self._variables)
        pipe = self._pipeline(kind, T.RIGHT)
        self._ranges += kind == "range"
        body, mark = self._nodes()
        self._ranges -= kind == "range"
        otherwise: list[Node] | None = None
        if mark.kind == "else":
            if kind != "range" and self._peek().is_keyword(kind):
                self._next()
                otherwise = [self._branch(kind)]
            else:
                otherwise, mark = self._nodes()
                if mark.kind != "end":
                    self._fail(f"expected end; found {mark}")
        del self._variables[count:]
        return Branch(pipe.at, kind, pipe, body, otherwise)

    def _invocation(self) -> Node:
        token = self._next_solid()
        name = self._name(token, "template clause")
        pipe = None
        ending = self._next_solid()
        if ending.type is not T.RIGHT:
            self._back(ending)
            pipe = self._pipeline("template clause", T.RIGHT)
        return Call(token.at, name, pipe)

    def _block(self) -> Node:
        context = "block clause"
        token = self._next_solid()
        name = self._name(token, context)
        pipe = self._pipeline(context, T.RIGHT)
        self._add(name, self._own_nodes(context))
        return Call(token.at, name, pipe)

    def _name(self, token: Token, context: str) -> str:
        if token.type is not T.STRING:
            self._unexpected(token, context)
        return self._unquoted(token.text)

    def _unquoted(self, literal: str) -> str:
        try:
            return unquote(literal)
        except Unquotable:
            self._fail("invalid syntax")

    # -- pipelines --------------------------------------------------------------------------------------------------

    def _pipeline(self, context: str, end: T) -> Pipe:
        pipe = Pipe(self._peek_solid().at)
        self._declarations(pipe, context)
        while True:
            token = self._next_solid()
            if token.type is end:
                break
            if token.type not in _STARTS_COMMAND and not (token.type is T.KEYWORD and token.text in (".", "nil")):
                self._unexpected(token, context)
            self._back(token)
            pipe.commands.append(self._command())
        if not pipe.commands:
            self._fail(f"missing value for {context}")
        for stage, command in enumerate(pipe.commands[1:], 2):
            if isinstance(command.args[0], Constant | Dot | Nil):
                self._fail(f"non executable command in pipeline stage {stage}")
        return pipe

    def _declarations(self, pipe: Pipe, context: str) -> None:
        while (variable := self._peek_solid()).type is T.VARIABLE:
            self._next()
            following = self._peek_solid()
            if following.type in (T.ASSIGN, T.DECLARE):
                pipe.assigns = following.type is T.ASSIGN
                self._next()
                pipe.variables.append(variable.text)
                self._variables.append(variable.text)
                return
            if following.type is not T.CHAR or following.text != ",":
                self._back(variable)
                return
            self._next()
            pipe.variables.append(variable.text)
            self._variables.append(variable.text)
            if context != "range" or len(pipe.variables) >= 2:
                self._fail(f"too many declarations in {context}")
            if self._peek_solid().type not in (T.VARIABLE, T.RIGHT, T.RIGHT_PAREN):
                self._fail("range can only initialize variables")

    def _command(self) -> Command:
        command = Command(self._peek_solid().at, [])
        while True:
            self._peek_solid()
            operand = self._operand()
            if operand is not None:
                command.args.append(operand)
            token = self._next()
            if token.type is T.SPACE:
                continue
            if token.type in (T.RIGHT, T.RIGHT_PAREN):
                self._back(token)
            elif token.type is not T.PIPE:
                self._unexpected(token, "operand")
            break
        if not command.args:
            self._fail("empty command")
        return command

    def _operand(self) -> Node | None:
        node = self._term()
        if node is None or self._peek().type is not T.FIELD:
            return node
        at, names = self._peek().at, list[str]()
        while self._peek().type is T.FIELD:
            names.append(self._next().text[1:])
        if isinstance(node, Field):
            return Field(at, node.names + names)
        if isinstance(node, Variable):
            return Variable(at, node.name, node.names + names)
        if isinstance(node, Constant | Nil | Dot):
            self._fail(f"unexpected . after term {quote(str(node))}")
        return Chain(at, node, names)

    def _term(self) -> Node | None:
        token = self._next_solid()
        at, text = token.at, token.text
        match token.type:
            case T.IDENTIFIER:
                if text not in self._functions:
                    self._fail(f"function {quote(text)} not defined")
                return Identifier(at, text)
            case T.KEYWORD if text == ".":
                return Dot(at)
            case T.KEYWORD if text == "nil":
                return Nil(at)
            case T.VARIABLE:
                if text not in self._variables:
                    self._fail(f"undefined variable {quote(text)}")
                return Variable(at, text, [])
            case T.FIELD:
                return Field(at, [text[1:]])
            case T.BOOL:
                return Constant(at, text == "true", text)
            case T.NUMBER | T.CHAR_CONSTANT:
                try:
                    return Constant(at, number(text) if token.type is T.NUMBER else character(text), text)
                except ValueError as error:
                    self._fail(str(error))
            case T.STRING:
                return Constant(at, self._unquoted(text), text)
            case T.LEFT_PAREN:
                return self._pipeline("parenthesized pipeline", T.RIGHT_PAREN)
        self._back(token)
        return None


def _is_empty(nodes: list[Node]) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in nodes)
