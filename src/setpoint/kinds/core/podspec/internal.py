"""Parts of a pod as upstream's own types would print them: Go names, every field, in the order of the type.

Only error messages need this form. The table `data/internal_core.json` gives, for each type, its fields as (Go name,
API name, kind), where kind is `*T` or `[]T` for what is null when absent, `T` for a plain struct, or else the empty
value.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

_EMPTY: dict[str, Any] = {'""': "", "0": 0, "false": False, '"0"': "0", "{}": {}}
_SELECTOR = {"matchLabels", "matchExpressions"}
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@lru_cache(maxsize=1)
def _table() -> dict[str, list[tuple[str, str, str]]]:
    parsed: dict[str, list[tuple[str, str, str]]] = orjson.loads(
        Path(__file__).parents[2].joinpath("data", "internal_core.json").read_bytes()
    )
    return parsed


def internal(type_name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the value of this type with all its fields."""
    value = value or {}
    out: dict[str, Any] = {}
    for go_name, name, kind in _table()[type_name]:
        given = value.get(name)
        if kind == "inline":
            out.update(given or {})
        elif kind in _EMPTY:
            out[go_name] = _EMPTY[kind] if given is None else given
        elif kind.startswith("[]"):
            item = kind[2:]
            out[go_name] = [internal(item, one) for one in given] if given and item else given or None
        elif kind == "*":
            # Maps are printed in the order of their keys; label selectors are API types, in the order of their fields.
            is_map = isinstance(given, dict) and not given.keys() <= _SELECTOR
            out[go_name] = dict(sorted((given or {}).items())) if is_map else given
        elif kind.startswith("*"):
            out[go_name] = None if given is None else internal(kind[1:], given)
        else:
            out[go_name] = internal(kind, given)
    return out


def shown(type_name: str, value: Mapping[str, Any] | None) -> orjson.Fragment:
    """Return the value of this type as upstream prints it in messages."""
    return as_json(internal(type_name, value))


def as_json(value: Any) -> orjson.Fragment:
    """Return the value as JSON, as messages show what upstream holds behind a pointer, in a list or in a map."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return orjson.Fragment(text.translate(_ESCAPES))


def internal_diff(type_name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """Return a unified diff of the two, printed as indented JSON."""
    before, after = _lines(type_name, left), _lines(type_name, right)
    return "".join(list(difflib.unified_diff(before, after))[2:])


def _lines(type_name: str, value: Mapping[str, Any]) -> list[str]:
    text = json.dumps(internal(type_name, value), indent=1, ensure_ascii=False).translate(_ESCAPES)
    return [line + "\n" for line in text.split("\n")]
