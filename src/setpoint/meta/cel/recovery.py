"""A token reader with error recovery: one extra or missing token is recorded, and the parser continues.

The messages, and the conditions for each, are those of the parser generator that the reference uses.
"""

from __future__ import annotations

from setpoint.meta.cel.lexer import EOF, IDENTIFIER, Token, unreadable_spans
from setpoint.meta.cel.source import Issue
from setpoint.meta.cel.syntax import Expr, Literal

MAX_DEPTH = 250
FIRST = (
    "'['",
    "'{'",
    "'('",
    "'.'",
    "'-'",
    "'!'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
)
_ORDER = (
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
)
STARTS = frozenset(name.strip("'") for name in FIRST)
RELATIONS = {"<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in"}
SUMS = {"+": "_+_", "-": "_-_"}
PRODUCTS = {"*": "_*_", "/": "_/_", "%": "_%_"}
_OPERATORS = frozenset([*RELATIONS, *SUMS, *PRODUCTS, "&&", "||", "?", ".", "[", EOF])


def one_of(*names: str) -> str:
    if len(names) == 1:
        return names[0]
    return "{" + ", ".join(sorted(names, key=_ORDER.index)) + "}"


PRIMARY = one_of(*FIRST)


class ParseAborted(Exception):
    """A rule cannot continue; the error is recorded already."""


class TooDeep(Exception):
    """The expression exceeds the maximum nesting depth."""


class TokenReader:
    """The tokens of an expression in order, and the errors for unexpected ones."""

    def __init__(self, text: str, tokens: list[Token], issues: list[Issue]) -> None:
        self.text = text
        self.unreadable = unreadable_spans(issues)
        self.tokens = tokens
        self.at = 0
        self.issues = issues
        self.recovering = False  # After an error, nothing is reported until a token matches again.
        self.last_error_at = -1
        self.followers: list[frozenset[str]] = []
        self.depth = {"expr": 0, "relation": 0, "calc": 0, "member": 0}

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def ahead(self) -> Token:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != EOF:
            self.at += 1
        self.recovering = False
        return token

    def report_error(self, message: str, token: Token) -> None:
        if not self.recovering:
            self.issues.append(Issue(f"Syntax error: {message}", token.position))
        self.recovering = True

    def no_viable_alternative(self, start: Token, token: Token) -> None:
        """Record that no alternative matches from `start` to `token`; the message quotes the text in between."""
        end = token.position if token.kind == EOF else token.position + len(token.text)
        shown, at = "", start.position
        for begin, stop in self.unreadable:
            if at <= begin < end:
                shown, at = shown + self.text[at:begin], stop
        shown = _escaped(shown + self.text[at:end])
        self.report_error(f"no viable alternative at input '{shown}'", token)

    def report(self, message: str, position: int) -> Expr:
        self.issues.append(Issue(message, position))
        return Literal(position, None)

    def expect(self, kind: str, after: frozenset[str] = _OPERATORS) -> Token:
        """Return the next token, which must be of that kind; else one token too many or too few is forgiven, and
        noted."""
        token = self.token
        if token.kind == kind:
            return self.take()
        shown = kind if kind in (EOF, IDENTIFIER) else f"'{kind}'"
        if self.ahead().kind == kind and token.kind != EOF:
            self.report_error(f"extraneous input {quote(token)} expecting {shown}", token)
            self.at += 1
            return self.take()
        if kind != EOF and token.kind in self.allowed_after(kind, after):
            self.report_error(f"missing {shown} at {quote(token)}", token)
            return Token(kind, f"<missing {shown}>", token.position)
        self.report_error(f"mismatched input {quote(token)} expecting {shown}", token)
        raise ParseAborted

    def allowed_after(self, kind: str, after: frozenset[str]) -> frozenset[str]:
        if kind in (")", "]", "}"):
            # Tokens that may follow the closing token: operators, and what the enclosing construct expects.
            around = self.followers[-2] if len(self.followers) > 1 else frozenset({EOF})
            return after - {EOF} | around
        if kind == ":":
            return STARTS
        return frozenset()

    def sync(self, allowed: frozenset[str], expecting: str) -> None:
        """Report a token that neither starts an optional part nor follows it."""
        token = self.token
        if token.kind in allowed:
            return
        if self.recovering:
            return
        if self.ahead().kind in allowed and token.kind != EOF:
            self.report_error(f"extraneous input {quote(token)} expecting {expecting}", token)
            self.at += 1
            self.recovering = False
            return
        self.report_error(f"mismatched input {quote(token)} expecting {expecting}", token)
        raise ParseAborted

    def recover(self, inside_member: bool = False) -> None:
        """Skip to a token with which an enclosing rule can continue.

        After a failure behind a dot or in brackets, parsing does not continue with another dot or bracket."""
        if self.last_error_at == self.at and self.token.kind != EOF:
            self.at += 1
        self.last_error_at = self.at
        allowed = _OPERATORS.union(*self.followers) if self.followers else _OPERATORS
        if inside_member:
            allowed -= {".", "["}
        while self.token.kind not in allowed:
            self.at += 1

    def enter(self, rule: str, count: int = 1) -> None:
        self.depth[rule] += count
        if self.depth[rule] > MAX_DEPTH:
            raise TooDeep


def quote(token: Token) -> str:
    return f"'{_escaped(token.text)}'"


def _escaped(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
