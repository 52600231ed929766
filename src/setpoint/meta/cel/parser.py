"""The parser. Its errors are those of the reference implementation's generated parser."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from setpoint.meta.cel import lexer
from setpoint.meta.cel.lexer import EOF, IDENTIFIER, RESERVED, BadLiteral, Token, tokenize, value_of
from setpoint.meta.cel.macros import Macro, MacroMisuse
from setpoint.meta.cel.recovery import (
    FIRST,
    MAX_DEPTH,
    PRIMARY,
    PRODUCTS,
    RELATIONS,
    STARTS,
    SUMS,
    ParseAborted,
    TokenReader,
    TooDeep,
    one_of,
    quote,
)
from setpoint.meta.cel.source import NOWHERE, CelProblem, Issue, Source
from setpoint.meta.cel.syntax import (
    Call,
    Comprehension,
    Entry,
    Expr,
    FieldInit,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    Struct,
    children,
)

MAX_CODE_POINTS = 100_000


def parse(
    text: str, macros: Mapping[tuple[str, int, bool], Macro], optional_syntax: bool = True
) -> tuple[Source, Expr]:
    """Return the tree of the text, macros expanded. Raises CelProblem with everything that is wrong with its form."""
    source = Source(text)
    if len(text) > MAX_CODE_POINTS:
        message = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}"
        raise CelProblem(source, [Issue(message)])
    tokens, issues = tokenize(text)
    parser = _Parser(text, tokens, issues, macros, optional_syntax)
    try:
        tree = parser.whole()
    except (TooDeep, RecursionError):
        parser.issues.append(Issue(f"expression recursion limit exceeded: {MAX_DEPTH}", NOWHERE))
        tree = None
    if parser.issues or tree is None:
        raise CelProblem(source, parser.issues)
    if _nesting(tree) > MAX_DEPTH:
        raise CelProblem(source, [Issue("max recursion depth exceeded")])
    return source, tree


_FIELD_STARTS = frozenset({"?", IDENTIFIER, lexer.ESC_IDENTIFIER})
_NESTING = frozenset({*RELATIONS.values(), *SUMS.values(), *PRODUCTS.values(), "_?_:_", "_[_]", "_[?_]", "_?._"})


def _nesting(tree: Expr) -> int:
    """Return the maximum nesting of operators, fields, indexes and method calls."""
    deepest, pending = 0, [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if isinstance(node, Select | Comprehension) or (
            isinstance(node, Call) and (node.target is not None or node.function in _NESTING)
        ):
            depth += 1
            deepest = max(deepest, depth)
        pending.extend((child, depth) for child in children(node))
    return deepest


class _Parser(TokenReader):
    def __init__(
        self,
        text: str,
        tokens: list[Token],
        issues: list[Issue],
        macros: Mapping[tuple[str, int, bool], Macro],
        optional_syntax: bool,
    ) -> None:
        super().__init__(text, tokens, issues)
        self.macros = macros
        self.optional_syntax = optional_syntax

    # -- grammar

    def whole(self) -> Expr:
        tree = self.expr()
        with suppress(ParseAborted):
            self.expect(EOF)
        return tree

    def expr(self) -> Expr:
        self.enter("expr")
        condition = self.logical("||")
        token = self.token
        if token.kind == "?":
            self.take()
            self.followers.append(frozenset({":"}))
            yes = self.logical("||")
            try:
                self.expect(":")
                self.followers.pop()
                no = self.expr()
            except ParseAborted:
                self.followers.pop()
                self.recover()
                no = Literal(token.position, None)
            condition = Call(token.position, "_?_:_", [condition, yes, no])
        self.depth["expr"] -= 1
        return condition

    def logical(self, operator: str) -> Expr:
        """Parse a chain of `||` or `&&`, made into a tree that is as flat as possible."""
        terms = [self.logical("&&") if operator == "||" else self.binary(0)]
        positions: list[int] = []
        while self.token.kind == operator:
            positions.append(self.take().position)
            terms.append(self.logical("&&") if operator == "||" else self.binary(0))
        if not positions:
            return terms[0]
        return _balanced(f"_{operator}_", terms, positions, 0, len(positions) - 1)

    def binary(self, level: int, operand: bool = False) -> Expr:
        """Parse relations (0), sums (1) and products (2), left-associative; `operand` marks the right side of an
        operator.

        Sums and products are one rule of the generated parser, so their depth is counted once."""
        operators = (RELATIONS, SUMS, PRODUCTS)[level]
        rule = "relation" if level == 0 else "calc"
        entered = 1 if level < 2 or operand else 0
        self.enter(rule, entered)
        left = self.binary(level + 1) if level < 2 else self.unary()
        while (function := operators.get(self.token.kind)) is not None:
            position = self.take().position
            right = self.binary(level + 1, operand=True) if level < 2 else self.unary()
            left = Call(position, function, [left, right])
        self.depth[rule] -= entered
        return left

    def unary(self) -> Expr:
        token = self.token
        if token.kind not in STARTS:
            if self.ahead().kind in STARTS and token.kind != EOF and not self.recovering:
                self.report_error(f"extraneous input {quote(token)} expecting {PRIMARY}", token)
                self.at += 1
                self.recovering = False
                token = self.token
            else:
                self.report_error(f"mismatched input {quote(token)} expecting {PRIMARY}", token)
                self.recover()
                return Literal(token.position, None)
        if token.kind == "!":
            return self.prefixed("!", "!_")
        if token.kind == "-" and self.ahead().kind not in (lexer.NUM_INT, lexer.NUM_FLOAT):
            return self.prefixed("-", "-_")
        return self.member()

    def prefixed(self, operator: str, function: str) -> Expr:
        first = last = self.take()
        count = 1
        while self.token.kind == operator:
            last = self.take()
            count += 1
        token = self.token
        try:
            signed = token.kind == "-" and self.ahead().kind in (lexer.NUM_INT, lexer.NUM_FLOAT)
            if token.kind not in STARTS or (token.kind in ("!", "-") and not signed):
                if operator == "-":
                    self.no_viable_alternative(last, token)
                    if token.kind == EOF:
                        self.recovering = False
                        self.report_error(f"mismatched input {quote(token)} expecting {PRIMARY}", token)
                elif token.kind == "-":
                    self.no_viable_alternative(token, self.ahead())
                else:
                    self.report_error(f"extraneous input {quote(token)} expecting {PRIMARY}", token)
                raise ParseAborted
            operand = self.member()
        except ParseAborted:
            self.recover()
            return Literal(token.position, None)
        if count % 2 == 0:
            return operand
        return self.call_or_macro(first.position, function, [operand], None)

    def member(self) -> Expr:
        self.enter("member")
        expr: Expr
        try:
            expr = self.primary()
        except ParseAborted:
            self.recover()
            expr = Literal(self.token.position, None)
        while (kind := self.token.kind) in (".", "["):
            try:
                expr = self.selected(expr) if kind == "." else self.indexed(expr)
            except ParseAborted:
                self.recover(inside_member=True)
                break
        self.depth["member"] -= 1
        return expr

    def selected(self, operand: Expr) -> Expr:
        dot, token = self.token, self.ahead()
        if token.kind not in _FIELD_STARTS:
            if token.kind in ("true", "false", "null"):
                self.report_error(f"mismatched input '{token.text}' expecting IDENTIFIER", token)
            else:
                self.no_viable_alternative(dot, token)
            raise ParseAborted
        self.take()
        optional = token.kind == "?"
        if optional:
            self.take()
            token = self.field_name()
        self.take()
        name = token.text
        if token.kind == lexer.ESC_IDENTIFIER:
            name = name[1:-1]
        elif not optional and self.token.kind == "(":
            opening = self.token
            arguments = self.arguments()
            return self.call_or_macro(opening.position, name, arguments, operand)
        if optional:
            if not self.optional_syntax:
                return self.report("unsupported syntax '.?'", dot.position)
            return Call(dot.position, "_?._", [operand, Literal(token.position, name)])
        return Select(dot.position, operand, name)

    def field_name(self) -> Token:
        """Return the name behind `.?` without consuming it."""
        names = (IDENTIFIER, lexer.ESC_IDENTIFIER)
        token = self.token
        if token.kind in names:
            return token
        if self.ahead().kind not in names:
            self.report_error(f"mismatched input {quote(token)} expecting {one_of(*names)}", token)
            raise ParseAborted
        self.report_error(f"extraneous input {quote(token)} expecting {one_of(*names)}", token)
        self.at += 1
        return self.token

    def indexed(self, operand: Expr) -> Expr:
        opening = self.take()
        optional = self.token.kind == "?"
        if optional:
            self.take()
        else:
            self.sync(STARTS | {"?"}, one_of(*FIRST, "'?'"))
        index = self.enclosed("]", self.expr)
        if optional and not self.optional_syntax:
            return self.report("unsupported syntax '[?'", opening.position)
        return self.call_or_macro(opening.position, "_[?_]" if optional else "_[_]", [operand, index], None)

    def enclosed(self, closing: str, rule: object) -> Expr:
        assert callable(rule)
        self.followers.append(frozenset({closing}))
        try:
            inner = rule()
            self.expect(closing)
        finally:
            self.followers.pop()
        assert isinstance(inner, Expr)
        return inner

    def arguments(self) -> list[Expr]:
        """Parse arguments in parentheses: `(a, b)`."""
        self.take()
        arguments: list[Expr] = []
        self.followers.append(frozenset({")", ","}))
        try:
            self.sync(STARTS | {")"}, one_of(*FIRST, "')'"))
            if self.token.kind != ")":
                arguments.append(self.expr())
                while self.token.kind == ",":
                    self.take()
                    arguments.append(self.expr())
            self.expect(")")
        finally:
            self.followers.pop()
        return arguments

    def primary(self) -> Expr:
        token = self.token
        kind = token.kind
        if kind == IDENTIFIER or kind == ".":
            return self.named()
        if kind == "(":
            self.take()
            return self.enclosed(")", self.expr)
        if kind == "[":
            return self.list_literal()
        if kind == "{":
            return self.map_literal()
        return self.literal()

    def named(self) -> Expr:
        """Parse an identifier, a call of a function, or the construction of a message."""
        first = self.token
        prefix = ""
        if first.kind == ".":
            if self.ahead().kind != IDENTIFIER:
                self.no_viable_alternative(first, self.ahead())
                raise ParseAborted
            self.take()
            prefix = "."
        if self.is_message():
            return self.message(prefix)
        token = self.take()
        opening = self.token
        arguments = self.arguments() if opening.kind == "(" else None
        if token.text in RESERVED:
            return self.report(f"reserved identifier: {token.text}", first.position)
        if arguments is None:
            return Ident(token.position, prefix + token.text)
        return self.call_or_macro(opening.position, prefix + token.text, arguments, None)

    def is_message(self) -> bool:
        at = self.at
        tokens = self.tokens
        while tokens[at].kind == IDENTIFIER:
            following = tokens[at + 1].kind
            if following == "{":
                return True
            if following != ".":
                return False
            at += 2
        return False

    def message(self, name: str) -> Expr:
        while True:
            name += self.take().text
            if self.token.kind == "{":
                break
            name += self.take().text
        opening = self.take()
        fields: list[FieldInit] = []
        self.followers.append(frozenset({"}", ","}))
        try:
            wanted = one_of("'}'", "','", "'?'", "IDENTIFIER", "ESC_IDENTIFIER")
            self.sync(_FIELD_STARTS | {"}", ","}, wanted)
            try:
                while self.token.kind not in ("}", ","):
                    fields.append(self.field())
                    if self.token.kind != "," or self.ahead().kind not in _FIELD_STARTS:
                        break
                    self.take()
            except ParseAborted:
                self.recover()
            self.close("}")
        finally:
            self.followers.pop()
        return Struct(opening.position, name, fields)

    def field(self) -> FieldInit:
        token = self.token
        optional = token.kind == "?"
        if optional:
            self.take()
            if not self.optional_syntax:
                self.report("unsupported syntax '?'", token.position)
        name = self.token
        if name.kind not in (IDENTIFIER, lexer.ESC_IDENTIFIER):
            wanted = one_of("IDENTIFIER", "ESC_IDENTIFIER")
            self.report_error(f"mismatched input {quote(name)} expecting {wanted}", name)
            raise ParseAborted
        self.take()
        colon = self.expect(":")
        value = self.expr()
        text = name.text[1:-1] if name.kind == lexer.ESC_IDENTIFIER else name.text
        return FieldInit(colon.position, text, value, optional)

    def close(self, closing: str) -> None:
        """Parse the end of a literal, which may have a trailing comma."""
        self.sync(frozenset({",", closing}), one_of(f"'{closing}'", "','"))
        if self.token.kind == ",":
            self.take()
        self.expect(closing)

    def list_literal(self) -> Expr:
        opening = self.take()
        elements: list[Expr] = []
        optional: set[int] = set()
        self.followers.append(frozenset({"]", ","}))
        try:
            self.sync(STARTS | {"]", ",", "?"}, one_of(*FIRST, "']'", "','", "'?'"))
            while self.token.kind not in ("]", ","):
                if self.token.kind == "?":
                    mark = self.take()
                    if self.optional_syntax:
                        optional.add(len(elements))
                    else:
                        self.report("unsupported syntax '?'", mark.position)
                elements.append(self.expr())
                if self.token.kind != "," or self.ahead().kind not in STARTS | {"?"}:
                    break
                self.take()
            self.close("]")
        finally:
            self.followers.pop()
        return ListExpr(opening.position, elements, frozenset(optional))

    def map_literal(self) -> Expr:
        opening = self.take()
        entries: list[Entry] = []
        self.followers.append(frozenset({"}", ",", ":"}))
        try:
            self.sync(STARTS | {"}", ",", "?"}, one_of(*FIRST, "'}'", "','", "'?'"))
            try:
                while self.token.kind not in ("}", ","):
                    entries.append(self.entry())
                    if self.token.kind != "," or self.ahead().kind not in STARTS | {"?"}:
                        break
                    self.take()
            except ParseAborted:
                self.recover()
            self.close("}")
        finally:
            self.followers.pop()
        return MapExpr(opening.position, entries)

    def entry(self) -> Entry:
        mark = self.token
        optional = mark.kind == "?"
        if optional:
            self.take()
            if not self.optional_syntax:
                self.report("unsupported syntax '?'", mark.position)
        key = self.expr()
        colon = self.expect(":")
        return Entry(colon.position, key, self.expr(), optional)

    def literal(self) -> Expr:
        token = self.take()
        start, sign = token.position, ""
        if token.kind == "-":
            sign = "-"
            token = self.take()
        try:
            return Literal(start, value_of(token, sign))
        except BadLiteral as error:
            return self.report(str(error), start)

    # -- macros

    def call_or_macro(self, position: int, function: str, arguments: list[Expr], target: Expr | None) -> Expr:
        macro = self.macros.get((function, len(arguments), target is not None))
        if macro is not None:
            try:
                expanded = macro(position, target, arguments)
            except MacroMisuse as misuse:
                return self.report(misuse.message, misuse.position)
            if expanded is not None:
                return expanded
        return Call(position, function, arguments, target)


def _balanced(function: str, terms: list[Expr], positions: list[int], low: int, high: int) -> Expr:
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, positions, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, positions, middle + 1, high)
    return Call(positions[middle], function, [left, right])
