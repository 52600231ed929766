"""Parse Warning headers (RFC 7234, section 5.5; only code 299 is in use)."""

from __future__ import annotations

import re

_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def warning_texts(value: str) -> list[str]:
    """Return the texts of warnings, without those with control characters, which a terminal could execute."""
    texts = (_ESCAPED.sub(r"\1", text) for text in _WARNING.findall(value))
    return [text for text in texts if not _CONTROL.search(text)]
