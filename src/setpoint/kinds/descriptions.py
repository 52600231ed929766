"""What kinds and fields are for, in a line each, from `data/descriptions.txt`. Only documents read this."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def _data() -> dict[str, dict[str, str]]:
    """By definition and field; the empty field is the definition itself, the definition `*` stands for all."""
    known: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    text = Path(__file__).with_name("data").joinpath("descriptions.txt").read_text()
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, said = line.partition(": ")
        if line.startswith(" "):
            fields[name.strip()] = said
        else:
            fields = known.setdefault(name, {})
            fields[""] = said
    return known


def describe(definition: str) -> str:
    """What the definition is for; empty if nothing is known."""
    said = _data().get(definition, _NOTHING).get("")
    if said is None and definition.endswith("List"):
        return f"A list of {definition.rsplit('.', 1)[1].removesuffix('List')} objects."
    return said or ""


def describe_fields(definition: str) -> dict[str, str]:
    """What is known of its fields; those that every kind has are said once, for all."""
    return {**_data().get("*", _NOTHING), **_data().get(definition, _NOTHING)}


_NOTHING: dict[str, str] = {}
