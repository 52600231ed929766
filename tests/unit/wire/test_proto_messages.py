"""Protobuf classes made from a table."""

from __future__ import annotations

import pytest
from google.protobuf.struct_pb2 import Struct, Value

from setpoint.wire.proto_messages import TableField, message_classes, parse_table

TABLE = """
Inner: number 1 int64, ratio 2 double
Outer: name 1 string, data 2 bytes, inner 3 Inner, inners 4 Inner*,\
 numbers 5 int64*, labels 6 string>string, by_name 7 string>Inner, small 8 uint32
Empty:
"""
NEWER = TABLE.replace("small 8 uint32", "small 8 uint32, later 9 string, more 10 Inner")


def test_a_table_is_parsed_into_messages_and_fields() -> None:
    parsed = dict(parse_table(TABLE))
    assert list(parsed) == ["Inner", "Outer", "Empty"]
    assert parsed["Empty"] == []
    assert parsed["Outer"][3:6] == [
        TableField("inners", 4, "Inner", repeated=True),
        TableField("numbers", 5, "int64", repeated=True),
        TableField("labels", 6, "string", key="string"),
    ]


def test_messages_have_the_encoding_of_protobuf() -> None:
    """The bytes are those of the specification: packed numbers, entries of maps as messages."""
    outer = message_classes("test", TABLE)["Outer"]
    assert outer(name="ab", inner={"number": 1}).SerializeToString() == b"\x0a\x02ab\x1a\x02\x08\x01"
    assert outer(numbers=[1, 300]).SerializeToString() == b"\x2a\x03\x01\xac\x02"
    assert outer(labels={"a": "b"}).SerializeToString() == b"\x32\x06\x0a\x01a\x12\x01b"


def test_messages_survive_a_round_trip() -> None:
    outer = message_classes("test", TABLE)["Outer"]
    made = outer(
        name="ä",
        data=b"\xff\x00",
        inners=[{"number": -1, "ratio": 0.5}, {}],
        numbers=[1, -2],
        labels={"a": "b", "c": ""},
        small=2**32 - 1,
    )
    made.by_name["x"].number = 7
    read = outer.FromString(made.SerializeToString())
    assert read == made
    assert (dict(read.labels), list(read.numbers), read.by_name["x"].number) == ({"a": "b", "c": ""}, [1, -2], 7)
    assert not read.HasField("inner")


def test_fields_that_the_table_does_not_have_are_skipped() -> None:
    newer, older = (message_classes("test", table)["Outer"] for table in (NEWER, TABLE))
    read = older.FromString(newer(name="a", later="b", more={"number": 1}).SerializeToString())
    assert read.name == "a"
    assert not hasattr(read, "later")


def test_maps_are_those_of_generated_classes() -> None:
    """A message that protobuf itself defines is read by a class of a table with the same fields."""
    table = "Value: number_value 2 double, string_value 3 string\nStruct: fields 1 string>Value"
    struct = message_classes("test", table)["Struct"]
    data = Struct(fields={"a": Value(string_value="x"), "b": Value(number_value=2)}).SerializeToString()
    read = struct.FromString(data)
    assert (read.fields["a"].string_value, read.fields["b"].number_value) == ("x", 2.0)


def test_a_malformed_line_is_refused() -> None:
    with pytest.raises(ValueError, match="has no colon: 'Inner number 1 int64'"):
        message_classes("test", "Inner number 1 int64")
