"""Plain values to YAML, in the style of upstream's library: sorted keys, lists not indented, quotes only where a plain
text would mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any

import yaml

from setpoint.meta.yaml_scalar import STR, resolve, shortest

try:
    from yaml import CDumper as _Dumper
except ImportError:  # built without libyaml
    from yaml import Dumper as _Dumper  # type: ignore[assignment]

_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")


def write(value: Any) -> bytes:
    text = yaml.emit(_document(value), Dumper=_Dumper, allow_unicode=True, width=80)
    data: bytes = text.encode() if isinstance(text, str) else text
    # libyaml marks the end of a document whose last text ends with empty lines; upstream's library does not.
    return data.removesuffix(b"...\n") if data.endswith(b"\n...\n") else data


def _document(value: Any) -> Iterator[Any]:
    """Yield the events of a stream with one document. A list of them would be freed in one long call."""
    yield yaml.StreamStartEvent()
    yield yaml.DocumentStartEvent(explicit=False)
    yield from _events(value)
    yield yaml.DocumentEndEvent(explicit=False)
    yield yaml.StreamEndEvent()


def _events(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield yaml.MappingStartEvent(None, None, True, flow_style=not value)
        for key in sorted(value, key=_NATURAL):
            yield _text(key)
            yield from _events(value[key])
        yield yaml.MappingEndEvent()
    elif isinstance(value, list):
        yield yaml.SequenceStartEvent(None, None, True, flow_style=not value)
        for one in value:
            yield from _events(one)
        yield yaml.SequenceEndEvent()
    elif isinstance(value, str):
        yield _text(value)
    else:
        yield yaml.ScalarEvent(None, None, (True, True), _plain(value))


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return str(value)
    return shortest(float(value))


def _text(text: str) -> Any:
    if "\n" in text:
        style = "|"
    elif resolve(text).tag == STR and not _BASE_60.fullmatch(text):
        style = None
    else:
        style = '"'
    return yaml.ScalarEvent(None, None, (True, True), text, style=style)


def _compare(left: str, right: str) -> int:
    """Compare two texts: letters after everything else, runs of digits by their value."""
    for at, (a, b) in enumerate(zip(left, right)):
        if a == b:
            continue
        if a.isalpha() or b.isalpha():
            return (1 if a > b else -1) if a.isalpha() and b.isalpha() else -1 if b.isalpha() else 1
        before = left[:at]
        lead = "1" if "0" in (a, b) and before[len(before.rstrip("0123456789")) :].strip("0") else ""
        a_digits, b_digits = _digits(left[at:]), _digits(right[at:])
        a_value, b_value = int(lead + a_digits or "0"), int(lead + b_digits or "0")
        a_order, b_order = (a_value, len(a_digits), a), (b_value, len(b_digits), b)
        return 1 if a_order > b_order else -1
    return len(left) - len(right)


_NATURAL = cmp_to_key(_compare)


def _digits(text: str) -> str:
    return text[: len(text) - len(text.lstrip("0123456789"))]
