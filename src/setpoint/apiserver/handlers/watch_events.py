"""The forms in which a watch sends events: HTTP chunks in JSON or protobuf, or objects to clients in the process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.negotiate import PROTOBUF, Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.rendering import column_definitions, columns_of, encode_value, partial, table_row
from setpoint.apiserver.shared_watches import FrameEncoder
from setpoint.apiserver.watch_cache import Change
from setpoint.meta.errors import ApiError
from setpoint.meta.protobuf.writing import write_watch_event
from setpoint.wire.message import EventWriter, StreamWriter


class EventSink(Protocol):
    """Sends the events of one stream."""

    def send(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        """Send an event. If there is a `change`, other streams may share its encoding."""
        ...

    def send_error(self, error: ApiError) -> None: ...


class ChunkSink:
    """Sends events as HTTP chunks, which all streams of one form share."""

    def __init__(
        self, registry: Registry, form: Form, include: str, now: Callable[[], datetime], writer: StreamWriter
    ) -> None:
        """`now` returns the time to which the ages in rows of a table refer."""
        self._writer = writer
        self._protobuf = form.media_type == PROTOBUF
        made = _protobuf_encoder(registry, form) if self._protobuf else _encoder(registry, form, include, now)
        self.encoder = FrameEncoder(*made)

    def send(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        if change is not None and self.encoder.form:
            self._writer.write_chunks(self.encoder.frame(kind, entry, change))
        else:
            self._writer.write(self.encoder.event(kind, entry))

    def send_error(self, error: ApiError) -> None:
        if self._protobuf:
            self._writer.write(write_watch_event("ERROR", encode_value(error.status()) or b""))
        else:
            self._writer.write(b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.status()))


class ObjectSink:
    """Sends events as objects, which all clients in the process share."""

    def __init__(self, registry: Registry, form: Form, writer: EventWriter) -> None:
        self._writer = writer
        if form.transform:
            self._form: Callable[[Entry], dict[str, Any]] = lambda entry: partial(registry, entry, form)
        else:
            self._form = registry.encoding.shared

    def send(self, kind: str, entry: Entry, change: Change | None = None) -> None:
        self._writer.event(kind, self._form(entry), entry.size)

    def send_error(self, error: ApiError) -> None:
        self._writer.event("ERROR", error.status(), 0)


def _protobuf_encoder(registry: Registry, form: Form) -> tuple[Callable[[str, Entry], bytes], str]:
    """Return the same as `_encoder` for events in protobuf, which has no tables."""
    encoding = registry.encoding
    if not form.transform:
        return lambda kind, entry: write_watch_event(kind, encoding.protobuf_single(entry)), encoding.form + "#protobuf"

    def metadata_only(kind: str, entry: Entry) -> bytes:
        return write_watch_event(kind, encode_value(partial(registry, entry, form)) or b"")

    return metadata_only, f"{encoding.form}#metadata#{form.meta_version}#protobuf"


def _encoder(
    registry: Registry, form: Form, include: str, now: Callable[[], datetime]
) -> tuple[Callable[[str, Entry], bytes], str]:
    """Return a function that encodes one event, and the key under which streams share the bytes; empty: not shared."""
    encoding = registry.encoding

    def wrap(kind: str, obj: bytes) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), obj)

    if not form.transform:
        return lambda kind, entry: wrap(kind, encoding.single(entry)), encoding.form
    if form.transform.startswith("PartialObjectMetadata"):

        def metadata_only(kind: str, entry: Entry) -> bytes:
            return wrap(kind, orjson.dumps(partial(registry, entry, form)))

        return metadata_only, f"{encoding.form}#metadata#{form.meta_version}"
    columns = columns_of(registry)
    first = True

    def table(kind: str, entry: Entry) -> bytes:
        # Only the first event of a stream defines the columns. Rows are not shared because they contain ages.
        nonlocal first
        definitions = column_definitions(columns) if first else None
        first = False
        body = {
            "kind": "Table",
            "apiVersion": form.meta_version,
            "metadata": {"resourceVersion": str(entry.revision)},
            "columnDefinitions": definitions,
            "rows": [table_row(now(), form, registry, entry, include, columns)],
        }
        return wrap(kind, orjson.dumps(body))

    return table, ""
