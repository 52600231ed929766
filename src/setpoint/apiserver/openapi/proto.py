"""The protobuf form of OpenAPI documents (gnostic's messages), which kubectl needs for apply and diff.

A message is a table from the keys of the JSON form to writers of fields; extensions go to a field of the message. Only
keys that our own documents contain have an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import pack
from typing import Any

import orjson

Writer = Callable[[Any], bytes]
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _framed(number: int, write: Writer) -> Writer:
    """Return a writer of a length-delimited field: bytes, text or a message."""
    tag = _varint(number << 3 | 2)

    def field(value: Any) -> bytes:
        body = write(value)
        return tag + _varint(len(body)) + body

    return field


def _text(number: int) -> Writer:
    return _framed(number, str.encode)


def _flag(number: int) -> Writer:
    tag = _varint(number << 3)
    return lambda value: tag + (b"\x01" if value else b"\x00")


def _integer(number: int) -> Writer:
    tag = _varint(number << 3)
    return lambda value: tag + _varint(int(value) & 0xFFFFFFFFFFFFFFFF)


def _double(number: int) -> Writer:
    tag = _varint(number << 3 | 1)
    return lambda value: tag + pack("<d", value)


def _each(write: Writer) -> Writer:
    return lambda values: b"".join(map(write, values))


_any_yaml = _text(2)
_name = _text(1)


def _any(value: Any) -> bytes:
    """Encode a value as YAML, of which JSON is a subset."""
    return _any_yaml(orjson.dumps(value).decode())


def _named(number: int, write: Writer) -> Writer:
    """Return a writer of a map, as repeated pairs of name and value."""
    value_field = _framed(2, write)
    pair = _framed(number, lambda item: _name(item[0]) + value_field(item[1]))
    return lambda values: b"".join(map(pair, values.items()))


def _message(fields: Mapping[str, Writer], extensions: int = 0) -> Writer:
    extension = _framed(extensions, lambda item: _name(item[0]) + _framed_any(item[1]))

    def write(value: Mapping[str, Any]) -> bytes:
        out = []
        for key, given in value.items():
            field = fields.get(key)
            if field is not None:
                out.append(field(given))
            elif extensions and key.startswith("x-"):
                out.append(extension((key, given)))
        return b"".join(out)

    return write


_framed_any = _framed(2, _any)


def _limits(start: Mapping[str, int]) -> dict[str, Writer]:
    kinds = {"multipleOf": _double, "maximum": _double, "minimum": _double, "pattern": _text, "title": _text}
    flags = ("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable")
    return {
        key: kinds[key](number) if key in kinds else (_flag if key in flags else _integer)(number)
        for key, number in start.items()
    }


def _additional(schema_field: Writer) -> Writer:
    boolean = _flag(2)
    return lambda value: boolean(value) if isinstance(value, bool) else schema_field(value)


# -- OpenAPI 2 ----------------------------------------------------------------------------------------------------

_LIMITS_V2 = _limits(
    {
        "title": 3,
        "multipleOf": 6,
        "maximum": 7,
        "exclusiveMaximum": 8,
        "minimum": 9,
        "exclusiveMinimum": 10,
        "maxLength": 11,
        "minLength": 12,
        "pattern": 13,
        "maxItems": 14,
        "minItems": 15,
        "uniqueItems": 16,
        "maxProperties": 17,
        "minProperties": 18,
    }
)


def _schema_v2(value: Mapping[str, Any]) -> bytes:
    return _schema_fields_v2(value)


_schema_fields_v2 = _message(
    {
        "$ref": _text(1),
        "format": _text(2),
        "description": _text(4),
        "default": _framed(5, _any),
        **_LIMITS_V2,
        "required": _each(_text(19)),
        "enum": _each(_framed(20, _any)),
        "additionalProperties": _framed(21, _additional(_framed(1, _schema_v2))),
        "type": _framed(22, _text(1)),
        "items": _framed(23, _framed(1, _schema_v2)),
        "allOf": _each(_framed(24, _schema_v2)),
        "properties": _framed(25, _named(1, _schema_v2)),
    },
    31,
)
_PARAMETER_FIELDS = {"required": _flag(1), "in": _text(2), "description": _text(3), "name": _text(4)}
_query_v2 = _message({**_PARAMETER_FIELDS, "type": _text(6), "uniqueItems": _flag(20)})
_in_path_v2 = _message({**_PARAMETER_FIELDS, "type": _text(5), "uniqueItems": _flag(19)})
_body_v2 = _message(
    {"description": _text(1), "name": _text(2), "in": _text(3), "required": _flag(4), "schema": _framed(5, _schema_v2)}
)
_parameter_by_place = {
    "body": _framed(1, _body_v2),
    "query": _framed(2, _framed(3, _query_v2)),
    "path": _framed(2, _framed(4, _in_path_v2)),
}
_parameter_item_v2 = _framed(1, lambda value: _parameter_by_place[value["in"]](value))
_reference_item_v2 = _framed(2, _message({"$ref": _text(1)}))


def _parameters_item_v2(value: Mapping[str, Any]) -> bytes:
    return _reference_item_v2(value) if "$ref" in value else _parameter_item_v2(value)


_response_v2 = _message({"description": _text(1), "schema": _framed(2, _framed(1, _schema_v2))})
_operation_v2 = _message(
    {
        "tags": _each(_text(1)),
        "description": _text(3),
        "operationId": _text(5),
        "produces": _each(_text(6)),
        "consumes": _each(_text(7)),
        "parameters": _each(_framed(8, _parameters_item_v2)),
        "responses": _framed(9, _named(1, _framed(1, _response_v2))),
        "schemes": _each(_text(10)),
    },
    13,
)
_path_v2 = _message(
    {
        **{method: _framed(number, _operation_v2) for number, method in enumerate(_METHODS, 2)},
        "parameters": _each(_framed(9, _parameters_item_v2)),
    }
)
_api_key_v2 = _message({"type": _text(1), "name": _text(2), "in": _text(3), "description": _text(4)})
document_v2: Writer = _message(
    {
        "swagger": _text(1),
        "info": _framed(2, _message({"title": _text(1), "version": _text(2)})),
        "paths": _framed(8, _named(2, _path_v2)),
        "definitions": _framed(9, _named(1, _schema_v2)),
        "parameters": _framed(10, _named(1, lambda value: _parameter_by_place[value["in"]](value))),
        "security": _each(_framed(12, _named(1, _each(_text(1))))),
        "securityDefinitions": _framed(13, _named(1, _framed(2, _api_key_v2))),
    }
)

# -- OpenAPI 3 ----------------------------------------------------------------------------------------------------

_LIMITS_V3 = _limits(
    {
        "nullable": 1,
        "title": 9,
        "multipleOf": 10,
        "maximum": 11,
        "exclusiveMaximum": 12,
        "minimum": 13,
        "exclusiveMinimum": 14,
        "maxLength": 15,
        "minLength": 16,
        "pattern": 17,
        "maxItems": 18,
        "minItems": 19,
        "uniqueItems": 20,
        "maxProperties": 21,
        "minProperties": 22,
    }
)
_default_number, _default_flag, _default_text = _double(1), _flag(2), _text(3)


def _default_v3(value: Any) -> bytes:
    """Encode a default value; only scalars can be represented."""
    if isinstance(value, bool):
        return _default_flag(value)
    if isinstance(value, int | float):
        return _default_number(value)
    return _default_text(value)


_default_field_v3 = _framed(33, _default_v3)
_reference_v3 = _framed(2, _message({"$ref": _text(1)}))


def _schema_v3(value: Mapping[str, Any]) -> bytes:
    """Encode a schema or a reference."""
    return _reference_v3(value) if "$ref" in value else _schema_field_v3(value)


_schema_fields_v3: Writer = _message(
    {
        **_LIMITS_V3,
        "required": _each(_text(23)),
        "enum": _each(_framed(24, _any)),
        "type": _text(25),
        "allOf": _each(_framed(26, _schema_v3)),
        "oneOf": _each(_framed(27, _schema_v3)),
        "anyOf": _each(_framed(28, _schema_v3)),
        "not": _framed(29, lambda value: _schema_fields_v3(value)),
        "items": _framed(30, _framed(1, _schema_v3)),
        "properties": _framed(31, _named(1, _schema_v3)),
        "additionalProperties": _framed(32, _additional(_framed(1, _schema_v3))),
        "default": lambda value: _default_field_v3(value) if isinstance(value, str | int | float) else b"",
        "description": _text(34),
        "format": _text(35),
    },
    36,
)
_schema_field_v3 = _framed(1, _schema_fields_v3)


_media_v3 = _named(1, _message({"schema": _framed(1, _schema_v3)}))
_parameter_v3 = _framed(
    1,
    _message(
        {
            "name": _text(1),
            "in": _text(2),
            "description": _text(3),
            "required": _flag(4),
            "schema": _framed(10, _schema_v3),
        }
    ),
)
_request_v3 = _message({"description": _text(1), "content": _framed(2, _media_v3), "required": _flag(3)})
_response_v3 = _message({"description": _text(1), "content": _framed(3, _media_v3)})
_operation_v3 = _message(
    {
        "tags": _each(_text(1)),
        "description": _text(3),
        "operationId": _text(5),
        "parameters": _each(_framed(6, _parameter_v3)),
        "requestBody": _framed(7, _framed(1, _request_v3)),
        "responses": _framed(8, _named(2, _framed(1, _response_v3))),
    },
    13,
)
_path_v3 = _message(
    {
        **{method: _framed(number, _operation_v3) for number, method in enumerate(_METHODS, 4)},
        "parameters": _each(_framed(13, _parameter_v3)),
    }
)
_api_key_v3 = _message({"type": _text(1), "description": _text(2), "name": _text(3), "in": _text(4)})
_components_v3 = _message(
    {
        "schemas": _framed(1, _named(1, _schema_v3)),
        "securitySchemes": _framed(7, _named(1, _framed(1, _api_key_v3))),
    }
)
document_v3: Writer = _message(
    {
        "openapi": _text(1),
        "info": _framed(2, _message({"title": _text(1), "version": _text(6)})),
        "paths": _framed(4, _named(1, _path_v3)),
        "components": _framed(5, _components_v3),
    }
)
