"""Text -> tokens. Linear in the text: every pattern either matches from where it stands or not at all."""

from __future__ import annotations

import re
from typing import NamedTuple

from setpoint.meta.cel.source import Issue


class Token(NamedTuple):
    """A token. `kind` is the text of an operator or keyword, or the name of a token class as messages show it."""

    kind: str
    text: str
    position: int


EOF = "<EOF>"
IDENTIFIER = "IDENTIFIER"
ESC_IDENTIFIER = "ESC_IDENTIFIER"
NUM_INT = "NUM_INT"
NUM_UINT = "NUM_UINT"
NUM_FLOAT = "NUM_FLOAT"
STRING = "STRING"
BYTES = "BYTES"

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TRIPLE = r'"""(?:{e}|[^\\])*?"""|' r"'''(?:{e}|[^\\])*?'''"
_SINGLE = r'"(?:{e}|[^\\"\n\r])*"|' r"'(?:{e}|[^\\'\n\r])*'"
_RAW = r'[rR]"""[\s\S]*?"""|' r"[rR]'''[\s\S]*?'''|" r'[rR]"[^"\n\r]*"|' r"[rR]'[^'\n\r]*'"
_TEXT = f"{_RAW}|{_TRIPLE}|{_SINGLE}".replace("{e}", _ESCAPE)

_TOKEN = re.compile(
    r"(?P<skip>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<BYTES>[bB](?:{_TEXT}))"
    rf"|(?P<STRING>{_TEXT})"
    r"|(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])"
    r"|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)"
    r"|(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./\- ]+`)"
    r"|(?P<op>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])"
)
_UNREADABLE = "Syntax error: token recognition error at: '"
_WORDS = frozenset({"in", "true", "false", "null"})
RESERVED = frozenset((
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "package", "namespace", "null", "return", "true", "var", "void", "while",
))  # fmt: skip
"""Reserved words, which cannot name a variable."""


def tokenize(text: str) -> tuple[list[Token], list[Issue]]:
    """Return the tokens, an `<EOF>` last, and what could not be read."""
    tokens: list[Token] = []
    issues: list[Issue] = []
    at, end = 0, len(text)
    match = _TOKEN.match
    while at < end:
        found = match(text, at)
        if found is None:
            stop = _unreadable(text, at)
            issues.append(Issue(f"{_UNREADABLE}{text[at:stop]}'", at))
            at = stop
            continue
        kind = found.lastgroup
        if kind != "skip":
            word = found.group()
            if kind == "op" or (kind == IDENTIFIER and word in _WORDS):
                kind = word
            tokens.append(Token(str(kind), word, at))
        at = found.end()
    tokens.append(Token(EOF, EOF, end))
    return tokens, issues


def unreadable_spans(issues: list[Issue]) -> list[tuple[int, int]]:
    """Return the ranges of the text that belong to no token."""
    width = len(_UNREADABLE) + 1
    return [(issue.position, issue.position + len(issue.message) - width) for issue in issues]


def _unreadable(text: str, at: int) -> int:
    """Return the position at which lexing continues after an invalid token."""
    start = at
    if text[at] in "bB" and at + 1 < len(text):
        at += 1
    raw = text[at] in "rR"
    if raw:
        at += 1
    quote = text[at] if at < len(text) else ""
    if quote in ("'", '"'):
        triple = text.startswith(quote * 3, at)
        at += 3 if triple else 1
        while at < len(text):
            if text[at] == "\\" and not raw:
                escape = re.match(_ESCAPE, text[at:])
                if escape is None:
                    return min(_partial_escape(text, at), len(text))
                at += escape.end()
                continue
            if not triple and text[at] in "\n\r":
                return at + 1
            at += 1
        return len(text)
    if text[start] in "&|=":
        # Two characters that only make sense together: the second one is looked at, and goes the same way.
        return min(start + 2, len(text)) if start + 1 < len(text) else start + 1
    if text[start] == "`":
        inner = re.match(r"`[A-Za-z0-9_./\- ]*", text[start:])
        assert inner is not None
        return min(start + inner.end() + 1, len(text))
    return start + 1


def _partial_escape(text: str, at: int) -> int:
    """Return how many characters of an invalid escape sequence were consumed."""
    at += 1
    if at >= len(text):
        return at
    length = {"x": 2, "X": 2, "u": 4, "U": 8}.get(text[at])
    if length is not None:
        at += 1
        while at < len(text) and length and text[at] in "0123456789abcdefABCDEF":
            at += 1
            length -= 1
        return at + 1
    if text[at] in "0123":
        at += 1
        while at < len(text) and text[at] in "01234567":
            at += 1
        return at + 1
    return at + 1
