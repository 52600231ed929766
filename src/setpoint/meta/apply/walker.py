"""What is compiled from a Type: the functions that turn its values into field sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet

Pair = tuple[FieldSet | None, FieldSet | None]
"""What was removed, and what was changed or added; nodes, so {} means: the place itself. None: nothing."""


class Walk:
    """The compiled form of a Type. `leaf` walks have no functions worth calling."""

    __slots__ = ("diff", "fill", "leaf", "members")

    leaf: bool
    fill: Callable[[Any, FieldSet], None]
    """Adds the elements below a value, every one of them a member, as when the whole value is new."""
    members: Callable[[Any], FieldSet]
    """The elements below a value that an applier of this value owns."""
    diff: Callable[[Any, Any], Pair | None]
    """What is different between two values, both there, neither identical; None: nothing."""

    def __init__(self, leaf: bool) -> None:
        self.leaf = leaf

    def whole(self, value: Any) -> FieldSet:
        """The node of a value that is new, or gone."""
        if self.leaf or not value:
            return EMPTY
        node: FieldSet = {".": EMPTY}
        self.fill(value, node)
        return node if len(node) > 1 else EMPTY


def diff_with_empty(fill: Callable[[Any, FieldSet], None], old: Any, new: Any) -> Pair | None:
    """One side is null or empty, and there: what the other has comes or goes, but not the place itself."""
    node: FieldSet = {}
    if new:
        fill(new, node)
        return (None, node) if node else None
    if old:
        fill(old, node)
        return (node, None) if node else None
    return None if old == new else (None, EMPTY)
