"""A map whose values are computed when they are first asked for: the variables of a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from setpoint.meta.cel.values import MISSING, CelError, TypedMap


class LazyMap(TypedMap):
    """A map whose values, or errors, are computed at most once. The function that computes a value charges its cost."""

    __slots__ = ("_compute", "_known")

    def __init__(self, compute: Mapping[str, Callable[[], Any]]) -> None:
        self._compute = compute
        self._known: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._compute)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._compute)

    def find(self, key: Any) -> Any:
        compute = self._compute.get(key)
        if compute is None:
            return MISSING
        if key not in self._known:
            try:
                self._known[key] = compute()
            except CelError as error:
                self._known[key] = error
        value = self._known[key]
        if isinstance(value, CelError):
            raise value
        return value

    def equals(self, other: Any) -> bool:
        return self is other
