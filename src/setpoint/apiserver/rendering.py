"""Answers: objects, lists and tables in the form the client asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from setpoint.apiserver.call import Call
from setpoint.apiserver.http.message import Answer, ObjectRequest, ObjectResponse, Response
from setpoint.apiserver.listing import Listing
from setpoint.apiserver.negotiate import JSON, PROTOBUF, YAML, Form
from setpoint.apiserver.protobuf_answers import encode_ahead, encode_list, encode_value
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.kinds.strategy import Column
from setpoint.meta.errors import ApiError, BadRequest, NotAcceptable
from setpoint.meta.field import invalid

TRANSFORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})

_DEFAULT_COLUMNS = (
    Column("Name", lambda obj, _: obj["metadata"].get("name", ""), format="name", description="Name of the object"),
    Column(
        "Created At",
        lambda obj, _: obj["metadata"].get("creationTimestamp", ""),
        type="date",
        description="When the object was made",
    ),
)


def respond(form: Form, body: bytes | Sequence[bytes], status: int = 200) -> Response:
    """Return JSON bytes, whole or in pieces, as an answer in the wanted form; indented if asked. What has no protobuf
    form is answered in JSON."""
    if form.media_type == JSON and not form.pretty:
        return Response(status, body, [("Content-Type", JSON)])
    if not isinstance(body, bytes):
        body = b"".join(body)
    if form.media_type == YAML:
        from setpoint.meta.body import dump_yaml  # YAML is rare and its library slow to load

        return Response(status, dump_yaml(orjson.loads(body)), [("Content-Type", YAML)])
    if form.media_type == PROTOBUF:
        encoded = encode_value(orjson.loads(body))
        if encoded is not None:
            return Response(status, encoded, [("Content-Type", PROTOBUF)])
    elif form.pretty:
        body = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
    return Response(status, body, [("Content-Type", JSON)])


async def respond_converted(call: Call, form: Form, body: bytes | Sequence[bytes], status: int = 200) -> Response:
    """Answer like `respond`, but convert a large body on a worker thread."""
    if form.media_type == JSON and not form.pretty:
        return respond(form, body, status)
    whole = body if isinstance(body, bytes) else b"".join(body)
    return await call.worker.run(len(whole), respond, form, whole, status)


def respond_value(call: Call, form: Form, value: Obj, status: int = 200) -> Answer:
    if isinstance(call.request, ObjectRequest) and form.media_type == JSON:
        return ObjectResponse(status, value)
    return respond(form, orjson.dumps(value) + b"\n", status)


def respond_error(call: Call, form: Form, error: ApiError) -> Answer:
    if not isinstance(call.request, ObjectRequest):
        return respond_status(form, error)
    response = ObjectResponse(error.code, error.status())
    if error.retry_after:
        response.headers.append(("Retry-After", str(error.retry_after)))
    return response


def respond_status(form: Form, error: ApiError) -> Response:
    response = respond(form, orjson.dumps(error.status()) + b"\n", error.code)
    if error.retry_after:
        response.headers.append(("Retry-After", str(error.retry_after)))
    return response


async def respond_object(call: Call, form: Form, registry: Registry, entry: Entry, status: int = 200) -> Answer:
    if isinstance(call.request, ObjectRequest) and form.media_type == JSON:
        value = object_of(registry, entry, form)
        if value is not None:
            return ObjectResponse(status, value)
    if not form.transform:
        if form.media_type == PROTOBUF:
            await encode_ahead(call, registry, (entry,))
            return Response(status, registry.encoding.protobuf_single(entry), [("Content-Type", PROTOBUF)])
        return await respond_converted(call, form, registry.encoding.single(entry) + b"\n", status)
    if form.transform == "Table":
        meta = {"resourceVersion": str(entry.revision)}
        return respond(form, orjson.dumps(table(call, form, registry, [entry], meta, single=True)), status)
    if form.transform == "PartialObjectMetadata":
        return respond(form, orjson.dumps(partial(registry, entry, form)) + b"\n", status)
    raise NotAcceptable(
        f"you requested {form.transform}, but the requested object is not a list "
        f"({_go_type(registry, registry.resource.kind)})"
    )


async def respond_list(
    call: Call,
    form: Form,
    registry: Registry,
    entries: Sequence[Entry],
    revision: int,
    continue_token: str = "",
    remaining: int | None = None,
) -> Answer:
    meta: Obj = {"resourceVersion": str(revision)}
    if continue_token:
        meta["continue"] = continue_token
    if remaining is not None:
        meta["remainingItemCount"] = remaining
    return await respond_listed(call, form, registry, entries, meta)


async def respond_listed(call: Call, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj) -> Answer:
    """A list with this metadata."""
    if isinstance(call.request, ObjectRequest) and form.media_type == JSON and form.transform != "Table":
        return ObjectResponse(200, _listed_objects(registry, entries, meta, form))
    if not form.transform:
        encoding = registry.encoding
        if form.media_type == PROTOBUF:
            await encode_ahead(call, registry, entries)
            items = [encoding.protobuf(entry) for entry in entries]
            body = encode_list(registry.resource.api_version, registry.resource.list_kind, meta, items)
            return Response(200, body, [("Content-Type", PROTOBUF)])
        return await respond_converted(call, form, encoding.list(encoding.items(entries), meta))
    if form.transform == "Table":
        return await _respond_table(call, form, registry, entries, meta)
    if form.transform == "PartialObjectMetadataList":
        partials = [partial(registry, entry, form) for entry in entries]
        listed = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": form.meta_version,
            "metadata": meta,
            "items": partials or None,
        }
        return await respond_converted(call, form, orjson.dumps(listed) + b"\n")
    raise NotAcceptable(
        f"you requested {form.transform}, but the requested object is a list "
        f"({_go_type(registry, registry.resource.list_kind)})"
    )


def object_of(registry: Registry, entry: Entry, form: Form) -> Obj | None:
    """The object in this form as it is shared within the process; None: there it has no such form."""
    if not form.transform:
        return registry.encoding.shared(entry)
    return partial(registry, entry, form) if form.transform == "PartialObjectMetadata" else None


def _listed_objects(registry: Registry, entries: Sequence[Entry], meta: Obj, form: Form) -> Obj:
    if form.transform:
        kind, api_version = "PartialObjectMetadataList", form.meta_version
        items = [partial(registry, entry, form) for entry in entries]
    else:
        kind, api_version = registry.resource.list_kind, registry.resource.api_version
        items = [registry.encoding.shared(entry) for entry in entries]
    return {"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items}


def _go_type(registry: Registry, kind: str) -> str:
    """What upstream holds such an object in."""
    resource = registry.resource
    if resource.is_custom:
        return "*unstructured.Unstructured" + ("List" if kind == resource.list_kind else "")
    return f"*{resource.group.split('.')[0] or 'core'}.{kind}"


def partial(registry: Registry, entry: Entry, form: Form) -> Obj:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": form.meta_version,
        "metadata": _internal_metadata(registry, entry),
    }


def _internal_metadata(registry: Registry, entry: Entry) -> Obj:
    """As stored: upstream takes it from its internal type, without what conversion to a version adds."""
    meta: Obj = entry.obj["metadata"]
    annotations = meta.get("annotations")
    if not annotations:
        return meta
    hidden = registry.strategy.hidden_annotations
    if hidden and not hidden.isdisjoint(annotations):
        shown = {name: value for name, value in annotations.items() if name not in hidden}
        meta = {
            name: value if name != "annotations" else shown
            for name, value in meta.items()
            if name != "annotations" or shown
        }
    return meta


def columns_of(registry: Registry, entries: Sequence[Entry] = ()) -> Sequence[Column]:
    """A column without a name is a cell that rows have beyond the columns."""
    if entries:
        return registry.strategy.columns_of([registry.encoding.obj(entry) for entry in entries]) or _DEFAULT_COLUMNS
    return registry.strategy.columns or _DEFAULT_COLUMNS


def column_definitions(columns: Sequence[Column]) -> list[Obj]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
        if column.name
    ]


def include_object(call: Call) -> str:
    """Which part of each object goes along in its table row."""
    wanted = call.option("includeObject")
    if wanted not in ("", "None", "Metadata", "Object"):
        why = invalid("includeObject", wanted, "must be 'Metadata', 'Object', 'None', or empty")
        raise BadRequest(f"Unable to convert to Table as requested: {why.message()}")
    return wanted or "Metadata"


def table_row(
    now: datetime, form: Form, registry: Registry, entry: Entry, include: str, columns: Sequence[Column]
) -> Obj:
    obj = registry.encoding.obj(entry)
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in columns]}
    conditions = registry.strategy.row_conditions(obj)
    if conditions:
        row["conditions"] = conditions
    if include == "Object":
        row["object"] = orjson.Fragment(registry.encoding.single(entry))
    elif include == "Metadata":
        row["object"] = partial(registry, entry, form)
    else:
        row["object"] = None
    return row


def table(
    call: Call, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj, *, single: bool = False
) -> Obj:
    include, columns = include_object(call), columns_of(registry, () if single else entries)
    rows = [table_row(call.now, form, registry, entry, include, columns) for entry in _in_order(registry, entries)]
    return _table(form, columns, meta, rows)


def _table(form: Form, columns: Sequence[Column], meta: Obj, rows: list[Obj]) -> Obj:
    return {
        "kind": "Table",
        "apiVersion": form.meta_version,
        "metadata": meta,
        "columnDefinitions": column_definitions(columns),
        "rows": rows,
    }


def _in_order(registry: Registry, entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries as the kind orders them in a table."""
    if len(entries) < 2:
        return entries
    by_identity = {id(registry.encoding.obj(entry)): entry for entry in entries}
    ordered = registry.strategy.sorted_for_table([registry.encoding.obj(entry) for entry in entries])
    return [by_identity[id(obj)] for obj in ordered]


_ROWS = 32
"""Rows that are made before it is asked whether others should have their turn."""
_ROWS_COST = 0.0002
"""Seconds that so many take, about."""


async def _respond_table(call: Call, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj) -> Answer:
    """Return a list as a table, made a few rows at a time: others have their turn in between."""
    turns = registry.env.turns
    for number, entry in enumerate(entries):
        registry.encoding.obj(entry)
        if not number % _ROWS and turns.long():
            await turns.wait(_ROWS_COST)
    include, columns = include_object(call), columns_of(registry, entries)
    rows: list[bytes] = []
    for number, entry in enumerate(_in_order(registry, entries)):
        rows.append(orjson.dumps(table_row(call.now, form, registry, entry, include, columns)))
        if not number % _ROWS and turns.long():
            await turns.wait(_ROWS_COST)
    head, _, tail = orjson.dumps(_table(form, columns, meta, [])).rpartition(b"]")
    return await respond_converted(call, form, Listing(head, rows, b"]" + tail))
