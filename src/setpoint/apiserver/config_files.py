"""Configuration files in upstream's formats (`apiVersion`, `kind`, fields): described in few words, read strictly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.meta.body import BodyError, parse_json, parse_yaml, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.goformat import quote
from setpoint.meta.schema import Field, Presence, Shape, Type

Obj = dict[str, Any]

TEXT = Type(Shape.STRING, go="string")
SWITCH = Type(Shape.BOOL, go="bool")
NUMBER = Type(Shape.INT32, go="int32")
DURATION = Type(Shape.DURATION, go="v1.Duration")


class FileProblem(ValueError):
    """What is wrong with a file, in upstream's words."""


class Given:
    """A field that means something when it is empty, too, as long as it is there."""

    def __init__(self, type: Type) -> None:
        self.type = type


def struct(go: str, **fields: Type | Given) -> Type:
    made: dict[str, Field] = {}
    for name, of in fields.items():
        if isinstance(of, Given):
            made[name] = Field(name, of.type, Presence.KEEP)
        else:
            made[name] = Field(name, of, Presence.OMIT)
    return Type(Shape.STRUCT, go, go, made)


def many(item: Type) -> Type:
    return Type(Shape.LIST, go=f"[]{item.go}", item=item)


def unknown_kind(api_version: str, kind: str) -> FileProblem:
    return FileProblem(f"no kind {quote(kind)} is registered for version {quote(api_version)}")


def read_config(
    data: bytes,
    kinds: Mapping[tuple[str, str], Type],
    unknown: Callable[[str, str], FileProblem] = unknown_kind,
) -> Obj:
    """The one object in a file, YAML or JSON. `kinds` are the types by apiVersion and kind; `unknown` says what is
    wrong with others. Nothing unknown, nothing twice. Raises FileProblem."""
    is_json = data.lstrip()[:1] == b"{"
    try:
        value, duplicates = parse_json(data) if is_json else parse_yaml(data)
        api_version, kind = type_meta(value)
    except (BodyError, DecodeError) as error:
        where = "" if isinstance(error, BodyError) and not is_json else "couldn't get version/kind; json parse error: "
        raise FileProblem(f"{where}{error}") from None
    if not kind:
        raise FileProblem(f"Object 'Kind' is missing in '{data.decode('utf-8', 'replace')[:256]}'")
    if not api_version:
        raise FileProblem(f"Object 'apiVersion' is missing in '{data.decode('utf-8', 'replace')[:256]}'")
    type_ = kinds.get((api_version, kind))
    if type_ is None:
        raise unknown(api_version, kind)
    strict: list[str] = []
    try:
        found: Obj = decode(type_, value, strict=strict, duplicates=duplicates)
    except DecodeError as error:
        raise FileProblem(str(error)) from None
    # Of duplicates, decoding knows only what it was told.
    findings = list(dict.fromkeys([*duplicates, *strict]))
    if findings:
        raise FileProblem(f"strict decoding error: {', '.join(findings)}")
    return found


def document(go: str, **fields: Type | Given) -> Type:
    """The type of a whole file."""
    return struct(go, apiVersion=TEXT, kind=TEXT, **fields)
