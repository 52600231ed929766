"""Property names that are no identifiers, and how Kubernetes lets expressions write them."""

from __future__ import annotations

import re

from setpoint.meta.cel.lexer import RESERVED

_PLAIN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_ALLOWED = re.compile(r"[a-zA-Z_./\-][a-zA-Z0-9_./\-]*", re.ASCII)
_SPECIAL = re.compile(r"__|[-./]")
_WORDS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__([^_]+)__")
_BACK = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """Return the identifier for a property; None where there is none, and the property cannot be reached."""
    if name in RESERVED:
        return f"__{name}__"
    if _PLAIN.fullmatch(name) and "__" not in name:
        return name
    if not _ALLOWED.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda found: _WORDS[found.group()], name)


def unescape(identifier: str) -> str | None:
    """Return the property that an identifier means; None for escapes that there are not."""
    if "__" not in identifier:
        return identifier
    bad = False

    def back(found: re.Match[str]) -> str:
        nonlocal bad
        word = found[1]
        if word in _BACK:
            return _BACK[word]
        if word not in RESERVED or found.group() != identifier:
            bad = True
        return word

    result = _ESCAPED.sub(back, identifier)
    return None if bad else result
