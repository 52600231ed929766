"""One-line descriptions of kinds and fields from `data/descriptions.txt`, used only for documentation."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

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
        name, _, said = line.partition(": ")
        if line.startswith(" "):
            fields[name.strip()] = said
            continue
        name, _, like = name.partition(" = ")
        fields = known[name] = dict(known[like]) if like else {}
        fields[_ITSELF] = said
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
    said = dict(known["*"])
    for group in _GROUPS:
        if definition.endswith(group):
            said |= known[f"*{group}"]
    return said | known.get(definition, {})
