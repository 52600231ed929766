"""Correlation of old and new values, for ratcheting: an update may leave invalid values unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.kinds.apiextensions import Schema
from setpoint.meta.objects import Obj


class Correlated:
    """An old value, found by the position of the `new` one in the schema."""

    __slots__ = ("_keyed", "_same", "new", "old", "schema")

    def __init__(self, new: Any, old: Any, schema: Schema) -> None:
        self.new = new
        self.old = old
        self.schema = schema
        self._keyed: dict[bytes, Any] | None = None
        self._same: bool | None = None

    def key(self, name: str) -> Correlated | None:
        """Return the field of that name, if both have it and the schema knows it."""
        old, new = self.old, self.new
        if old.__class__ is not dict or new.__class__ is not dict or name not in old or name not in new:
            return None
        part = (self.schema.get("properties") or {}).get(name)
        if part is None:
            part = self.schema.get("additionalProperties")
            if not isinstance(part, Mapping):
                return None
        return Correlated(new[name], old[name], part)

    def item(self, at: int) -> Correlated | None:
        """Return the item of a list whose items have keys: its namesake."""
        schema, items = self.schema, self.schema.get("items")
        if self.old.__class__ is not list or self.new.__class__ is not list or at >= len(self.new):
            return None
        if schema.get("x-kubernetes-list-type") != "map" or not isinstance(items, Mapping):
            return None
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        if self._keyed is None:
            self._keyed = {}
            for one in self.old:
                if one.__class__ is dict:
                    self._keyed.setdefault(_identity(one, keys), one)
        new = self.new[at]
        old = self._keyed.get(_identity(new, keys)) if new.__class__ is dict else None
        return Correlated(new, old, items) if old is not None else None

    @property
    def same(self) -> bool:
        """Return whether the new value equals the old one, ignoring the order of items with keys."""
        if self._same is None:
            self._same = self._compare()
        return self._same

    def _compare(self) -> bool:
        old, new = self.old, self.new
        if old is None or new is None:
            return old is new
        if old.__class__ is dict and new.__class__ is dict:
            if len(old) != len(new):
                return False
            return all((part := self.key(name)) is not None and part.same for name in new)
        if old.__class__ is list and new.__class__ is list:
            if len(old) != len(new):
                return False
            if self.schema.get("x-kubernetes-list-type") != "map":
                return _json(old) == _json(new)
            return all((part := self.item(at)) is not None and part.same for at in range(len(new)))
        return old.__class__ is new.__class__ and bool(old == new)


def _identity(item: Obj, keys: tuple[str, ...]) -> bytes:
    return orjson.dumps([item.get(key) for key in keys])


def _json(value: Any) -> bytes:
    """Return the value as JSON; unlike Python's equality this distinguishes True from 1."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
