"""Warnings that servers send with their answers (RFC 7234, 5.5; only code 299 is in use)."""

from __future__ import annotations

import re

_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def warning_texts(value: str) -> list[str]:
    return [_ESCAPED.sub(r"\1", text) for text in _WARNING.findall(value)]
