"""Configuration files in upstream's formats (`apiVersion`, `kind`, fields): declaration of their types, and strict
decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from setpoint.meta.body import BodyError, parse_json, parse_yaml, type_meta
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Field, Presence, Shape, Type

TEXT = Type(Shape.STRING, go="string")
SWITCH = Type(Shape.BOOL, go="bool")
NUMBER = Type(Shape.INT32, go="int32")
DURATION = Type(Shape.DURATION, go="v1.Duration")


class FileProblem(ValueError):
    """A file is invalid; the message is upstream's."""


class Explicit:
    """A field whose empty value differs from a missing one."""

    def __init__(self, type: Type) -> None:
        self.type = type


def struct(go: str, **fields: Type | Explicit) -> Type:
    """Return the type of an object with these fields."""
    result: dict[str, Field] = {}
    for name, type_ in fields.items():
        if isinstance(type_, Explicit):
            result[name] = Field(name, type_.type, Presence.KEEP)
        else:
            result[name] = Field(name, type_, Presence.OMIT)
    return Type(Shape.STRUCT, go, go, result)


def many(item: Type) -> Type:
    """Return the type of a list."""
    return Type(Shape.LIST, go=f"[]{item.go}", item=item)


def _unknown_kind(api_version: str, kind: str) -> FileProblem:
    return FileProblem(f"no kind {quote(kind)} is registered for version {quote(api_version)}")


def read_config(
    data: bytes,
    kinds: Mapping[tuple[str, str], Type],
    unknown: Callable[[str, str], FileProblem] = _unknown_kind,
) -> Obj:
    """Read the only object of a YAML or JSON file. `kinds` are the types by apiVersion and kind; `unknown` creates the
    error for others. Unknown and duplicate fields are errors. Raises FileProblem."""
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
    # Decoding reports duplicates only if they are passed to it.
    findings = list(dict.fromkeys([*duplicates, *strict]))
    if findings:
        raise FileProblem(f"strict decoding error: {', '.join(findings)}")
    return found


def document(go: str, **fields: Type | Explicit) -> Type:
    """Return the type of a whole file."""
    return struct(go, apiVersion=TEXT, kind=TEXT, **fields)
