"""Values of literals: quotes are removed and escapes resolved."""

from __future__ import annotations

import math
import re
from typing import Any

from setpoint.meta.cel import lexer
from setpoint.meta.cel.lexer import Token
from setpoint.meta.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

_SIMPLE = {
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
_ESCAPE = re.compile(r"\\(?:([xX])([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


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
            if simple not in _SIMPLE:
                raise BadLiteral("unable to unescape string")
            return _SIMPLE[simple]
        code = int(octal, 8) if octal else int(byte or short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise BadLiteral("invalid unicode code point")
        return chr(code)

    return _ESCAPE.sub(resolve, body)


def bytes_of(token: str) -> bytes:
    """Return the value of a bytes literal, its `b` already off."""
    body, raw = _body(token)
    if raw or "\\" not in body:
        return body.encode()
    parts: list[bytes] = []
    at = 0
    for found in _ESCAPE.finditer(body):
        parts.append(body[at : found.start()].encode())
        at = found.end()
        _, byte, short, long, octal, simple = found.groups()
        if short or long:
            raise BadLiteral("unable to unescape string")
        if simple is not None:
            if simple not in _SIMPLE:
                raise BadLiteral("unable to unescape string")
            parts.append(_SIMPLE[simple].encode())
        else:
            parts.append(bytes([int(octal, 8) if octal else int(byte, 16)]))
    parts.append(body[at:].encode())
    return b"".join(parts)


def value_of(token: Token, sign: str) -> Any:
    """Return the value of a literal; `sign` stands before a number. Raises BadLiteral."""
    kind, text = token.kind, token.text
    if kind == lexer.STRING:
        return text_of(text)
    if kind == lexer.BYTES:
        return bytes_of(text[1:])
    if kind == lexer.NUM_INT:
        number = _integer(sign + text)
        if not INT_MIN <= number <= INT_MAX:
            raise BadLiteral("invalid int literal")
        return number
    if kind == lexer.NUM_UINT:
        number = _integer(text[:-1])
        if number > UINT_MAX:
            raise BadLiteral("invalid uint literal")
        return Uint(number)
    if kind == lexer.NUM_FLOAT:
        value = float(sign + text)
        if math.isinf(value):
            raise BadLiteral("invalid double literal")
        return value
    return {"true": True, "false": False}.get(kind)


def _integer(text: str) -> int:
    if len(text) > 30:
        return 1 << 64  # too large for any type; how large exactly makes no difference
    return int(text, 16 if "x" in text else 10)
