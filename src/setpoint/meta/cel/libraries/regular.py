"""Regular expressions: `matches` of the language, `find` and `findAll` of Kubernetes. RE2: linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from setpoint.meta.cel.declarations import Library
from setpoint.meta.cel.values import INT_MAX, CelError
from setpoint.meta.regex_limits import OPTIONS, TOO_LARGE, is_too_large


class BadPattern(CelError):
    """The text is not a regular expression."""


_ESCAPES = re.compile(r"\\Q.*?(?:\\E|$)|\\(.)", re.DOTALL)


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern. Raises BadPattern with the message of Go's regexp package."""
    if "\\C" in pattern and any(found[1] == "C" for found in _ESCAPES.finditer(pattern)):
        raise BadPattern("error parsing regexp: invalid escape sequence: `\\C`")  # A single byte of a character.
    if is_too_large(pattern):
        raise BadPattern(f"error parsing regexp: {TOO_LARGE}")
    try:
        return re2.compile(pattern, OPTIONS)
    except re2.error as error:
        raise BadPattern(f"error parsing regexp: {_go_message(pattern, error)}") from None


# Messages of RE2 in C++ -> messages of Go, where they differ.
_WORDS = {
    "missing argument to repetition operator": "missing argument to repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "invalid escape sequence": "invalid escape sequence",
    "trailing \\": "trailing backslash at end of expression",
    "invalid character class range": "invalid character class range",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "invalid UTF-8": "invalid UTF-8",
}


def _go_message(pattern: str, error: Exception) -> str:
    argument = error.args[0] if error.args else ""
    text = argument.decode("utf-8", "replace") if isinstance(argument, bytes) else str(argument)
    kind, _, where = text.partition(": ")
    words = _WORDS.get(kind, kind)
    if kind == "trailing \\":
        where = ""
        return f"{words}: ``"
    if kind in ("missing )", "unexpected )"):
        where = pattern
    return f"{words}: `{where}`"


def matches(text: str, pattern: str) -> bool:
    return compiled(pattern).search(text) is not None


def _legal(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except BadPattern as error:
        raise CelError(f"Illegal regex: {error}") from None


def find(text: str, pattern: str) -> str:
    found = _legal(pattern).search(text)
    return "" if found is None else str(found.group())


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    return _find_all(_legal(pattern), text, limit)


def _find_all(expression: Any, text: str, limit: int) -> list[str]:
    if limit > INT_MAX:
        raise CelError("integer overflow")
    result: list[str] = []
    last = -1
    for found in expression.finditer(text):
        if limit >= 0 and len(result) >= limit:
            break
        if found.start() == found.end() == last:
            continue  # An empty match right after another match does not count.
        result.append(found.group())
        last = found.end()
    return result


def _prepared_matches(pattern: str) -> Callable[..., Any]:
    search = compiled(pattern).search
    return lambda text, _: _text(text) and search(text) is not None


def _prepared_find(pattern: str) -> Callable[..., Any]:
    search = compiled(pattern).search

    def find_it(text: Any, _: str) -> str:
        _text(text)
        found = search(text)
        return "" if found is None else str(found.group())

    return find_it


def _prepared_find_all(pattern: str) -> Callable[..., Any]:
    expression = compiled(pattern)
    return lambda text, _, limit=-1: _text(text) and _find_all(expression, text, limit)


def _text(value: Any) -> bool:
    if type(value) is not str:
        raise CelError("no such overload")
    return True


PREPARED: dict[str, Callable[[str], Callable[..., Any]]] = {
    "matches": _prepared_matches,
    "find": _prepared_find,
    "findAll": _prepared_find_all,
}

KUBERNETES_REGEX = Library(
    "k8s.regex",
    (
        ("string_find_string", "string::find(string) -> string", find),
        ("string_find_all_string", "string::findAll(string) -> list(string)", find_all),
        ("string_find_all_string_int", "string::findAll(string, int) -> list(string)", find_all),
    ),
)
