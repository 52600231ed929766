"""Functions compiled from a Type that convert its values to field sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet

Pair = tuple[FieldSet | None, FieldSet | None]
"""Removed fields, and changed or added fields; {} means the value itself, None means no fields."""


class Walk:
    """The compiled form of a Type. The functions of a `leaf` walk are never called."""

    __slots__ = ("diff", "fill", "leaf", "members")

    leaf: bool
    fill: Callable[[Any, FieldSet], None]
    """Add all elements below a value as members, as when the whole value is new."""
    members: Callable[[Any], FieldSet]
    """Return the elements below a value that an applier of this value owns."""
    diff: Callable[[Any, Any], Pair | None]
    """Compare two present values that are not identical; None means no difference."""

    def __init__(self, leaf: bool) -> None:
        self.leaf = leaf

    def whole(self, value: Any) -> FieldSet:
        """Return the node of a value that is new, or gone."""
        if self.leaf or not value:
            return EMPTY
        node: FieldSet = {".": EMPTY}
        self.fill(value, node)
        return node if len(node) > 1 else EMPTY


def diff_with_empty(fill: Callable[[Any, FieldSet], None], old: Any, new: Any) -> Pair | None:
    """Compare two values of which one is null or empty: the other's fields are added or removed, but not the value
    itself."""
    node: FieldSet = {}
    if new:
        fill(new, node)
        return (None, node) if node else None
    if old:
        fill(old, node)
        return (node, None) if node else None
    return None if old == new else (None, EMPTY)
