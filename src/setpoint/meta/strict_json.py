"""JSON that everybody reads alike: no key stands twice in an object, numbers are JSON's. For what is signed."""

from __future__ import annotations

import json
from typing import Any


class DuplicateKey(ValueError):
    """The text is the key."""


def read_strictly(data: bytes) -> Any:
    """Raises ValueError."""
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
