"""Message types: names with fields of known types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.meta.cel import types as t
from setpoint.meta.cel.types import Type


@dataclass(frozen=True, slots=True)
class StructType:
    """A type with fields. `construct` builds a value from an expression's `Name{field: value}`."""

    name: str
    fields: Mapping[str, Type]
    construct: Callable[[dict[str, Any]], Any] | None = None
    access: Mapping[str, tuple[str, Callable[[Any], Any] | None]] | None = None
    """Property of each field of a JSON object, and the function that converts it. A field that is null is absent."""

    is_open: bool = False
    """Whether the type has any field, of any type."""

    def field(self, name: str) -> Type | None:
        found = self.fields.get(name)
        return t.DYN if found is None and self.is_open else found

    @property
    def type(self) -> Type:
        return t.struct(self.name)
