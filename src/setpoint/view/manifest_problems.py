"""The problems of a manifest by line: from the errors of the server, and from the text itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from setpoint.meta.errors import ApiError, Conflict
from setpoint.meta.yaml_places import Document, FieldPath, Place, find_place
from setpoint.view.field_owners import field_text

_STRICT = re.compile(r'(unknown|duplicate) field "([^"]+)"')
_TYPED = re.compile(r"(?:^|[:\n]) *\.((?:[^\s:\[\]]|\[[^\]]*\])+): ([^\n]+)")
_UNDECLARED = "field not declared in schema"
_GO_FIELD = re.compile(r"Go struct field [A-Za-z]+\.([A-Za-z0-9_.]+) of type (\S+)")
_GO_VALUE = re.compile(r"cannot unmarshal (\S+) into")
_GO_VALUE_TEXT = re.compile(r"&value\.valueUnstructured\{Value:(.*)\}")
_KIND = re.compile(r'no matches for kind "([^"]*)" in version "([^"]*)"')
_CONFLICT = re.compile(r'conflict with "([^"]+)"')

CloseNames = Callable[[FieldPath], list[str]]
"""Returns names that the last name of a path may be a misspelling of."""


class ManifestProblem(NamedTuple):
    """A problem at a position of a text."""

    line: int
    column: int
    message: str
    field: str = ""
    """The path of the field; empty if the problem is none of a field."""
    is_error: bool = True
    """Whether the manifest would be refused; False for a warning."""
    manager: str = ""
    """The manager that owns the field, if the problem is a conflict with it."""


def problems_of(
    error: ApiError, document: Document, obj: Any, close_names: CloseNames = lambda path: []
) -> list[ManifestProblem]:
    """Return the problems that the server reports for a document, each at its line."""
    found = [*_problems(error, document, obj, close_names)]
    return found or [_at(document, (), error.message)]


def repeated_fields(document: Document) -> list[ManifestProblem]:
    """Return the fields that are there twice; the server sees only the last one."""
    return [
        ManifestProblem(place.line, place.column, f"{field_text(path)} is there twice", field_text(path))
        for path, place in document.repeated
    ]


def _problems(error: ApiError, document: Document, obj: Any, close_names: CloseNames) -> Iterator[ManifestProblem]:
    causes = (error.details or {}).get("causes") or ()
    if isinstance(error, Conflict) and causes:
        for cause in causes:
            manager = _CONFLICT.search(str(cause.get("message") or ""))
            path = resolve_path(str(cause.get("field") or ""), obj)
            yield _at(
                document, path, _conflict_text(path, manager[1] if manager else ""), manager[1] if manager else ""
            )
        return
    for kind, field in _STRICT.findall(error.message):
        path = resolve_path(field, obj)
        yield _at(document, path, _unknown(path, close_names) if kind == "unknown" else f"{field} is there twice")
    if _STRICT.search(error.message):
        return
    for cause in causes:
        path = resolve_path(str(cause.get("field") or ""), obj)
        yield _at(document, path, str(cause.get("message") or error.message))
    if causes:
        return
    if go := _GO_FIELD.search(error.message):
        value = _GO_VALUE.search(error.message)
        path = resolve_path(go[1], obj)
        yield _at(document, path, f"{field_text(path)} must be {go[2]}, not {value[1] if value else 'this'}")
    elif kind := _KIND.search(error.message):
        place = find_place(document, "kind") or Place(document.line, 1, document.line)
        text = f"the server has no kind {kind[1]} in {kind[2]}"
        yield ManifestProblem(place.line, place.column, text, "kind")
    else:
        yield from _typed(error.message, document, obj, close_names)


def _typed(message: str, document: Document, obj: Any, close_names: CloseNames) -> Iterator[ManifestProblem]:
    """Yield the problems of a server-side apply, whose message has a line for each field."""
    for field, text in _TYPED.findall(message):
        path = resolve_path(field, obj)
        text = _GO_VALUE_TEXT.sub(r"\1", text.strip())
        yield _at(document, path, _unknown(path, close_names) if text == _UNDECLARED else text)


def _unknown(path: FieldPath, close_names: CloseNames) -> str:
    meant = close_names(path) if path else []
    hint = f" (did you mean {' or '.join(meant)}?)" if meant else ""
    return f"unknown field {field_text(path)}{hint}"


def _conflict_text(path: FieldPath, manager: str) -> str:
    return f"{field_text(path)} belongs to {manager or 'another manager'}"


def _at(document: Document, path: FieldPath, message: str, manager: str = "") -> ManifestProblem:
    field = field_text(path)
    place = find_place(document, field) or Place(document.line, 1, document.line)
    return ManifestProblem(place.line, place.column, message, field, not manager, manager)


def resolve_path(field: str, obj: Any) -> FieldPath:
    """Return the path of a field that a message names; items that it selects by key become indexes."""
    path: list[str | int] = []
    value = obj
    for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", field):
        if not part.startswith("["):
            # Keys of labels and annotations may contain dots.
            if path and isinstance(path[-1], str) and not isinstance(value, Mapping | list):
                path[-1] = f"{path[-1]}.{part}"
            else:
                path.append(part)
                value = value.get(part) if isinstance(value, Mapping) else None
            continue
        inner = part[1:-1]
        step: str | int = int(inner) if inner.isdigit() else _selected(inner, value)
        path.append(step)
        try:
            value = value[step]
        except (LookupError, TypeError):
            value = None
    return tuple(path)


def _selected(text: str, items: Any) -> str | int:
    """Return the index of the item that a text such as `name="a",port=80` selects; the text if there is none."""
    wanted = dict(each.partition("=")[::2] for each in text.split(","))
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping) and all(
            name in item and str(item[name]) == value.strip('"') for name, value in wanted.items()
        ):
            return index
    return text.strip("'\"")
