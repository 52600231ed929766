"""JSON parsing in Python where the C library is not sufficient: syntax errors in the words of Go's scanner, and parsing
with hooks.

It is slow, and used only for texts that the fast parser rejected or could not report enough about."""

from __future__ import annotations

import json
import re
from typing import Any

from setpoint.meta.goformat import quote

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_STRING_BODY = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX = b"0123456789abcdefABCDEF"
_END = "unexpected end of JSON input"


class _SyntaxError(Exception):
    pass


_LONG = 128 * 1024
_CONTEXTS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
}


_MAX_C_SCANNER_BYTES = 256 * 1024
"""Size in bytes from which JSON is parsed in Python, several times slower: the C scanner would hold the interpreter
lock until it is done."""


class _PythonDecoder(json.JSONDecoder):
    def __init__(self, **hooks: Any) -> None:
        super().__init__(**hooks)
        self.parse_object = json.decoder.JSONObject  # type: ignore[attr-defined]
        self.parse_array = json.decoder.JSONArray  # type: ignore[attr-defined]
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def read_json(text: bytes | str, **hooks: Any) -> Any:
    """Parse JSON as `json.loads` does, in short steps regardless of its length. It must not be nested too deeply."""
    if len(text) < _MAX_C_SCANNER_BYTES:
        return json.loads(text, **hooks)
    return json.loads(text, cls=_PythonDecoder, **hooks)


def syntax_error(data: bytes, max_depth: int) -> str:
    """Return the message, or "" if Go would find nothing wrong. In a long text the context may be less exact: a request
    must not cost seconds because it is wrong."""
    return _syntax_error_in_long(data, max_depth) if len(data) > _LONG else _scan(data, max_depth)


def depth_error(data: bytes, max_depth: int) -> str:
    """Return the message for a text that is known to nest too deep."""
    found = _scan(data[:_LONG], max_depth)
    return found if found.endswith("exceeded max depth") else "invalid character '[' exceeded max depth"


def early_syntax_error(data: bytes, max_depth: int) -> str:
    """Return the message about the beginning of a long text, or "" if that is in order."""
    found = _scan(data[:_LONG], max_depth)
    return "" if found == _END else found


def _scan(data: bytes, max_depth: int) -> str:
    try:
        _Scanner(data, max_depth).scan()
    except _SyntaxError as found:
        return str(found)
    return ""


def _syntax_error_in_long(data: bytes, max_depth: int) -> str:
    text = data.decode(errors="replace")
    try:
        read_json(text, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated"):
            return _END
        context = _CONTEXTS.get(error.msg.partition(":")[0].strip(), "after object key:value pair")
        return f"invalid character {_quoted(text[error.pos])} {context}"
    except RecursionError:
        return depth_error(data, max_depth)
    return ""


def _quoted(char: str) -> str:
    return {"'": r"'\''", '"': "'\"'"}.get(char) or "'" + quote(char)[1:-1] + "'"


class _Scanner:
    def __init__(self, data: bytes, max_depth: int) -> None:
        self.data = data
        self.at = 0
        self.max_depth = max_depth

    def peek(self) -> int:
        if self.at >= len(self.data):
            raise _SyntaxError(_END)
        return self.data[self.at]

    def inside(self) -> int:
        """Return the next character within a token; Go ends a text that stops there with a blank."""
        return self.data[self.at] if self.at < len(self.data) else ord(" ")

    def refuse(self, context: str) -> _SyntaxError:
        return _SyntaxError(f"invalid character {_quoted(chr(self.inside()))} {context}")

    def skip_space(self) -> None:
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1

    def scan(self) -> None:
        """Scan the text iteratively, because it may be nested deeper than Python's stack."""
        open_brackets: list[int] = []
        while True:
            self.skip_space()
            char = self.peek()
            if char in b"{[":
                if len(open_brackets) >= self.max_depth:
                    raise self.refuse("exceeded max depth")
                open_brackets.append(char)
                self.at += 1
                self.skip_space()
                if self.peek() != (ord("}") if char == ord("{") else ord("]")):
                    if char == ord("{"):
                        self.key()
                    continue
                self.at += 1
                open_brackets.pop()
            else:
                self.scalar(char)
            if not self.close(open_brackets):
                return

    def close(self, open_brackets: list[int]) -> bool:
        """Advance to the next value; return False at the end of the text."""
        while open_brackets:
            self.skip_space()
            char = self.peek()
            in_object = open_brackets[-1] == ord("{")
            if char == ord(","):
                self.at += 1
                if in_object:
                    self.skip_space()
                    self.key()
                return True
            if char != (ord("}") if in_object else ord("]")):
                raise self.refuse("after object key:value pair" if in_object else "after array element")
            self.at += 1
            open_brackets.pop()
        self.skip_space()
        if self.at < len(self.data):
            raise self.refuse("after top-level value")
        return False

    def key(self) -> None:
        if self.peek() != ord('"'):
            raise self.refuse("looking for beginning of object key string")
        self.string()
        self.skip_space()
        if self.peek() != ord(":"):
            raise self.refuse("after object key")
        self.at += 1

    def scalar(self, char: int) -> None:
        if char == ord('"'):
            self.string()
        elif char == ord("-") or char in _DIGITS:
            self.number(char)
        elif char in _LITERALS:
            word = _LITERALS[char]
            for expected in word:
                if self.inside() != expected:
                    raise self.refuse(f"in literal {word.decode()} (expecting '{chr(expected)}')")
                self.at += 1
        else:
            raise self.refuse("looking for beginning of value")

    def string(self) -> None:
        self.at += 1
        while True:
            match = _STRING_BODY.match(self.data, self.at)
            assert match is not None  # it may be empty
            self.at = match.end()
            char = self.peek()
            if char == ord('"'):
                self.at += 1
                return
            if char != ord("\\"):
                raise self.refuse("in string literal")
            self.at += 1
            char = self.inside()
            if char == ord("u"):
                for _ in range(4):
                    self.at += 1
                    if self.inside() not in _HEX:
                        raise self.refuse("in \\u hexadecimal character escape")
            elif char not in b'bfnrt\\/"':
                raise self.refuse("in string escape code")
            self.at += 1

    def digits(self) -> None:
        while self.at < len(self.data) and self.data[self.at] in _DIGITS:
            self.at += 1

    def number(self, char: int) -> None:
        if char == ord("-"):
            self.at += 1
            if self.inside() not in _DIGITS:
                raise self.refuse("in numeric literal")
        if self.inside() == ord("0"):
            self.at += 1
        else:
            self.digits()
        if self.data[self.at : self.at + 1] == b".":
            self.at += 1
            if self.inside() not in _DIGITS:
                raise self.refuse("after decimal point in numeric literal")
            self.digits()
        if self.data[self.at : self.at + 1] in (b"e", b"E"):
            self.at += 1
            if self.inside() in b"+-":
                self.at += 1
            if self.inside() not in _DIGITS:
                raise self.refuse("in exponent of numeric literal")
            self.digits()
