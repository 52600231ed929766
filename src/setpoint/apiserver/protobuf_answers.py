"""Answers in protobuf: objects, lists, watch events and statuses, from the values that JSON answers are made of.

An object is encoded once per revision and version, and its bytes are kept with its entry: lists and watches share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.watch_cache import Entry
from setpoint.apiserver.worker import LARGE
from setpoint.kinds.protobuf_numbers import has_protobuf_form, protobuf_fields
from setpoint.kinds.tables import kinds, type_of
from setpoint.meta.decode import decode
from setpoint.meta.protobuf import open_envelope, read_message
from setpoint.meta.protobuf.writing import sized, write_envelope, write_message

if TYPE_CHECKING:
    from setpoint.apiserver.call import Call
    from setpoint.apiserver.registry import Registry

Obj = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_METADATA = "PartialObjectMetadata"
_LIST_NUMBERS = {"meta.k8s.io/v1beta1": (2, 1)}
"""Field numbers of `metadata` and `items` in a PartialObjectMetadataList, where they are not 1 and 2 as in every other
list."""
_COST_OF_A_BYTE = 100e-9
"""Seconds that it takes to encode one byte of JSON, about."""


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


async def encode_ahead(call: Call, registry: Registry, entries: Sequence[Entry]) -> None:
    """Encode those entries that are not yet, in slices that leave the event loop free for others; large ones beside
    it."""
    encoding, turns, pending = registry.encoding, registry.env.turns, 0
    for entry in entries:
        if encoding.knows_protobuf(entry):
            continue
        size = len(entry.value)
        await call.worker.run(size, encoding.protobuf, entry)
        pending += min(size, LARGE)
        if pending >= LARGE:
            await turns.wait(pending * _COST_OF_A_BYTE)
            pending = 0
