"""Short hashes for names and label values, in an alphabet without vowels and ambiguous characters."""

from __future__ import annotations

from typing import Any

import orjson

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF
_ESCAPED = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def canonical_json(value: Any) -> bytes:
    """Encode with sorted keys and upstream's escapes, which yields the same bytes as upstream."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return text.encode()


def template_hash(template: dict[str, Any], collisions: int | None) -> str:
    """Hash a Pod template; `collisions` varies the hash when an earlier one was in use."""
    text = canonical_json(template)
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    value = _OFFSET
    for byte in text:
        value = ((value ^ byte) * _PRIME) & _MASK
    return _safe(value)


def revision_hash(data: dict[str, Any], collisions: int) -> str:
    value = _OFFSET
    for byte in canonical_json(data) + str(collisions).encode():
        value = ((value * _PRIME) & _MASK) ^ byte
    return _safe(value)


def _safe(number: int) -> str:
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))
