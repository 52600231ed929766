"""Responses: objects, lists and tables in the negotiated form.

An object is encoded as protobuf once per revision and version, and its entry caches the bytes: lists and watches share
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import orjson

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.encoding import ListBody
from setpoint.apiserver.negotiate import JSON, PROTOBUF, YAML, Form
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.worker import LARGE
from setpoint.kinds.protobuf_numbers import has_protobuf_form, protobuf_fields
from setpoint.kinds.strategy import Column
from setpoint.kinds.tables import kinds, type_of
from setpoint.meta import chunked_json
from setpoint.meta.decode import decode
from setpoint.meta.errors import ApiError, BadRequest, NotAcceptable
from setpoint.meta.field import invalid
from setpoint.meta.objects import Obj
from setpoint.meta.protobuf import open_envelope, read_message
from setpoint.meta.protobuf.writing import sized, write_envelope, write_message
from setpoint.wire.message import Answer, ObjectRequest, ObjectResponse, Response

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_METADATA = "PartialObjectMetadata"
_LIST_NUMBERS = {"meta.k8s.io/v1beta1": (2, 1)}
"""Field numbers of `metadata` and `items` in a PartialObjectMetadataList, where they are not 1 and 2 as in every other
list."""
_SECONDS_PER_BYTE = 100e-9
"""Approximate time in seconds to encode one byte of JSON."""


def encode_value(value: Obj) -> bytes | None:
    """Return an object that has a kind and an apiVersion as a whole body; None if it has no protobuf form."""
    kind, api_version = value.get("kind", ""), value.get("apiVersion", "")
    if api_version.startswith("meta.k8s.io/"):
        return _encode_partial(value, kind, api_version)
    definition = kinds().get(f"{api_version}/{kind}", "")
    if not has_protobuf_form(definition):
        return None
    return write_envelope(api_version, kind, write_message(type_of(definition), value, protobuf_fields))


def _encode_partial(value: Obj, kind: str, api_version: str) -> bytes | None:
    if kind == _METADATA:
        return write_envelope(api_version, kind, encode_metadata(value["metadata"]))
    if kind != f"{_METADATA}List":
        return None
    items = [encode_metadata(item["metadata"]) for item in value["items"] or ()]
    return encode_list(api_version, kind, value["metadata"], items)


def encode_metadata(meta: Obj) -> bytes:
    """Return the message of a PartialObjectMetadata."""
    return sized(1, write_message(type_of(_META + "ObjectMeta"), meta, protobuf_fields))


def encode_list(api_version: str, kind: str, meta: Obj, items: Sequence[bytes]) -> bytes:
    """Return a list of encoded messages as a whole body."""
    metadata, item = _LIST_NUMBERS.get(api_version, (1, 2))
    content = [sized(metadata, write_message(type_of(_META + "ListMeta"), meta, protobuf_fields))]
    content += [sized(item, each) for each in items]
    return write_envelope(api_version, kind, b"".join(content))


def decode_value(body: bytes) -> Obj:
    """Return the object in a body that `encode_value` or `encode_list` made; empty for partial objects."""
    envelope = open_envelope(body)
    kind, api_version = envelope.kind, envelope.api_version
    definition = kinds().get(f"{api_version}/{kind}", "")
    if not has_protobuf_form(definition):
        return {}
    type_ = type_of(definition)
    read = read_message(type_, body, envelope.start, envelope.end, protobuf_fields)
    return {"kind": kind, "apiVersion": api_version, **decode(type_, read)}


async def encode_ahead(ctx: RequestContext, registry: Registry, entries: Sequence[Entry]) -> None:
    """Encode the entries that are not encoded yet, in slices of the event loop; large ones on a worker thread."""
    encoding, slicer, pending = registry.encoding, registry.env.slicer, 0
    for entry in entries:
        if encoding.knows_protobuf(entry):
            continue
        size = entry.size
        await ctx.worker.run(size, encoding.protobuf, entry)
        pending += min(size, LARGE)
        if pending >= LARGE:
            await slicer.wait(pending * _SECONDS_PER_BYTE)
            pending = 0


R = TypeVar("R")
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
    """Return a response in the negotiated form. `body` is JSON, whole or in pieces; it remains JSON if there is no
    protobuf form."""
    if form.media_type == JSON and not form.pretty:
        return Response(status, body, [("Content-Type", JSON)])
    if not isinstance(body, bytes):
        body = b"".join(body)
    if form.media_type == YAML:
        from setpoint.meta.body import dump_yaml  # YAML is rare and its library slow to load

        return Response(status, dump_yaml(chunked_json.read(body)), [("Content-Type", YAML)])
    if form.media_type == PROTOBUF:
        encoded = encode_value(chunked_json.read(body))
        if encoded is not None:
            return Response(status, encoded, [("Content-Type", PROTOBUF)])
    elif form.pretty:
        body = orjson.dumps(chunked_json.read(body), option=orjson.OPT_INDENT_2)
    return Response(status, body, [("Content-Type", JSON)])


async def respond_converted(
    ctx: RequestContext, form: Form, body: bytes | Sequence[bytes], status: int = 200
) -> Response:
    """Return the same as `respond`, but convert a large body on a worker thread."""
    if form.media_type == JSON and not form.pretty:
        return respond(form, body, status)
    whole = body if isinstance(body, bytes) else b"".join(body)
    return await ctx.worker.run(len(whole), respond, form, whole, status)


def respond_value(ctx: RequestContext, form: Form, value: Obj, status: int = 200) -> Answer:
    if isinstance(ctx.request, ObjectRequest) and form.media_type == JSON:
        return ObjectResponse(status, value)
    return respond(form, orjson.dumps(value) + b"\n", status)


def respond_error(ctx: RequestContext, form: Form, error: ApiError) -> Answer:
    if not isinstance(ctx.request, ObjectRequest):
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


async def respond_object(
    ctx: RequestContext, form: Form, registry: Registry, entry: Entry, status: int = 200
) -> Answer:
    if isinstance(ctx.request, ObjectRequest) and form.media_type == JSON:
        value = object_of(registry, entry, form)
        if value is not None:
            return ObjectResponse(status, value)
    if not form.transform:
        if form.media_type == PROTOBUF:
            await encode_ahead(ctx, registry, (entry,))
            return Response(status, registry.encoding.protobuf_single(entry), [("Content-Type", PROTOBUF)])
        return await respond_converted(ctx, form, registry.encoding.body(entry), status)
    if form.transform == "Table":
        meta = {"resourceVersion": str(entry.revision)}
        return respond(form, orjson.dumps(table(ctx, form, registry, [entry], meta, single=True)), status)
    if form.transform == "PartialObjectMetadata":
        return respond(form, orjson.dumps(partial(registry, entry, form)) + b"\n", status)
    raise NotAcceptable(
        f"you requested {form.transform}, but the requested object is not a list "
        f"({_go_type(registry, registry.resource.kind)})"
    )


async def respond_list(
    ctx: RequestContext,
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
    return await respond_listed(ctx, form, registry, entries, meta)


async def respond_listed(
    ctx: RequestContext, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj
) -> Answer:
    """Return a list with this metadata."""
    if isinstance(ctx.request, ObjectRequest) and form.media_type == JSON and form.transform != "Table":
        return ObjectResponse(200, _listed_objects(registry, entries, meta, form))
    if not form.transform:
        encoding = registry.encoding
        if form.media_type == PROTOBUF:
            await encode_ahead(ctx, registry, entries)
            items = [encoding.protobuf(entry) for entry in entries]
            body = encode_list(registry.resource.api_version, registry.resource.list_kind, meta, items)
            return Response(200, body, [("Content-Type", PROTOBUF)])
        return await respond_converted(ctx, form, encoding.list(encoding.items(entries), meta))
    if form.transform == "Table":
        return await _respond_table(ctx, form, registry, entries, meta)
    if form.transform == "PartialObjectMetadataList":
        return await _respond_partial_list(ctx, form, registry, entries, meta)
    raise NotAcceptable(
        f"you requested {form.transform}, but the requested object is a list "
        f"({_go_type(registry, registry.resource.list_kind)})"
    )


def object_of(registry: Registry, entry: Entry, form: Form) -> Obj | None:
    """Return the object in this form for clients in the process, or None if there is no such form."""
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
    """Return the Go type in which upstream holds the object."""
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
    """Return the stored metadata, without what the conversion to a version adds, as upstream does."""
    meta: Obj = entry.obj["metadata"]
    annotations = meta.get("annotations")
    if not annotations or not meta.get("name"):  # a bookmark has no name, and must not load the rules of its kind
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
    """Return the columns of a table; a column without a name is an additional cell of the rows."""
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


def include_object(ctx: RequestContext) -> str:
    """Return which part of an object its table row contains."""
    wanted = ctx.option("includeObject")
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
    ctx: RequestContext, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj, *, single: bool = False
) -> Obj:
    include, columns = include_object(ctx), columns_of(registry, () if single else entries)
    rows = [table_row(ctx.now, form, registry, entry, include, columns) for entry in _in_order(registry, entries)]
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
    """Return the entries in the order of the kind's tables."""
    if len(entries) < 2:
        return entries
    by_identity = {id(registry.encoding.obj(entry)): entry for entry in entries}
    ordered = registry.strategy.sorted_for_table([registry.encoding.obj(entry) for entry in entries])
    return [by_identity[id(obj)] for obj in ordered]


LARGE_ENTRY = 64 * 1024
"""Bytes of an entry from which on it is decoded on a worker thread."""
_ROWS = 32
"""Number of rows between two checks of the budget of the loop slice."""
_ROWS_COST = 0.0002
"""Approximate time in seconds for so many rows."""


async def _map_in_steps(
    ctx: RequestContext, registry: Registry, entries: Sequence[Entry], function: Callable[[Entry], R]
) -> list[R]:
    """Return the function's results, made a few at a time, of large entries on a worker thread."""
    slicer = registry.env.slicer
    found: list[R] = []
    for number, entry in enumerate(entries):
        size = entry.size
        found.append(function(entry) if size < LARGE_ENTRY else await ctx.worker.run(size, function, entry))
        if not number % _ROWS and slicer.over_budget():
            await slicer.wait(_ROWS_COST)
    return found


async def _respond_partial_list(
    ctx: RequestContext, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj
) -> Answer:
    """Return the metadata of the objects in a list."""
    listed = {"kind": "PartialObjectMetadataList", "apiVersion": form.meta_version, "metadata": meta}
    if not entries:
        return await respond_converted(ctx, form, orjson.dumps({**listed, "items": None}) + b"\n")
    items = await _map_in_steps(ctx, registry, entries, lambda entry: orjson.dumps(partial(registry, entry, form)))
    head = orjson.dumps(listed)[:-1] + b',"items":['
    return await respond_converted(ctx, form, ListBody(head, items, b"]}\n"))


async def _respond_table(
    ctx: RequestContext, form: Form, registry: Registry, entries: Sequence[Entry], meta: Obj
) -> Answer:
    """Return a list as a table."""
    await _map_in_steps(ctx, registry, entries, registry.encoding.obj)
    include, columns = include_object(ctx), columns_of(registry, entries)

    def row(entry: Entry) -> bytes:
        return orjson.dumps(table_row(ctx.now, form, registry, entry, include, columns))

    rows = await _map_in_steps(ctx, registry, _in_order(registry, entries), row)
    head, _, tail = orjson.dumps(_table(form, columns, meta, [])).rpartition(b"]")
    return await respond_converted(ctx, form, ListBody(head, rows, b"]" + tail))
