"""Data that only the published schemas need: descriptions of kinds and fields, enums, defaults, unions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

_ITSELF = ""
"""Key of the description of a definition itself."""
_GROUPS = ("List", "Condition", "VolumeSource")


@lru_cache(maxsize=1)
def _data() -> dict[str, dict[str, str]]:
    """Return the descriptions by definition and field."""
    known: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    text = Path(__file__).with_name("data").joinpath("descriptions.txt").read_text()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, description = line.partition(": ")
        if line.startswith(" "):
            fields[name.strip()] = description
            continue
        name, _, like = name.partition(" = ")
        fields = known[name] = dict(known[like]) if like else {}
        fields[_ITSELF] = description
    return known


def describe(definition: str) -> str:
    """Return the description of the definition; empty if there is none."""
    known = _data()
    if definition in known:
        return known[definition][_ITSELF]
    if definition.endswith("List"):
        return f"A list of {definition.rsplit('.', 1)[1].removesuffix('List')} objects."
    return next((known[f"*{group}"][_ITSELF] for group in _GROUPS if definition.endswith(group)), "")


def describe_fields(definition: str) -> dict[str, str]:
    """Return the descriptions of its fields, including those that many definitions share."""
    known = _data()
    descriptions = dict(known["*"])
    for group in _GROUPS:
        if definition.endswith(group):
            descriptions |= known[f"*{group}"]
    return descriptions | known.get(definition, {})


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
