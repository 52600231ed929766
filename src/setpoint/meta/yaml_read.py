"""YAML to the plain values that upstream's YAML-to-JSON conversion gives.

It is built from parser events, so that the result has plain values only, and so that every cost is known in advance:
nesting is bounded, and the expansion of aliases is counted before anything is copied.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import yaml

from setpoint.meta.body import BodyError, jsonable
from setpoint.meta.chunked_json import MAX_DEPTH
from setpoint.meta.decode_report import MAX_STRICT_ENTRIES
from setpoint.meta.goformat import quote
from setpoint.meta.yaml_scalar import (
    BINARY,
    BOOL,
    FLOAT,
    INT,
    MERGE,
    NULL,
    STR,
    TIMESTAMP,
    Resolved,
    resolve,
    shortest,
)

try:
    from yaml.cyaml import CParser as _Parser  # type: ignore[attr-defined]
except ImportError:  # built without libyaml
    from yaml.loader import BaseLoader as _Parser  # type: ignore[assignment]

_PREFIX = "tag:yaml.org,2002:"
_RESOLVABLE = {STR, BOOL, INT, FLOAT, NULL, TIMESTAMP}
_MAX_ALIASED = 100_000
"""Maximum number of nodes that aliases may add; upstream's limit grows with the document, to 400,000."""
_MAX_ALIASED_TEXT = 3 * 1024 * 1024
"""Maximum number of characters that aliases may add: the size of a request body. Upstream has no limit."""
_MAX_RESOLVED_LENGTH = 4096
"""Maximum number of characters of a number, a date or another scalar that is no string; longer ones are strings."""
_MAX_NODES = 250_000
"""Maximum number of keys and values, about a second's work. Upstream has no limit; JSON is faster for such sizes."""


_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


class _Invalid(BodyError):
    def __init__(self, message: str) -> None:
        super().__init__(f"yaml: {message}")


def read(data: bytes, *, modern: bool = False) -> tuple[Any, list[str]]:
    """Parse YAML. With `modern`, as in YAML 1.2, yes, no, on, off, y and n are strings, and dates are times."""
    try:
        reader = _Reader(_Parser(_ChunkedFile(data or b"\n")), _modern_scalar if modern else _scalar)
        value = reader.document()
    except yaml.YAMLError as error:
        raise _Invalid(_explain(error)) from None
    value = jsonable(value, _key_text)
    if reader.repeated:
        return value, ["yaml: unmarshal errors:" + "".join(f"\n  {line}" for line in reader.repeated)]
    return value, []


class _ChunkedFile:
    """A body as a file: the parser reads it in chunks, and other threads may run in between."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        start = self._at
        self._at = len(self._data) if size < 0 else start + size
        return self._data[start : self._at]


def _explain(error: yaml.YAMLError) -> str:
    """Return the parser's error with the line number that upstream's port of the same parser reports."""
    if isinstance(error, yaml.reader.ReaderError):
        return str(error.reason)
    if not isinstance(error, yaml.MarkedYAMLError):
        return "unknown problem parsing YAML content"
    line = error.problem_mark.line if error.problem_mark else 0
    if line:
        line += isinstance(error, yaml.scanner.ScannerError)
    elif error.context_mark:
        line = error.context_mark.line
    return f"line {line}: {error.problem}" if line else str(error.problem)


class _Node:
    """A value with the information that aliases and merges need."""

    __slots__ = ("is_map", "line", "size", "text", "value")

    def __init__(self, value: Any, size: int, text: int, line: int, is_map: bool = False) -> None:
        self.value, self.size, self.text, self.line, self.is_map = value, size, text, line, is_map


class _Reader:
    def __init__(self, parser: Any, scalar: Callable[[Any], Any]) -> None:
        self.next = parser.get_event
        self.scalar = scalar
        self.anchors: dict[str, _Node | None] = {}
        """Anchored values by name; None while the value is still being read."""
        self.read = 0
        self.aliased = 0
        self.aliased_text = 0
        self.repeated: list[str] = []

    def document(self) -> Any:
        self.next()  # start of the stream
        if isinstance(self.next(), yaml.StreamEndEvent):
            return None
        return self.node(self.next(), 0).value

    def node(self, event: Any, depth: int) -> _Node:
        self.read += 1
        if self.read - self.aliased > _MAX_NODES:
            raise _Invalid("document contains too many nodes")
        if event.__class__ is yaml.AliasEvent:
            return self.alias(event)
        if depth > MAX_DEPTH:
            raise _Invalid(f"line {event.start_mark.line + 1}: exceeded max depth of {MAX_DEPTH}")
        if event.anchor:
            self.anchors[event.anchor] = None
        if event.__class__ is yaml.ScalarEvent:
            node = _Node(self.scalar(event), 1, len(event.value), _line(event))
        elif event.__class__ is yaml.SequenceStartEvent:
            node = self.sequence(event, depth)
        else:
            node = self.mapping(event, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: Any) -> _Node:
        if event.anchor not in self.anchors:
            raise _Invalid(f"unknown anchor '{event.anchor}' referenced")
        node = self.anchors[event.anchor]
        if node is None:
            raise _Invalid(f"anchor '{event.anchor}' value contains itself")
        self.read += node.size
        self.aliased += node.size
        self.aliased_text += node.text
        mostly = self.aliased > 100 and self.read > 1000 and self.aliased > 0.99 * self.read
        if mostly or self.aliased > _MAX_ALIASED or self.aliased_text > _MAX_ALIASED_TEXT:
            raise _Invalid("document contains excessive aliasing")
        return _Node(_copy(node.value), node.size + 1, node.text, event.start_mark.line, node.is_map)

    def sequence(self, event: Any, depth: int) -> _Node:
        nodes = self.items(depth)
        size, text = 1 + sum(node.size for node in nodes), sum(node.text for node in nodes)
        return _Node([node.value for node in nodes], size, text, event.start_mark.line)

    def items(self, depth: int) -> list[_Node]:
        nodes = []
        while not isinstance(event := self.next(), yaml.SequenceEndEvent):
            nodes.append(self.node(event, depth + 1))
        return nodes

    def mapping(self, event: Any, depth: int) -> _Node:
        out: dict[Any, Any] = {}
        size, text = 1, 0
        while not isinstance(key_event := self.next(), yaml.MappingEndEvent):
            if _is_merge(key_event):
                merged_size, merged_text = self.merge(out, depth)
                size, text = size + merged_size, text + merged_text
                continue
            key, value_event = self.node(key_event, depth + 1), self.next()
            if isinstance(key.value, dict | list):
                raise _Invalid(f"invalid map key: {_go_syntax(key.value)}")
            value = self.node(value_event, depth + 1)
            self.put(out, key.value, value.value, value.line)
            size += key.size + value.size
            text += key.text + value.text
        return _Node(out, size, text, event.start_mark.line, is_map=True)

    def put(self, out: dict[Any, Any], key: Any, value: Any, line: int) -> None:
        key = _Key(key) if key.__class__ is not str else key
        if key in out and len(self.repeated) < MAX_STRICT_ENTRIES:
            self.repeated.append(f"line {line + 1}: key {_go_syntax(key)} already set in map")
        out[key] = value

    def merge(self, out: dict[Any, Any], depth: int) -> tuple[int, int]:
        """Merge a mapping: merged entries override those before and are overridden by those after."""
        event = self.next()
        if isinstance(event, yaml.SequenceStartEvent):
            nodes = self.items(depth + 1)
        else:
            nodes = [self.node(event, depth + 1)]
        for node in reversed(nodes):
            if not node.is_map:
                raise _Invalid("map merge requires map or sequence of maps as the value")
            for key, value in node.value.items():
                self.put(out, key, value, node.line)
        return sum(node.size for node in nodes), sum(node.text for node in nodes)


class _Key:
    """A key that is not a string: 1, 1.0 and true are three keys, which Python would consider equal."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, _Key) else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and type(other.value) is type(self.value) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


def _line(event: Any) -> int:
    return int(event.start_mark.line)


def _is_merge(event: Any) -> bool:
    return (
        isinstance(event, yaml.ScalarEvent)
        and event.value == "<<"
        and (event.implicit[0] or event.tag == _PREFIX + MERGE[2:])
    )


def _scalar(event: Any) -> Any:
    tag = event.tag
    if len(event.value) > _MAX_RESOLVED_LENGTH and (not tag or tag in _RESOLVABLE):
        return event.value
    if not tag:
        return resolve(event.value).value if event.implicit[0] else event.value
    tag = "!!" + tag.removeprefix(_PREFIX) if tag.startswith(_PREFIX) else tag
    if tag == BINARY:
        try:
            return b64decode(event.value, validate=False).decode(errors="replace")
        except ValueError:
            raise _Invalid("!!binary value contains invalid base64 data") from None
    if tag not in _RESOLVABLE or tag == STR:
        return event.value
    found = resolve(event.value)
    if tag == FLOAT and found.tag == INT:
        found = Resolved(FLOAT, float(found.value))
    if found.tag != tag:
        raise _Invalid(f"cannot decode {found.tag} `{event.value}` as a {tag}")
    return found.value


def _modern_scalar(event: Any) -> Any:
    value = _scalar(event)
    if event.tag or not event.implicit[0]:
        return value
    if isinstance(value, bool) and event.value.lower() not in ("true", "false"):
        return event.value
    if isinstance(value, str) and _DATE.fullmatch(value):
        return f"{value}T00:00:00Z"
    return value


def _copy(value: Any) -> Any:
    if value.__class__ is dict:
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if value.__class__ is list else value


def _key_text(of: Any, value: Any) -> str:
    """Return the text of a key that is no string, as upstream has it in JSON."""
    key = of.value
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int) and key < 2**63:
        return str(key)
    if isinstance(key, float):
        return shortest(key, 32)
    kind = "%!s(<nil>)" if key is None else "uint64"
    shown = "<nil>" if key is None else f"{key:#x}"
    raise BodyError(f"unsupported map key of type: {kind}, key: {shown}, value: {_go_syntax(value)}")


def _go_syntax(value: Any) -> str:
    """Return Go's %#v."""
    if isinstance(value, _Key):
        value = value.value
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, dict):
        pairs = ", ".join(f"{_go_syntax(key)}:{_go_syntax(one)}" for key, one in value.items())
        return f"map[interface {{}}]interface {{}}{{{pairs}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_go_syntax(one) for one in value)}}}"
    return str(value)
