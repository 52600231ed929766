"""Field numbers of the protobuf form of the built-in kinds, from `data/protobuf_fields.txt`. Read on first use."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from setpoint.meta.protobuf import FieldNumber


@lru_cache(maxsize=1)
def _lines() -> dict[str, str]:
    """Return the unparsed line of each definition."""
    found, package = {}, ""
    for line in Path(__file__).with_name("data").joinpath("protobuf_fields.txt").read_text().splitlines():
        if line.startswith("@"):
            package = line[2:]
        elif line and not line.startswith("#"):
            name, _, fields = line.partition(" ")
            found[f"{package}.{name}"] = fields
    return found


def has_protobuf_form(definition: str) -> bool:
    return definition in _lines()


def protobuf_fields(definition: str) -> list[FieldNumber]:
    """Return the fields of a definition. Raises KeyError if it has no protobuf form."""
    package = definition.rpartition(".")[0]
    return [_field(text, package) for text in _lines()[definition].split()]


def _field(text: str, package: str) -> FieldNumber:
    names, _, number = text.partition("=")
    name, _, go = names.partition(":")
    if name.startswith("+"):
        last = name.rpartition(".")[2].lstrip("+")
        return FieldNumber(int(number), name[1:] if "." in name else f"{package}.{last}", go or last, in_place=True)
    return FieldNumber(int(number), name, go or name[0].upper() + name[1:])
