"""Facts about built-in kinds that only the published schemas contain: enums, defaults, unions. Loaded on first use."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson


@dataclass(slots=True)
class SchemaFacts:
    enum: dict[str, list[str]] = field(default_factory=dict)
    """Values by type name, such as `v1.PullPolicy`."""
    default: dict[str, Any] = field(default_factory=dict)
    """Defaults by definition and field; other fields default to their empty value if they are always written."""
    union: dict[str, list[Any]] = field(default_factory=dict)
    """Unions by definition."""
    mark: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Extensions by definition and field, where they differ from what the type implies."""


@lru_cache(maxsize=1)
def schema_facts() -> SchemaFacts:
    facts = SchemaFacts()
    text = Path(__file__).with_name("data").joinpath("schema_facts.txt").read_text()
    for line in text.splitlines():
        if line and not line.startswith("#"):
            subject, _, value = line.partition(" = ")
            what, _, name = subject.partition(" ")
            getattr(facts, what)[name] = orjson.loads(value)
    return facts
