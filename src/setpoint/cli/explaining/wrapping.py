"""Wrap lines at spaces, by the rules of the library that kubectl uses."""

from __future__ import annotations

_NO_BREAK = "\u00a0"


def wrap(text: str, limit: int) -> str:
    """Wrap a text. Words longer than a line are not split. Spaces at a break are removed, others are preserved."""
    out: list[str] = []
    at = 0
    word, blanks = "", ""
    for char in text:
        if char == "\n":
            if word:
                out += [blanks, word]
            elif at + len(blanks) <= limit:
                out.append(blanks)
            out.append(char)
            word, blanks, at = "", "", 0
        elif char.isspace() and char != _NO_BREAK:
            if not blanks or word:
                at += len(blanks) + len(word)
                out += [blanks, word]
                word, blanks = "", ""
            blanks += char
        else:
            word += char
            if at + len(word) + len(blanks) > limit and len(word) < limit:
                out.append("\n")
                at, blanks = 0, ""
    if word:
        out += [blanks, word]
    elif at + len(blanks) <= limit:
        out.append(blanks)
    return "".join(out)


def indent(text: str, by: int) -> str:
    blanks = " " * by
    return blanks + text.replace("\n", "\n" + blanks)
