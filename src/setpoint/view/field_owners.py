"""The YAML of an object with the field managers of each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from setpoint.meta.body import dump_yaml
from setpoint.meta.objects import ObjView
from setpoint.meta.yaml_places import FieldPath, Place, documents

_MAX_MANAGERS = 64


class Manager(NamedTuple):
    """An entry of an object's managedFields."""

    name: str
    operation: str
    """Apply or Update."""
    subresource: str
    """The subresource that it wrote, such as `status`; empty for the object itself."""
    time: str
    """When it last changed its fields; empty if that is not known."""

    @property
    def shown(self) -> str:
        return f"{self.name} ({self.subresource})" if self.subresource else self.name


class Line(NamedTuple):
    """A line of the text."""

    text: str
    field: str
    """The path of the field that begins in this line, or that it continues; empty if there is none."""
    owners: tuple[int, ...]
    """The indexes of the managers that own the field."""
    is_default: bool
    """Whether the line has a value that no manager owns: a default, or a value that the server has set."""


class OwnedText(NamedTuple):
    lines: tuple[Line, ...]
    managers: tuple[Manager, ...]


def owned_text(obj: ObjView) -> OwnedText:
    """Return the YAML of an object without its managedFields, with the managers of each line."""
    metadata = obj.get("metadata") or {}
    entries = [each for each in metadata.get("managedFields") or () if isinstance(each, Mapping)][:_MAX_MANAGERS]
    shown = {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    managers = tuple(_manager(each) for each in entries)
    owners: dict[FieldPath, set[int]] = {}
    for number, entry in enumerate(entries):
        for path in owned_paths(entry.get("fieldsV1"), shown):
            owners.setdefault(path, set()).add(number)
    text = dump_yaml(shown).decode()
    return OwnedText(tuple(_lines(text, shown, owners)), managers)


def _manager(entry: Mapping[str, Any]) -> Manager:
    names = ("manager", "operation", "subresource", "time")
    return Manager(*(str(entry.get(name) or "") for name in names))


def owned_paths(fields: Any, value: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of an object that a set of fields (`fieldsV1`) contains."""
    if not isinstance(fields, Mapping):
        return
    for element, inner in fields.items():
        if element == ".":
            yield path
            continue
        for key, member in _members(element, value):
            if not inner:
                yield (*path, key)
            else:
                yield from owned_paths(inner, member, (*path, key))


def _members(element: str, value: Any) -> Iterator[tuple[str | int, Any]]:
    """Yield the key and the value of the member that an element names: at most one."""
    kind, content = element[:1], element[2:]
    if kind == "f":
        if isinstance(value, Mapping) and content in value:
            yield content, value[content]
        return
    if not isinstance(value, list):
        return
    try:
        wanted = orjson.loads(content)
    except orjson.JSONDecodeError:
        return
    for index, item in enumerate(value):
        if kind == "i":
            found = index == wanted
        elif kind == "k":
            found = isinstance(item, Mapping) and isinstance(wanted, Mapping) and _has(item, wanted)
        else:
            found = kind == "v" and item == wanted
        if found:
            yield index, item
            return


def _has(item: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Return whether an item has these values; a missing field has any, because defaults are part of keys."""
    return all(name not in item or item[name] == value for name, value in key.items())


def _lines(text: str, obj: Any, owners: Mapping[FieldPath, set[int]]) -> Iterator[Line]:
    fields = documents(text)[0].fields
    starts: dict[int, FieldPath] = {}
    for path, place in fields.items():
        starts[place.line] = path  # the innermost field that begins in the line
    around = {path[:length] for path in owners for length in range(1, len(path))}
    covering: FieldPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        path = starts.get(number, covering if _covers(fields.get(covering), number) else ())
        covering = path
        found = _owners_of(path, owners, around)
        leaf = bool(path) and not _has_members(obj, path)
        yield Line(line, field_text(path), tuple(sorted(found)), leaf and not found)


def _covers(place: Place | None, line: int) -> bool:
    return place is not None and place.line <= line <= place.last_line


def _owners_of(path: FieldPath, owners: Mapping[FieldPath, set[int]], around: set[FieldPath]) -> set[int]:
    """Return the owners of a field, or of the innermost field around it whose whole value they own. `around` are the
    fields that have members with owners."""
    if path in owners:
        return owners[path]
    if path in around:
        return set()
    for length in range(len(path) - 1, 0, -1):
        outer = path[:length]
        if outer in owners:
            return set() if outer in around else owners[outer]
    return set()


def _has_members(value: Any, path: FieldPath) -> bool:
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return False
    return bool(value) and isinstance(value, dict | list)


def field_text(path: Sequence[str | int]) -> str:
    """Return a path as error messages write it: `spec.containers[0].image`."""
    parts = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in path]
    return "".join(parts).removeprefix(".")
