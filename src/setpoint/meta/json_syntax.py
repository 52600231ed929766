"""JSON parsing in Python where the C library is not sufficient: syntax errors in the words of Go's scanner, parsing
with hooks, and strict JSON for signed documents.

It is slow, and used only for texts that the fast parser rejected or could not report enough about.
"""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

import orjson

from setpoint.meta.goformat import quote

_SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_STRING_BODY = re.compile(rb'[^"\\\x00-\x1f]*')
_NOT_SPACE = re.compile(r"[^ \t\r\n]")
_HEX = b"0123456789abcdefABCDEF"
_END = "unexpected end of JSON input"
_LONG = 128 * 1024
_TRAILING_COMMA = "Illegal trailing comma before end of "
"""Message since Python 3.13, with the position of the comma; Go reports the bracket after it."""
_CONTEXTS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    _TRAILING_COMMA + "object": "looking for beginning of object key string",
    _TRAILING_COMMA + "array": "looking for beginning of value",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
}
_MAX_C_SCANNER_BYTES = 256 * 1024
"""Size in bytes from which JSON is parsed in Python, several times slower: the C scanner would hold the interpreter
lock until it is done."""
_GO_MAX_DEPTH = 10_000


class _SyntaxError(Exception):
    pass


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


def unmarshal(data: bytes, shape: type, go_type: str) -> Any:
    """Decode JSON as Go decodes it into a variable of type `go_type`; None stands for null.

    Raises ValueError with Go's message unless the text is valid and its value null or of the Python type `shape`."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        if error := decoding_error(data):
            raise ValueError(error) from None
        value = _load_replacing_invalid_utf8(data)
    if value is not None and not isinstance(value, shape):
        names = {str: "string", bool: "bool", list: "array", dict: "object"}
        raise ValueError(f"json: cannot unmarshal {names.get(type(value), 'number')} into Go value of type {go_type}")
    return value


def _load_replacing_invalid_utf8(data: bytes) -> Any:
    try:
        return json.loads(data.decode(errors="replace"))
    except RecursionError:
        raise ValueError("json: exceeded max depth") from None


def decoding_error(data: bytes) -> str:
    """Return Go's error for a whole text, or "" if its syntax is valid and no number exceeds a float's range."""
    scanner = _Scanner(data, _GO_MAX_DEPTH)
    try:
        scanner.scan()
    except _SyntaxError as found:
        return str(found)
    number = scanner.overflow
    return f"json: cannot unmarshal number {number} into Go value of type float64" if number else ""


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
        place = error.pos
        if error.msg.startswith(_TRAILING_COMMA):
            bracket = _NOT_SPACE.search(text, place + 1)
            place = bracket.start() if bracket is not None else place
        return f"invalid character {_quoted(text[place])} {context}"
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
        self.overflow = ""
        """First number that no float can represent; empty if there is none."""

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
        start = self.at
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
        if not self.overflow and isinf(float(self.data[start : self.at])):
            self.overflow = self.data[start : self.at].decode()


class DuplicateKey(ValueError):
    """The text is the key."""


def read_strictly(data: bytes) -> Any:
    """Parse strict JSON. Raises ValueError."""
    try:
        return json.loads(data, object_pairs_hook=_reject_duplicates, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("too deep") from None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DuplicateKey(name)
        found[name] = value
    return found


def _reject_constant(constant: str) -> Any:
    raise ValueError(constant)
