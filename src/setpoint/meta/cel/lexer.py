"""Text to tokens, values of literals, and the escaping of property names that are not identifiers.

Tokenizing is linear in the text: every pattern either matches at its position or fails at once.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

from setpoint.meta.cel.source import Issue
from setpoint.meta.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint


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
RESERVED = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    )
)
"""Reserved words, which cannot name a variable."""


def tokenize(text: str) -> tuple[list[Token], list[Issue]]:
    """Return the tokens, ending with `<EOF>`, and the errors of unreadable text."""
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
        # Two characters that are only valid together: the second one is unreadable too.
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


_SIMPLE_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_LITERAL_ESCAPE = re.compile(
    r"\\(?:([xX])([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)


class BadLiteral(ValueError):
    """A literal is invalid; the message says why."""


def _body(token: str) -> tuple[str, bool]:
    """Return the text between the quotes, and whether it is raw."""
    token = token.replace("\r\n", "\n").replace("\r", "\n")
    raw = token[0] in "rR"
    if raw:
        token = token[1:]
    width = 3 if len(token) >= 6 and token[:3] in ("'''", '"""') else 1
    return token[width:-width], raw


def text_of(token: str) -> str:
    """Return the value of a string literal."""
    body, raw = _body(token)
    if raw or "\\" not in body:
        return body

    def resolve(found: re.Match[str]) -> str:
        _, byte, short, long, octal, simple = found.groups()
        if simple is not None:
            if simple not in _SIMPLE_ESCAPES:
                raise BadLiteral("unable to unescape string")
            return _SIMPLE_ESCAPES[simple]
        code = int(octal, 8) if octal else int(byte or short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise BadLiteral("invalid unicode code point")
        return chr(code)

    return _LITERAL_ESCAPE.sub(resolve, body)


def _bytes_of(token: str) -> bytes:
    """Return the value of a bytes literal, its `b` already off."""
    body, raw = _body(token)
    if raw or "\\" not in body:
        return body.encode()
    parts: list[bytes] = []
    at = 0
    for found in _LITERAL_ESCAPE.finditer(body):
        parts.append(body[at : found.start()].encode())
        at = found.end()
        _, byte, short, long, octal, simple = found.groups()
        if short or long:
            raise BadLiteral("unable to unescape string")
        if simple is not None:
            if simple not in _SIMPLE_ESCAPES:
                raise BadLiteral("unable to unescape string")
            parts.append(_SIMPLE_ESCAPES[simple].encode())
        else:
            parts.append(bytes([int(octal, 8) if octal else int(byte, 16)]))
    parts.append(body[at:].encode())
    return b"".join(parts)


def value_of(token: Token, sign: str) -> Any:
    """Return the value of a literal; `sign` stands before a number. Raises BadLiteral."""
    kind, text = token.kind, token.text
    if kind == STRING:
        return text_of(text)
    if kind == BYTES:
        return _bytes_of(text[1:])
    if kind == NUM_INT:
        number = _integer(sign + text)
        if not INT_MIN <= number <= INT_MAX:
            raise BadLiteral("invalid int literal")
        return number
    if kind == NUM_UINT:
        number = _integer(text[:-1])
        if number > UINT_MAX:
            raise BadLiteral("invalid uint literal")
        return Uint(number)
    if kind == NUM_FLOAT:
        value = float(sign + text)
        if math.isinf(value):
            raise BadLiteral("invalid double literal")
        return value
    return {"true": True, "false": False}.get(kind)


def _integer(text: str) -> int:
    if len(text) > 30:
        return 1 << 64  # Too large for any type; the exact value does not matter.
    return int(text, 16 if "x" in text else 10)


_PLAIN_PROPERTY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_ALLOWED_PROPERTY = re.compile(r"[a-zA-Z_./\-][a-zA-Z0-9_./\-]*", re.ASCII)
_SPECIAL_PARTS = re.compile(r"__|[-./]")
_PROPERTY_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED_PART = re.compile(r"__([^_]+)__")
_UNESCAPED_PARTS = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape_property(name: str) -> str | None:
    """Return the identifier for a property; None where there is none, and the property cannot be reached."""
    if name in RESERVED:
        return f"__{name}__"
    if _PLAIN_PROPERTY.fullmatch(name) and "__" not in name:
        return name
    if not _ALLOWED_PROPERTY.fullmatch(name):
        return None
    return _SPECIAL_PARTS.sub(lambda found: _PROPERTY_ESCAPES[found.group()], name)


def unescape_property(identifier: str) -> str | None:
    """Return the property that an identifier means; None for escapes that there are not."""
    if "__" not in identifier:
        return identifier
    bad = False

    def back(found: re.Match[str]) -> str:
        nonlocal bad
        word = found[1]
        if word in _UNESCAPED_PARTS:
            return _UNESCAPED_PARTS[word]
        if word not in RESERVED or found.group() != identifier:
            bad = True
        return word

    result = _ESCAPED_PART.sub(back, identifier)
    return None if bad else result
