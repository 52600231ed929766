"""Warnings that servers send with their answers (RFC 7234, 5.5; only code 299 is in use)."""

from __future__ import annotations

import re

_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def warning_texts(value: str) -> list[str]:
    """Those with control characters are left out: they would be commands to a terminal."""
    texts = (_ESCAPED.sub(r"\1", text) for text in _WARNING.findall(value))
    return [text for text in texts if not _CONTROL.search(text)]
