"""Plain values to YAML, in the style of upstream's library: sorted keys, lists not indented, quotes only where a plain
text would mean something else.

What objects usually contain is written here. Documents with anything else, such as texts that need escape sequences,
are written by libyaml (`yaml_events`), which takes longer to load than a short command runs.
"""

from __future__ import annotations

import re
from functools import cmp_to_key
from typing import Any, Final

from setpoint.meta.yaml_scalar import STR, resolve, shortest

_WIDTH: Final = 80
"""The column after which a text is continued on the next line, at its next space."""
_MAX_KEY: Final = 128
"""The longest key in bytes that is written on the line of its value."""
_MANY: Final = 4096
"""Number of parts that are joined at once. Joining and freeing all parts of a large document in one call would hold the
interpreter lock for long."""
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_USUAL: Final = "[ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*"
"""A line of text without characters that are escaped. The pattern is not compiled here, because that takes long."""
_NOT_PLAIN = re.compile(r"""[#,\[\]{}&*!|>'"%@` ]|[?:-](?: |$)|---|\.\.\.|.*(?::(?: |$)| #| $)""", re.DOTALL)
"""The beginning, or something further on, of texts that have another meaning without quotes."""
_FOLD = re.compile(r"(?<! ) (?! )")


class _Unusual(Exception):
    """A value is left to libyaml."""


class _Document:
    def __init__(self) -> None:
        self.parts: list[str] = []
        """Text that is not yet joined."""
        self.pieces: list[bytes] = []

    def join(self) -> None:
        self.pieces.append("".join(self.parts).encode())
        self.parts.clear()


def write(value: Any) -> bytes:
    try:
        if not value or not isinstance(value, dict | list):
            raise _Unusual
        document = _Document()
        _block(document, value, 0, 0)
        document.join()
        return b"".join(document.pieces)
    except (_Unusual, UnicodeEncodeError):
        from setpoint.meta.yaml_events import emit  # see above

        return emit(value)


def _block(document: _Document, value: Any, indent: int, column: int) -> None:
    """Append the lines of a container that is not empty; `column` is the one where its first line continues."""
    parts = document.parts
    if len(parts) > _MANY:
        document.join()
    margin = " " * indent
    lead = "" if column else margin
    if isinstance(value, dict):
        for key in natural_order(value):
            text = _text(key, 0, 0)
            if len(key.encode()) > _MAX_KEY or "\n" in key:
                raise _Unusual
            parts.append(f"{lead}{text}:")
            # Lists are not indented in mappings.
            one = value[key]
            _value(document, one, indent, indent + len(text) + 1, indent if isinstance(one, list) else indent + 2)
            lead = margin
    else:
        for one in value:
            parts.append(f"{lead}-")
            if one and isinstance(one, dict | list):
                parts.append(" ")
                _block(document, one, indent + 2, indent + 2)
            else:
                _value(document, one, indent, indent + 1, 0)
            lead = margin


def _value(document: _Document, value: Any, indent: int, column: int, below: int) -> None:
    """Append a value after `column`, with the end of its line; the lines of a container are indented by `below`."""
    parts = document.parts
    if isinstance(value, str):
        parts.append(f" {_text(value, column + 1, indent + 2)}\n")
    elif isinstance(value, dict | list):
        if value:
            parts.append("\n")
            _block(document, value, below, 0)
        else:
            parts.append(" {}\n" if isinstance(value, dict) else " []\n")
    else:
        parts.append(f" {plain(value)}\n")


def _text(text: str, column: int, indent: int) -> str:
    """Return a text that begins at `column`, without the end of its last line. Other lines are indented by `indent`; 0
    means that there must not be others."""
    if "\n" in text:
        return _literal(text, indent)
    if not _is_usual(text):
        raise _Unusual
    style = scalar_style(text)
    if style == '"':
        if " " in text:
            raise _Unusual
        return f'"{text}"'
    if _NOT_PLAIN.match(text):
        return _folded(f"""'{text.replace("'", "''")}'""", column, indent, 2)
    return _folded(text, column, indent, 0)


def _folded(text: str, column: int, indent: int, quoted: int) -> str:
    """Return the text in lines that end at the first single space after the width. Spaces next to quotes are no such
    places."""
    if not indent or column + len(text) <= _WIDTH:
        return text
    lines, start = [], 0
    while True:
        earliest = start + max(_WIDTH + 1 - column, 0)
        if quoted:
            earliest = max(earliest, 2)
        space = _FOLD.search(text, earliest)
        if space is None or space.start() >= len(text) - quoted:
            lines.append(text[start:])
            return f"\n{' ' * indent}".join(lines)
        lines.append(text[start : space.start()])
        start, column = space.end(), indent


def _literal(text: str, indent: int) -> str:
    """Return a text of several lines without the last line break, in the style that keeps them as they are."""
    lines = text.split("\n")
    chomp = "-" if lines[-1] else ""
    if not chomp:
        lines.pop()
    if (
        not indent
        or not lines[-1]
        or text[0] in " \n"
        or any(line[-1:] == " " or not _is_usual(line) for line in lines)
    ):
        raise _Unusual
    margin = " " * indent
    return f"|{chomp}\n" + "\n".join([margin + line if line else "" for line in lines])


def _is_usual(line: str) -> bool:
    return line.isprintable() if line.isascii() else re.fullmatch(_USUAL, line) is not None


def plain(value: Any) -> str:
    """Return a value that is neither a text nor a container."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return str(value)
    return shortest(float(value))


def scalar_style(text: str) -> str:
    """Return libyaml's sign for the style of a text: `"`, or `|` if it has several lines; empty if neither is
    necessary."""
    if "\n" in text:
        return "|"
    return "" if resolve(text).tag == STR and not _BASE_60.fullmatch(text) else '"'


def _compare(left: str, right: str) -> int:
    """Compare two texts: letters after everything else, runs of digits by their value."""
    for at, (a, b) in enumerate(zip(left, right)):
        if a == b:
            continue
        if a.isalpha() or b.isalpha():
            return (1 if a > b else -1) if a.isalpha() and b.isalpha() else -1 if b.isalpha() else 1
        before = left[:at]
        lead = "1" if "0" in (a, b) and before[len(before.rstrip("0123456789")) :].strip("0") else ""
        a_digits, b_digits = _digits(left[at:]), _digits(right[at:])
        a_value, b_value = int(lead + a_digits or "0"), int(lead + b_digits or "0")
        a_order, b_order = (a_value, len(a_digits), a), (b_value, len(b_digits), b)
        return 1 if a_order > b_order else -1
    return len(left) - len(right)


_NATURAL = cmp_to_key(_compare)


def natural_order(keys: dict[str, Any]) -> list[str]:
    return sorted(keys, key=_NATURAL)


def _digits(text: str) -> str:
    return text[: len(text) - len(text.lstrip("0123456789"))]
