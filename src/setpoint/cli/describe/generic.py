"""Describe kinds without a description of their own, such as custom resources: all fields, sorted by name."""

from __future__ import annotations

from typing import Any

from setpoint.cli.describe.context import DescribeContext, Writer
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.metadata import write_head
from setpoint.meta.goformat import plain
from setpoint.meta.objects import Obj

_SHOWN_ELSEWHERE = frozenset(
    {
        ".metadata.managedFields",
        ".metadata.name",
        ".metadata.namespace",
        ".metadata.labels",
        ".metadata.annotations",
    }
)
_ACRONYMS = frozenset({"API", "URL", "UID", "GUID"})


async def generic(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj)
    _write_fields(w, ctx, obj)
    await write_events(w, ctx, obj, obj.get("kind", ""))
    return w.text()


def _write_fields(w: Writer, ctx: DescribeContext, obj: Obj) -> None:
    """Write the fields without recursion, because the depth of an object is not bounded."""
    waiting = _fields(obj, 0, "")
    while waiting:
        level, path, title, value = waiting.pop()
        if title is None and isinstance(value, dict):
            waiting += _fields(value, level, path)
        elif title is None:
            w.write(level, f"{plain(value)}\n")
        elif isinstance(value, dict):
            w.write(level, f"{label_for(title, ctx.minor)}:\n")
            waiting += _fields(value, level + 1, path)
        elif isinstance(value, list):
            w.write(level, f"{label_for(title, ctx.minor)}:\n")
            waiting += [(level + 1, path, None, each) for each in reversed(value)]
        else:
            w.field(label_for(title, ctx.minor), plain(value), level)


_Entry = tuple[int, str, str | None, Any]
"""Level, path, name and value; items of a list have no name."""


def _fields(fields: dict[str, Any], level: int, path: str) -> list[_Entry]:
    """Return the fields in reverse order, as a stack."""
    entries = ((level, f"{path}.{name}", name, fields[name]) for name in sorted(fields, reverse=True))
    return [entry for entry in entries if entry[1] not in _SHOWN_ELSEWHERE]


def label_for(name: str, minor: int) -> str:
    """Return `Creation Timestamp` for `creationTimestamp`; names with digits and symbols are unchanged."""
    if not all(char.isalpha() or char == "-" for char in name):
        return name
    parts = _camel_parts(name)
    if minor >= 36:
        parts = _with_plurals(parts)
    return " ".join(_titled(part, minor) for part in parts)


def _titled(part: str, minor: int) -> str:
    if part.upper() in _ACRONYMS or (minor < 36 and part.upper() == "OSB"):
        return part.upper()
    if minor == 35:
        return part.capitalize()
    return part[:1].upper() + part[1:]


def _with_plurals(parts: list[str]) -> list[str]:
    """Join plural acronyms: `CIDRs` is one word, not `CID` and `Rs`.

    This works on bytes, as in kubectl: a non-ASCII letter counts as two.
    """
    joined: list[str] = []
    at = 0
    while at < len(parts):
        part = parts[at]
        capitals = len(part.encode()) >= 2 and all(char.isupper() or not char.isalpha() for char in part)
        if capitals and at + 1 < len(parts) and chr(parts[at + 1].encode()[0]).isupper():
            part += parts[at + 1]
            at += 1
        joined.append(part)
        at += 1
    return joined


def _camel_parts(name: str) -> list[str]:
    """Split a name into runs of lower-case letters, capitals and symbols; the last capital of a run belongs to the next
    word."""
    runs: list[str] = []
    last = ""
    for char in name:
        kind = "lower" if char.islower() else "upper" if char.isupper() else "other"
        if kind == last:
            runs[-1] += char
        else:
            runs.append(char)
        last = kind
    for at in range(len(runs) - 1):
        if runs[at][:1].isupper() and runs[at + 1][:1].islower():
            runs[at + 1] = runs[at][-1] + runs[at + 1]
            runs[at] = runs[at][:-1]
    return [run for run in runs if run]
