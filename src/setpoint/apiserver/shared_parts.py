"""Sharing of equal parts among the decoded objects of one resource.

The Pods of one ReplicaSet differ in a few fields, and each decoded copy takes several kilobytes. A part (an object, an
array or a string) that equals the part at the same place of a sibling is replaced by that of the sibling. Readers do
not modify cached objects, and the replacement is the same JSON with its members in the same order.
"""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta.objects import Obj

_MAX_SIBLINGS = 256
_ABSENT = object()


class Siblings:
    """The objects of one resource with which others share parts."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[str, Obj] = {}
        """The latest object by its key up to the last dash, which is common to the Pods of one ReplicaSet, and the
        latest of all, by an empty key. The number is bounded."""

    def share(self, key: str, obj: Obj) -> None:
        """Replace the parts of `obj` that equal those of a sibling."""
        latest, group = self._latest, key[: key.rfind("-") + 1]
        sibling = latest.pop(group, None) or latest.get("")
        if sibling is not None and sibling is not obj:
            for name, part in obj.items():
                other = sibling.get(name)
                if type(part) is dict and type(other) is dict and part is not other and _replace_members(part, other):
                    obj[name] = other
        latest[group] = latest[""] = obj
        if len(latest) > _MAX_SIBLINGS:
            del latest[next(each for each in latest if each)]


def _replace_members(mine: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Replace equal parts in `mine`; return whether all of them are, and in the same order."""
    same = len(mine) == len(theirs)
    for key, value in mine.items():
        other = theirs.get(key, _ABSENT)
        if value is not other:
            part = _part(value, other)
            if part is not other:
                same = False
            if part is not value:
                mine[key] = part
    return same and [*mine] == [*theirs]


def _part(mine: Any, theirs: Any) -> Any:
    """Return `theirs` if both are the same JSON; otherwise `mine`, of which equal parts are replaced."""
    kind = type(mine)
    if kind is not type(theirs):  # 1 and True are equal, and not the same JSON
        return mine
    if kind is dict:
        return theirs if _is_same_text(mine, theirs) or _replace_members(mine, theirs) else mine
    if kind is list:
        if _is_same_text(mine, theirs):
            return theirs
        same = len(mine) == len(theirs)
        for place, (value, other) in enumerate(zip(mine, theirs, strict=False)):
            if value is not other:
                part = _part(value, other)
                if part is not other:
                    same = False
                if part is not value:
                    mine[place] = part
        return theirs if same else mine
    return theirs if kind in (str, int) and mine == theirs else mine


def _is_same_text(mine: Any, theirs: Any) -> bool:
    """Return whether two parts are known to be the same JSON. This is much faster than to visit each of their parts."""
    try:
        return orjson.dumps(mine) == orjson.dumps(theirs)
    except TypeError:  # such as a large integer
        return False
