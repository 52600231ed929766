"""Split the text of a template into tokens."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from setpoint.meta.goformat import quote

_SPACES = " \t\r\n"
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*|0[bB][01_]*"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"', re.DOTALL)
_CHAR = re.compile(r"'(?:[^'\\\n]|\\[^\n])*'", re.DOTALL)
_RAW = re.compile(r"`[^`]*`")


class T(Enum):
    ERROR = auto()
    EOF = auto()
    TEXT = auto()
    LEFT = auto()
    RIGHT = auto()
    SPACE = auto()
    ASSIGN = auto()
    DECLARE = auto()
    PIPE = auto()
    CHAR = auto()
    BOOL = auto()
    CHAR_CONSTANT = auto()
    FIELD = auto()
    IDENTIFIER = auto()
    LEFT_PAREN = auto()
    RIGHT_PAREN = auto()
    NUMBER = auto()
    STRING = auto()
    VARIABLE = auto()
    KEYWORD = auto()


KEYWORDS = frozenset(
    (".", "block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with")
)


class Token(NamedTuple):
    type: T
    at: int
    text: str
    line: int

    def is_keyword(self, word: str) -> bool:
        return self.type is T.KEYWORD and self.text == word

    def __str__(self) -> str:
        if self.type is T.EOF:
            return "EOF"
        if self.type is T.ERROR:
            return self.text
        if self.type is T.KEYWORD:
            return f"<{self.text}>"
        return f"{quote(self.text[:10])}..." if len(self.text) > 10 else quote(self.text)


class _Complaint(Exception):
    pass


def lex(text: str) -> list[Token]:
    """Return the tokens; the last one is the end or an error."""
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._parens = 0
        self._tokens: list[Token] = []

    def run(self) -> list[Token]:
        try:
            while self._plain():
                while self._inside():
                    pass
            self._emit(T.EOF, len(self._text))
        except _Complaint as complaint:
            self._tokens.append(Token(T.ERROR, self._at, str(complaint), self._line))
        return self._tokens

    def _emit(self, type_: T, end: int) -> None:
        """Emit one token up to `end`."""
        text = self._text[self._at : end]
        self._tokens.append(Token(type_, self._at, text, self._line))
        self._skip(end)

    def _skip(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _plain(self) -> bool:
        """Scan text up to an action; return False at the end."""
        text = self._text
        while True:
            found = text.find("{{", self._at)
            if found < 0:
                if self._at < len(text):
                    self._emit(T.TEXT, len(text))
                return False
            trimmed = text[found + 2 : found + 3] == "-" and text[found + 3 : found + 4] in tuple(_SPACES)
            end = found
            if trimmed:
                end = self._at + len(text[self._at : found].rstrip(_SPACES))
            if end > self._at:
                self._emit(T.TEXT, end)
            self._skip(found)
            if text.startswith("/*", found + (4 if trimmed else 2)):
                self._comment(found + (6 if trimmed else 4))
                continue
            self._emit(T.LEFT, found + 2)
            if trimmed:
                self._skip(self._at + 2)
            self._parens = 0
            return True

    def _comment(self, start: int) -> None:
        end = self._text.find("*/", start)
        if end < 0:
            raise _Complaint("unclosed comment")
        self._skip(end + 2)
        closing = self._closing()
        if closing is None:
            raise _Complaint("comment ends before closing delimiter")
        self._skip(self._at + closing)
        if closing == 4:
            self._trim_left()

    def _closing(self) -> int | None:
        """Return the length of the closing delimiter here; None if there is none."""
        if self._text.startswith("}}", self._at):
            return 2
        here = self._text[self._at : self._at + 4]
        return 4 if here[1:] == "-}}" and here[0] in _SPACES else None

    def _trim_left(self) -> None:
        rest = self._text[self._at :]
        self._skip(self._at + len(rest) - len(rest.lstrip(_SPACES)))

    def _inside(self) -> bool:
        """Scan one token within an action; return False at its end."""
        text, at = self._text, self._at
        closing = self._closing()
        if closing is not None:
            if self._parens:
                raise _Complaint("unclosed left paren")
            self._skip(at + closing - 2)
            self._emit(T.RIGHT, self._at + 2)
            if closing == 4:
                self._trim_left()
            return False
        if at >= len(text):
            raise _Complaint("unclosed action")
        char = text[at]
        if char in _SPACES:
            end = at
            while end < len(text) and text[end] in _SPACES:
                end += 1
            if text.startswith("-}}", end):
                end -= 1  # the last space belongs to the delimiter
            self._emit(T.SPACE, end)
        elif char == "=":
            self._emit(T.ASSIGN, at + 1)
        elif char == ":":
            if text[at + 1 : at + 2] != "=":
                raise _Complaint("expected :=")
            self._emit(T.DECLARE, at + 2)
        elif char == "|":
            self._emit(T.PIPE, at + 1)
        elif char == '"':
            self._literal(T.STRING, _STRING, "unterminated quoted string")
        elif char == "`":
            self._literal(T.STRING, _RAW, "unterminated raw quoted string")
        elif char == "'":
            self._literal(T.CHAR_CONSTANT, _CHAR, "unterminated character constant")
        elif char == "$":
            self._word(T.VARIABLE)
        elif char == "." and not text[at + 1 : at + 2].isdecimal():
            self._word(T.FIELD)
        elif char in "+-." or "0" <= char <= "9":
            self._number()
        elif _is_alphanumeric(char):
            self._word(T.IDENTIFIER)
        elif char == "(":
            self._parens += 1
            self._emit(T.LEFT_PAREN, at + 1)
        elif char == ")":
            self._parens -= 1
            if self._parens < 0:
                raise _Complaint("unexpected right paren")
            self._emit(T.RIGHT_PAREN, at + 1)
        elif char.isascii() and char.isprintable():
            self._emit(T.CHAR, at + 1)
        else:
            raise _Complaint(f"unrecognized character in action: {_code_point(char)}")
        return True

    def _literal(self, type_: T, pattern: re.Pattern[str], complaint: str) -> None:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _Complaint(complaint)
        self._emit(type_, found.end())

    def _number(self) -> None:
        found = _NUMBER.match(self._text, self._at)
        end = found.end() if found else self._at
        following = self._text[end : end + 1]
        if following and _is_alphanumeric(following):
            raise _Complaint(f"bad number syntax: {quote(self._text[self._at : end + 1])}")
        if following in ("+", "-"):
            raise _Complaint(f"bad number syntax: {quote(self._text[self._at : end + 1])}")
        self._emit(T.NUMBER, end)

    def _word(self, type_: T) -> None:
        end = self._at + (type_ is not T.IDENTIFIER)
        while end < len(self._text) and _is_alphanumeric(self._text[end]):
            end += 1
        if not self._ends_word(end):
            raise _Complaint(f"bad character {_code_point(self._text[end])}")
        word = self._text[self._at : end]
        if word in KEYWORDS:
            type_ = T.KEYWORD
        elif word in ("true", "false"):
            type_ = T.BOOL
        self._emit(type_, end)

    def _ends_word(self, at: int) -> bool:
        return at >= len(self._text) or self._text[at] in " \t\r\n.,|:()" or self._text.startswith("}}", at)


def _is_alphanumeric(char: str) -> bool:
    return char == "_" or char.isalpha() or char.isdecimal()


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X} '{char}'" if char.isprintable() else f"U+{ord(char):04X}"
