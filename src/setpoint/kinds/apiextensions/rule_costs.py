"""Cost limits of the rules of a definition: of each rule, and of all rules of a schema."""

from __future__ import annotations

from collections.abc import Mapping

from setpoint.kinds.apiextensions import Schema

RULE_LIMIT = 10_000_000
SCHEMA_LIMIT = 100_000_000
_MAX_NAMED = 4


_UNBOUNDED = 2**64 - 1


def has_rules(schema: Schema) -> bool:
    """Return whether the schema or one of its parts has a rule."""
    if schema.get("x-kubernetes-validations"):
        return True
    parts = [*(schema.get("properties") or {}).values(), *(schema.get("allOf") or ())]
    parts += [part for name in ("items", "additionalProperties") if isinstance(part := schema.get(name), Mapping)]
    return any(map(has_rules, parts))


def bounded(cost: int) -> int:
    return min(cost, _UNBOUNDED)


class TotalCost:
    """The total cost of the rules of one schema, and the most expensive ones."""

    def __init__(self) -> None:
        self.total = 0
        self._expensive: list[tuple[int, str]] = []

    def add(self, path: str, cost: int) -> None:
        self.total = bounded(self.total + cost)
        if cost >= SCHEMA_LIMIT // 100:
            self._expensive.append((cost, path))
            self._expensive.sort(key=lambda entry: -entry[0])
            del self._expensive[_MAX_NAMED:]

    @property
    def most_expensive(self) -> list[str]:
        return [path for _, path in self._expensive]


def times(cost: int, values: int) -> int:
    return bounded(cost * values)


def max_elements(schema: Schema) -> int | None:
    """Return the maximum number of elements of a value, or None if it is unbounded."""
    kind = schema.get("type")
    if kind == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    elif kind == "array":
        limit = schema.get("maxItems")
    else:
        return 1
    return None if limit is None else max(limit, 0)


def cost_message(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )
