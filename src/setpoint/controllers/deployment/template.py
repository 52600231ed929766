"""Which ReplicaSet is of which Pod template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

Obj = dict[str, Any]

HASH_LABEL = "pod-template-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_NAME = 253


def hash_of(template: Obj, collisions: int | None) -> str:
    """Short, and safe in names and label values: no vowels, nothing that looks like another character.
    `collisions` leads to another hash when the first was taken."""
    value = 0x811C9DC5
    text = orjson.dumps(template, option=orjson.OPT_SORT_KEYS)
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    for byte in text:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def set_name(deployment: str, template_hash: str) -> str:
    return f"{deployment[: _LONGEST_NAME - 1 - len(template_hash)]}-{template_hash}"


def same_template(left: Obj, right: Obj) -> bool:
    return bool(_without_hash(left) == _without_hash(right))


def _without_hash(template: Obj) -> Obj:
    meta = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (meta.pop("labels", None) or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {key: value for key, value in meta.items() if value}, "labels": labels}


def split(deployment: Obj, sets: Iterable[Obj]) -> tuple[Obj | None, list[Obj]]:
    """The ReplicaSet of the current template (the oldest, should there be several), and all others, oldest first."""
    by_age = sorted(sets, key=lambda found: (found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"]))
    template = deployment["spec"]["template"]
    new = next((found for found in by_age if same_template(found["spec"]["template"], template)), None)
    return new, [found for found in by_age if found is not new]
