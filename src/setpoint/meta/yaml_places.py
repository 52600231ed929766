"""The positions of fields in YAML text: which line a field path is on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from setpoint.meta.chunked_json import MAX_DEPTH

try:
    from yaml.cyaml import CParser as _Parser  # type: ignore[attr-defined]
except ImportError:  # built without libyaml
    from yaml.loader import BaseLoader as _Parser  # type: ignore[assignment]

FieldPath = tuple[str | int, ...]
"""Keys of mappings and indexes of sequences, from the document to a field."""
_MAX_FIELDS = 100_000
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


class Place(NamedTuple):
    """The position of a field in a text; lines and columns count from 1."""

    line: int
    column: int
    """The position of the key, or of the item of a sequence."""
    last_line: int
    """The last line of the value."""


class Document(NamedTuple):
    """One document of a YAML text."""

    line: int
    last_line: int
    fields: dict[FieldPath, Place]
    """The positions of all fields, outer ones before the inner ones; the document itself has the empty path."""
    repeated: list[tuple[FieldPath, Place]]
    """The fields that their mapping has already, and where they are there again."""


class YamlProblem(ValueError):
    """The text is not valid YAML."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


def documents(text: str) -> list[Document]:
    """Return the positions in every document of a text. Raises YamlProblem."""
    try:
        parser: Any = _Parser(text)
        return _Placer(parser).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise YamlProblem(error.problem or error.context or "invalid YAML", line, column) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem("a character that YAML does not allow", line, 1) from None
    except RecursionError:
        raise YamlProblem("nested too deeply", 1, 1) from None


class _Placer:
    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._fields: dict[FieldPath, Place] = {}
        self._repeated: list[tuple[FieldPath, Place]] = []

    def documents(self) -> list[Document]:
        found: list[Document] = []
        parser = self._parser
        parser.get_event()  # the start of the stream
        while parser.check_event(yaml.DocumentStartEvent):
            start = parser.get_event().start_mark.line + 1
            self._fields, self._repeated = {}, []
            self._node((), None)
            end = parser.get_event().start_mark.line + 1
            found.append(Document(start, max(end, start), self._fields, self._repeated))
        return found

    def _node(self, path: FieldPath, mark: Any) -> int:
        """Read a node and return its last line. `mark` is the position of its key; None means that of the node."""
        event = self._parser.get_event()
        start = mark or event.start_mark
        line, column = int(start.line) + 1, int(start.column) + 1
        if len(path) > MAX_DEPTH or len(self._fields) > _MAX_FIELDS:
            raise YamlProblem("too many or too deeply nested fields", line, column)
        self._fields[path] = Place(line, column, line)
        if isinstance(event, yaml.MappingStartEvent):
            last = self._mapping(path, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            last = self._sequence(path, line)
        else:
            last = _last_line(event)
        self._fields[path] = Place(line, column, max(last, line))
        return max(last, line)

    def _mapping(self, path: FieldPath, last: int) -> int:
        while not self._parser.check_event(yaml.MappingEndEvent):
            if self._parser.check_event(yaml.ScalarEvent):
                key = self._parser.get_event()
                if (*path, key.value) in self._fields:
                    line, column = int(key.start_mark.line) + 1, int(key.start_mark.column) + 1
                    self._repeated.append(((*path, key.value), Place(line, column, line)))
                last = self._node((*path, key.value), key.start_mark)
            else:  # keys that are no scalars have no field path
                self._node((*path, ""), None)
                last = self._node((*path, ""), None)
        self._parser.get_event()
        return last

    def _sequence(self, path: FieldPath, last: int) -> int:
        index = 0
        while not self._parser.check_event(yaml.SequenceEndEvent):
            last = self._node((*path, index), None)
            index += 1
        self._parser.get_event()
        return last


def _last_line(event: Any) -> int:
    """Return the last line of a scalar or an alias. A block scalar ends at the beginning of the next line."""
    end = event.end_mark
    return int(end.line) if end.column == 0 and end.line > event.start_mark.line else int(end.line) + 1


def find_place(document: Document, field: str) -> Place | None:
    """Return the position of a field that an error message names (`spec.containers[0].image`), or of the innermost
    existing field around it; None for an empty document."""
    path: FieldPath = ()
    steps = _steps(field)
    while steps:
        found = _longest_step(document, path, steps)
        if found is None:
            break
        path, steps = found
    return document.fields.get(path)


def _steps(field: str) -> list[str | int]:
    return [
        plain if plain else int(inner) if inner.isdigit() else inner.strip("'\"")
        for plain, inner in _STEP.findall(field.lstrip("."))
    ]


def _longest_step(
    document: Document, path: FieldPath, steps: Sequence[str | int]
) -> tuple[FieldPath, list[str | int]] | None:
    """Return the path one field further, and the remaining steps. A key may contain dots."""
    for count in range(1, len(steps) + 1):
        parts = steps[:count]
        if count > 1 and not all(isinstance(each, str) for each in parts):
            return None
        key = parts[0] if count == 1 else ".".join(map(str, parts))
        if (*path, key) in document.fields:
            return (*path, key), list(steps[count:])
    return None
