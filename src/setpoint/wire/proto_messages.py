"""Protobuf classes that are made from a table, for the messages of a gRPC API that a client uses.

A line of a table is `Message: field number type, ...`; a line that ends with a backslash continues on the next one. A
type is a scalar of protobuf, the name of a message of the table, either of them with `*` for a repeated field, or
`key>value` for a map. Enumerations are declared as int32, which has the same encoding, and so are the alternatives of a
`oneof`: at most one of them is ever set. Fields that a table does not have are skipped when a message is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "double": _FIELD.TYPE_DOUBLE,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "fixed64": _FIELD.TYPE_FIXED64,
    "bool": _FIELD.TYPE_BOOL,
    "bytes": _FIELD.TYPE_BYTES,
    "string": _FIELD.TYPE_STRING,
}


class TableField(NamedTuple):
    """A field of a message in a table."""

    name: str
    number: int
    type: str
    """The type of the field, or of its elements, or of the values of a map."""
    repeated: bool = False
    key: str = ""
    """The type of a map's keys; empty for a field that is no map."""


def parse_table(table: str) -> Iterator[tuple[str, list[TableField]]]:
    """Yield the name and the fields of each message of a table. Raise ValueError if a line is malformed."""
    for line in filter(None, table.replace("\\\n", "").split("\n")):
        name, colon, fields = line.partition(":")
        if not colon:
            raise ValueError(f"a line of the table has no colon: {line!r}")
        yield name, [_parse_field(*one.split()) for one in fields.split(",") if one.strip()]


def message_classes(package: str, table: str) -> dict[str, Any]:
    """Return the classes of a table's messages by name. `package` qualifies the names of their descriptors."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in parse_table(table):
        message = file.message_type.add(name=name)
        for field in fields:
            added = message.field.add(name=field.name, number=field.number)
            added.label = _FIELD.LABEL_REPEATED if field.repeated or field.key else _FIELD.LABEL_OPTIONAL
            if field.key:
                entry = message.nested_type.add(name=_entry_name(field.name))
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_SCALARS[field.key])
                _set_type(entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL), field.type, package)
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{name}.{entry.name}"
            else:
                _set_type(added, field.type, package)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


def decode(message_class: Any, data: bytes) -> Any:
    """Return the message that `data` encodes. Raise ValueError if it is malformed."""
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _parse_field(name: str, number: str, kind: str) -> TableField:
    repeated, kind = kind.endswith("*"), kind.removesuffix("*")
    key, separator, value = kind.partition(">")
    return TableField(name, int(number), value, key=key) if separator else TableField(name, int(number), kind, repeated)


def _set_type(field: Any, kind: str, package: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"


def _entry_name(field: str) -> str:
    """Return the name that protobuf demands of the message that encodes an entry of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
