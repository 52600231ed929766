"""Validation of JSON inside a string, with the messages of Go's decoder, which clients see."""

from __future__ import annotations

import re
from math import isinf

import orjson

from setpoint.meta.goformat import quote

_END = "unexpected end of JSON input"
_SPACE = re.compile(rb"[ \t\r\n]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_NUMBER_START = b"-0123456789"
_MAX_DEPTH = 10000


class _Malformed(Exception):
    pass


def syntax_error(data: bytes) -> str:
    """Return the error; empty if the text is JSON whose numbers are in range."""
    scanner = _Scanner(data)
    try:
        scanner.document()
    except _Malformed as error:
        return str(error)
    overflow = scanner.overflow
    return f"json: cannot unmarshal number {overflow} into Go value of type float64" if overflow else ""


def object_error(data: bytes) -> str:
    """Return the error; empty if the text is a JSON object or null."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return syntax_error(data)
    if value is None or isinstance(value, dict):
        return ""
    shape = (
        "bool" if isinstance(value, bool)
        else "string" if isinstance(value, str)
        else "array" if isinstance(value, list)
        else "number"
    )  # fmt: skip
    return f"json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"


def _character(byte: int) -> str:
    if byte == ord("'"):
        return "'\\''"
    if byte == ord('"'):
        return "'\"'"
    return "'" + quote(chr(byte))[1:-1] + "'"


class _Scanner:
    """Finds the first error of an invalid document. It is iterative: only the input bounds the depth."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.overflow = ""
        """First number that no float can represent; empty if there is none."""

    def fail(self, where: str, space_may_follow: bool = False) -> _Malformed:
        """Return the error at this position. At the end of the input Go assumes one more space, and fails if none may
        follow."""
        if self.at < len(self.data):
            return _Malformed(f"invalid character {_character(self.data[self.at])} {where}")
        return _Malformed(_END if space_may_follow else f"invalid character ' ' {where}")

    def peek(self) -> int:
        self.at = _SPACE.match(self.data, self.at).end()  # type: ignore[union-attr]  # matches the empty string too
        return self.data[self.at] if self.at < len(self.data) else -1

    def document(self) -> None:
        open_: list[int] = []  # the brackets we are in
        while True:
            if self.value(open_):
                continue
            while open_:
                if self.after_value(open_):
                    break
            else:
                if self.peek() != -1:
                    raise self.fail("after top-level value", space_may_follow=True)
                return

    def value(self, open_: list[int]) -> bool:
        """Reads a scalar or an empty bracket; True when it went into a bracket and a value comes next."""
        char = self.peek()
        if char == ord("{") or char == ord("["):
            if len(open_) >= _MAX_DEPTH:
                raise _Malformed("exceeded max depth")
            self.at += 1
            closing = ord("}") if char == ord("{") else ord("]")
            if self.peek() == closing:
                self.at += 1
                return False
            open_.append(char)
            if char == ord("{"):
                self.key()
            return True
        if char == ord('"'):
            self.string()
        elif char != -1 and char in _NUMBER_START:
            self.number()
        elif char == ord("t"):
            self.literal(b"true")
        elif char == ord("f"):
            self.literal(b"false")
        elif char == ord("n"):
            self.literal(b"null")
        else:
            raise self.fail("looking for beginning of value", space_may_follow=True)
        return False

    def after_value(self, open_: list[int]) -> bool:
        """Return True if another value follows, False if the innermost bracket was closed."""
        in_object = open_[-1] == ord("{")
        char = self.peek()
        if char == ord(","):
            self.at += 1
            if in_object:
                self.peek()
                self.key()
            return True
        if char == (ord("}") if in_object else ord("]")):
            self.at += 1
            open_.pop()
            return False
        where = "after object key:value pair" if in_object else "after array element"
        raise self.fail(where, space_may_follow=True)

    def key(self) -> None:
        if self.peek() != ord('"'):
            raise self.fail("looking for beginning of object key string", space_may_follow=True)
        self.string()
        if self.peek() != ord(":"):
            raise self.fail("after object key", space_may_follow=True)
        self.at += 1

    def string(self) -> None:
        self.at += 1
        while True:
            self.at = _PLAIN.match(self.data, self.at).end()  # type: ignore[union-attr]  # matches the empty string too
            if self.at >= len(self.data) or self.data[self.at] < 0x20:
                raise self.fail("in string literal", space_may_follow=True)
            if self.data[self.at] == ord('"'):
                self.at += 1
                return
            self.at += 1
            if self.at >= len(self.data) or self.data[self.at] not in b'bfnrt\\/"u':
                raise self.fail("in string escape code")
            digits = 4 if self.data[self.at] == ord("u") else 0
            self.at += 1
            for _ in range(digits):
                if self.at >= len(self.data) or self.data[self.at] not in b"0123456789abcdefABCDEF":
                    raise self.fail("in \\u hexadecimal character escape")
                self.at += 1

    def number(self) -> None:
        data, start = self.data, self.at
        if data[self.at] == ord("-"):
            self.at += 1
            if self.at >= len(data) or data[self.at] not in b"0123456789":
                raise self.fail("in numeric literal")
        if data[self.at] == ord("0"):
            self.at += 1
        else:
            self.digits()
        if self.at < len(data) and data[self.at] == ord("."):
            self.at += 1
            if not self.digits():
                raise self.fail("after decimal point in numeric literal")
        if self.at < len(data) and data[self.at] in b"eE":
            self.at += 1
            if self.at < len(data) and data[self.at] in b"+-":
                self.at += 1
            if not self.digits():
                raise self.fail("in exponent of numeric literal")
        text = data[start : self.at].decode()
        if not self.overflow and isinf(float(text)):
            self.overflow = text

    def digits(self) -> bool:
        start = self.at
        while self.at < len(self.data) and self.data[self.at] in b"0123456789":
            self.at += 1
        return self.at > start

    def literal(self, word: bytes) -> None:
        for expected in word:
            if self.at >= len(self.data) or self.data[self.at] != expected:
                raise self.fail(f"in literal {word.decode()} (expecting {_character(expected)})")
            self.at += 1
