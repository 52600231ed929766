"""A rule for some of the places in a schema, compiled to a walk that visits only what can lead to one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.meta.field import Errors

Schema = Mapping[str, Any]
Rule = Callable[[Any, str, Errors], None]
"""Function that gets a value, its path, and the list to which it appends errors."""
RuleFor = Callable[[Schema], Rule | None]
"""Function that returns the rule for the values of a schema (not of its parts), or None."""


def compile_walk(schema: Schema, rule_for: RuleFor) -> Rule | None:
    """Return a rule that visits all parts of a value, or None if no part has a rule."""
    own, items, others = rule_for(schema), schema.get("items"), schema.get("additionalProperties")
    parts: dict[str, Rule] = {}
    for name, part in (schema.get("properties") or {}).items():
        if (walk := compile_walk(part, rule_for)) is not None:
            parts[name] = walk
    item = compile_walk(items, rule_for) if isinstance(items, Mapping) else None
    other = compile_walk(others, rule_for) if isinstance(others, Mapping) else None
    if own is None and not parts and item is None and other is None:
        return None
    known = frozenset(schema.get("properties") or ())

    def walk_value(value: Any, path: str, errs: Errors) -> None:
        if own is not None:
            own(value, path, errs)
        if value.__class__ is dict:
            for name, part in parts.items():
                if name in value:
                    part(value[name], f"{path}.{name}" if path else name, errs)
            if other is not None:
                for name, one in value.items():
                    if name not in known:
                        other(one, f"{path}[{name}]", errs)
        elif item is not None and value.__class__ is list:
            for i, one in enumerate(value):
                item(one, f"{path}[{i}]", errs)

    return walk_value
