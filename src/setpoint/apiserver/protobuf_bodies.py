"""Decodes protobuf bodies into the plain values that JSON bodies give."""

from __future__ import annotations

from setpoint.apiserver.bodies import unrecognized
from setpoint.kinds.protobuf_numbers import has_protobuf_form, protobuf_fields
from setpoint.kinds.tables import kinds, type_of
from setpoint.meta.errors import BadRequest
from setpoint.meta.objects import Obj
from setpoint.meta.protobuf import Envelope, ProtobufError, open_envelope, read_message
from setpoint.meta.schema import Type

_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def read_protobuf(data: bytes, group: str, version: str, kind: str, type_: Type) -> Obj:
    """Return the object with the apiVersion and kind of the body. It is decoded as that kind; the caller checks whether
    the kind is the right one. Of an unknown kind only kind and apiVersion are returned."""
    try:
        envelope = open_envelope(data)
    except ProtobufError as error:
        raise unrecognized(data, kind, str(error)) from None
    head = _head(envelope)
    given_group, _, given_version = head.get("apiVersion", f"{group}/{version}").rpartition("/")
    given_kind = head.get("kind", kind)
    if (given_group, given_kind) != (group, kind):
        definition = kinds().get(f"{given_group}/{given_version}/{given_kind}".lstrip("/"), "")
        if not has_protobuf_form(definition):
            return head
        type_ = type_of(definition)
    try:
        return read_message(type_, data, envelope.start, envelope.end, protobuf_fields) | head
    except ProtobufError as error:
        raise BadRequest(f'{given_kind} in version "{given_version}" cannot be handled as a {kind}: {error}') from None


def read_protobuf_delete_options(data: bytes) -> Obj:
    """Decode DeleteOptions. Raises ProtobufError."""
    envelope = open_envelope(data)
    head = _head(envelope)
    if head.get("kind", "DeleteOptions") != "DeleteOptions":
        return head
    return read_message(type_of(_DELETE_OPTIONS), data, envelope.start, envelope.end, protobuf_fields) | head


def _head(envelope: Envelope) -> Obj:
    """Return kind and apiVersion; an invalid apiVersion counts as missing."""
    head = {}
    if envelope.api_version and envelope.api_version.count("/") < 2:
        head["apiVersion"] = envelope.api_version
    if envelope.kind:
        head["kind"] = envelope.kind
    return head
