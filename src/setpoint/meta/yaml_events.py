"""Plain values to YAML by libyaml, for `yaml_write`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from setpoint.meta.yaml_write import natural_order, plain, scalar_style

try:
    from yaml import CDumper as _Dumper
except ImportError:  # built without libyaml
    from yaml import Dumper as _Dumper  # type: ignore[assignment]


def emit(value: Any) -> bytes:
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
        for key in natural_order(value):
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
        yield yaml.ScalarEvent(None, None, (True, True), plain(value))


def _text(text: str) -> Any:
    return yaml.ScalarEvent(None, None, (True, True), text, style=scalar_style(text) or None)
