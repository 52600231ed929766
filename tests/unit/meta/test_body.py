from __future__ import annotations

import json
import time
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.body import BodyError, dump_yaml, parse_json, parse_yaml, plain_numbers, type_meta
from setpoint.meta.chunked_json import MAX_DEPTH
from setpoint.meta.decode import DecodeError
from setpoint.meta.objects import Obj

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
YAML_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="latin-1", exclude_categories=["Cc"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20), inner, max_size=4
        )
    ),
    max_leaves=20,
)


def refusal(data: bytes) -> str:
    with pytest.raises(BodyError) as caught:
        parse_json(data)
    return str(caught.value)


# -- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"apiVersion":"v1",', "unexpected end of JSON input"),
        (b"{} {}", "invalid character '{' after top-level value"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"nul", "invalid character ' ' in literal null (expecting 'l')"),
        (b"1.", "invalid character ' ' after decimal point in numeric literal"),
        (b'"a\nb"', r"invalid character '\n' in string literal"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b"kind: X", "invalid character 'k' looking for beginning of value"),
    ],
)
def test_errors_of_malformed_json(data: bytes, message: str) -> None:
    assert refusal(data) == message


def test_depth_is_bounded() -> None:
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)[1] == []
    started = time.perf_counter()
    for depth in (MAX_DEPTH + 1, 2000, 1_000_000):
        assert refusal(b"[" * depth + b"]" * depth) == "invalid character '[' exceeded max depth"
        assert refusal(b'{"a":' * depth) == "invalid character '{' exceeded max depth"
    assert time.perf_counter() - started < 2


def test_invalid_unicode_is_replaced() -> None:
    assert parse_json(b'{"a":"\xff"}')[0] == {"a": "\ufffd"}
    assert parse_json(rb'{"a":"\ud800"}')[0] == {"a": "\ufffd"}
    assert parse_json(rb'{"a":"\ud83d\ude00"}')[0] == {"a": "😀"}


def test_huge_numbers_are_floats() -> None:
    assert parse_json(b"[123456789012345678901234567890]")[0] == [1.2345678901234568e29]
    assert refusal(b"[1e999]") == "json: cannot unmarshal number 1e999 into Go value of type float64"


@pytest.mark.parametrize(
    ("data", "duplicates"),
    [
        (b'{"a":1,"a":2}', ["a"]),
        (b'{"a":1, "a" :2}', ["a"]),
        (b'{"a":{"b":1,"b":2},"c":[0,{"d":1,"d":1}]}', ["a.b", "c[1].d"]),
        (rb'{"a":"x\u0022:y","b":1,"b":2}', ["b"]),
        (rb'{"a":"x\":y"}', []),
        (b'{ "a" : 1 }', []),
        (rb'{"a":"\/","b":"\u003c"}', []),
    ],
)
def test_duplicate_keys_are_noticed(data: bytes, duplicates: list[str]) -> None:
    assert parse_json(data)[1] == [f'duplicate field "{path}"' for path in duplicates]
    assert parse_json(data)[0] == orjson.loads(data)


@given(VALUES, st.sampled_from([None, 1]))
def test_valid_json_is_read_unchanged(value: Any, indent: int | None) -> None:
    for ascii in (True, False):
        data = json.dumps(value, indent=indent, ensure_ascii=ascii).encode()
        assert parse_json(data) == (value, [])


def test_the_kind_of_a_body() -> None:
    assert type_meta({"apiVersion": "v1", "kind": "Pod"}) == ("v1", "Pod")
    assert type_meta(None) == ("", "")
    assert type_meta({"kind": None}) == ("", "")
    with pytest.raises(
        DecodeError, match=r"^json: cannot unmarshal number into Go struct field \.kind of type string$"
    ):
        type_meta({"kind": 1})
    with pytest.raises(DecodeError) as caught:
        type_meta([])
    assert str(caught.value) == (
        "json: cannot unmarshal array into Go value of type "
        r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
    )


# -- YAML -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("~", None),
        ("", None),
        ("0777", 511),
        ("08", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", 3),
        ("1_000", 1000),
        ("1e3", 1000),
        ("1.50", 1.5),
        ("+5", 5),
        (".5", 0.5),
        ("1e400", "1e400"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("<<", "<<"),
        ('"5"', "5"),
        ("!!str 5", "5"),
        ('!!int "5"', 5),
        ("!foo 5", "5"),
        ("!!binary aGVsbG8=", "hello"),
        ("1.0", 1),
        ("18446744073709551615", 18446744073709551615),
        ("|\n  x\n  y\n", "x\ny\n"),
        ("!!python/name:os.system", ""),
    ],
)
def test_yaml_scalars_resolve_as_upstream(text: str, value: Any) -> None:
    read = parse_yaml(f"a: {text}".encode())[0]["a"]
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: 1\n---\nb: 2", {"a": 1}),
        ("1: x\n1.5: y\ntrue: z\n", {"1": "x", "1.5": True, "true": "z"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, c: 1}\nd:\n  <<: *x\n  b: 2", {"a": {"b": 1, "c": 1}, "d": {"b": 2, "c": 1}}),
        ("<<: [{a: 1},{a: 2,b: 3}]\nc: 1", {"a": 1, "b": 3, "c": 1}),
        ('{"a": [1, "x"]}', {"a": [1, "x"]}),
    ],
)
def test_documents(text: str, value: Any) -> None:
    assert parse_yaml(text.encode())[0] == value


def test_keys_come_sorted_and_aliases_are_copies() -> None:
    value = parse_yaml(b"b: &x {d: 1, c: 2}\na: *x")[0]
    assert orjson.dumps(value) == b'{"a":{"c":2,"d":1},"b":{"c":2,"d":1}}'
    assert value["a"] is not value["b"]


def test_repeated_keys_are_reported_with_their_lines() -> None:
    value, repeated = parse_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\nb: 3")
    assert value == {"a": 1, "b": 3}
    expected = 'yaml: unmarshal errors:\n  line 4: key "c" already set in map\n  line 5: key "b" already set in map'
    assert repeated == [expected]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"apiVersion: v1\n\tkind: X", "yaml: line 2: found a tab character that violates indentation"),
        (b"a: b: c", "yaml: mapping values are not allowed in this context"),
        (b"a: 1\n b: 2", "yaml: line 2: mapping values are not allowed in this context"),
        (b"a: [1", "yaml: line 1: did not find expected ',' or ']'"),
        (b"a: @x", "yaml: found character that cannot start any token"),
        (b"a: *nope", "yaml: unknown anchor 'nope' referenced"),
        (b"a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        (b"a: {{ x }}", 'yaml: invalid map key: map[interface {}]interface {}{"x":interface {}(nil)}'),
        (b"a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        (b"a: &x 1\n<<: *x", "yaml: map merge requires map or sequence of maps as the value"),
        (b"a: .inf", "json: unsupported value: +Inf"),
        (b"a: \x01", "yaml: control characters are not allowed"),
        (b"a: " + b"[" * 100_000, "yaml: line 1: exceeded max depth of 254"),
    ],
)
def test_errors_of_malformed_yaml(data: bytes, message: str) -> None:
    with pytest.raises(BodyError) as caught:
        parse_yaml(data)
    assert str(caught.value) == message


def test_alias_bombs_are_rejected_early() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    started = time.perf_counter()
    with pytest.raises(BodyError, match=r"^yaml: document contains excessive aliasing$"):
        parse_yaml("\n".join(lines).encode())
    assert time.perf_counter() - started < 1


def test_yaml_is_written_in_upstreams_style() -> None:
    value: Obj = {
        "kind": "X",
        "list": ["plain", "5", "yes", "", "a: b", "x\ny\n", {"b": 1, "a": [[1], []]}],
        "a10": None,
        "a2": {},
        "5": 1.5,
    }
    assert dump_yaml(value).decode() == (
        '"5": 1.5\na2: {}\na10: null\nkind: X\nlist:\n- plain\n- "5"\n- "yes"\n- ""\n- \'a: b\'\n- |\n  x\n  y\n'
        "- a:\n  - - 1\n  - []\n  b: 1\n"
    )


@pytest.mark.parametrize(("number", "text"), [(1.5, "1.5"), (1e6, "1e+06"), (1e-7, "1e-07"), (123456.5, "123456.5")])
def test_floats_in_yaml(number: float, text: str) -> None:
    assert dump_yaml([number]) == f"- {text}\n".encode()


def test_an_equals_sign_is_a_text() -> None:
    assert dump_yaml({"=": "="}) == b"=: =\n"
    assert parse_yaml(b"=: =\n")[0] == {"=": "="}


@given(YAML_VALUES)
def test_written_yaml_reads_back(value: Any) -> None:
    assert parse_yaml(dump_yaml(value))[0] == value
    yaml.compose(dump_yaml(value), yaml.SafeLoader)  # others read it too, whatever a lone `=` means to them


def test_the_number_of_values_is_bounded() -> None:
    """Punctuation in strings does not count, and other errors take precedence."""
    for unit in (b"[],", b"{},", b"1,", b'"",'):
        assert refusal(b"[" + unit * 300_000 + b"0]") == "json: document contains too many values"
    assert refusal(b'["\\\\",' + b"1," * 300_000 + b"0]") == "json: document contains too many values"
    for text in (b"[,{" * 200_000, b'\\",' * 300_000, b"\\\\,," * 200_000):
        assert parse_json(b'{"a":"' + text + b'"}')[1] == []
    assert refusal(b"[" * 300_000) == "invalid character '[' exceeded max depth"
    assert refusal(b"[1 2," + b"1," * 300_000) == "invalid character '2' after array element"
    assert len(parse_json(b"[" + b"0," * 249_000 + b"0]")[0]) == 249_001


def test_long_texts_are_read_with_the_same_result() -> None:
    """Long texts are read by a parser in Python that lets other threads run."""
    part = b'{"a":[1,2.5,-3e2,"x\\n\\u00e9",{"b":null,"b":true}]}'
    for count in (10, 9_000):
        value, duplicates = parse_json(b"[" + b",".join([part] * count) + b"]")
        assert value == [{"a": [1, 2.5, -300.0, "x\n\u00e9", {"b": True}]}] * count
        assert duplicates[0] == 'duplicate field "[0].a[4].b"'


def test_the_events_of_a_yaml_document_are_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing all of them at once would hold the interpreter lock for long."""
    emit, given = yaml.emit, []

    def recorded(events: Any, **options: Any) -> Any:
        given.append(events)
        return emit(events, **options)

    monkeypatch.setattr(yaml, "emit", recorded)
    assert dump_yaml({"a": ["\t"]}) == b'a:\n- "\\t"\n'
    assert iter(given[0]) is given[0]


# -- large documents --------------------------------------------------------------------------------------------------


def test_a_large_document_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def loads(data: bytes) -> tuple[Any, bool]:
        sizes.append(len(data))
        return orjson.loads(data), False

    monkeypatch.setattr("setpoint.meta.chunked_json.loads", loads)
    small, large = ({"a": "x" * size} for size in (100_000, 150_000))
    assert parse_json(orjson.dumps(small)) == (small, [])
    assert not sizes
    assert parse_json(orjson.dumps(large)) == (large, [])
    assert len(sizes) == 1


@pytest.mark.parametrize("padding", [0, 200_000])
@pytest.mark.parametrize(
    ("text", "value", "duplicates"),
    [
        (b'{"a":1,"b":[{"c":1,"c":2}],"a":3}', {"a": 3, "b": [{"c": 2}]}, ["b[0].c", "a"]),
        (b'{"a":18446744073709551616,"b":"\\ud800"}', {"a": 18446744073709551616.0, "b": "\ufffd"}, []),
        (b'{"a" : 1.0, "b" : [ ] }', {"a": 1.0, "b": []}, []),
    ],
)
def test_a_large_document_is_read_as_a_small_one(padding: int, text: bytes, value: Any, duplicates: list[str]) -> None:
    found, reported = parse_json(text[:-1] + b',"z":"%b"}' % (b"z" * padding))
    assert found == {**value, "z": "z" * padding}
    assert [type(one) for one in found.values()] == [*(type(one) for one in value.values()), str]
    assert reported == [f'duplicate field "{name}"' for name in duplicates]


@pytest.mark.parametrize("padding", [10, 200_000])
@pytest.mark.parametrize("text", [b'{"a":1,}', b"[[[1,2],]", b'{"a":1', b'["a\nb"]'])
def test_a_large_document_is_rejected_as_a_small_one(padding: int, text: bytes) -> None:
    blank = refusal(text)
    assert refusal(b" " * padding + text) == blank


def test_too_many_values_are_counted_outside_of_strings() -> None:
    texts = [b"[,{" * 40_000, b'\\"[,{' * 40_000, b"\\\\" * 70_000 + b"," * 100_000, b"," * 65_533 + b'\\",' * 30_000]
    data = b"[" + b",".join(b'"%b"' % text for text in texts) + b"]"
    assert len(parse_json(data)[0]) == len(texts)
    with pytest.raises(BodyError, match="too many values"):
        parse_json(data[:-1] + b",1" * 250_000 + b"]")


@pytest.mark.parametrize("start", range(65_530, 65_540))
def test_an_escape_between_two_pieces_is_not_the_end_of_a_string(start: int) -> None:
    text = b'["' + b"x" * (start - 2) + b'\\"' + b"," * 300_000 + b'"]'
    assert len(parse_json(text)[0]) == 1


@pytest.mark.parametrize("start", range(65_515, 65_540))
def test_an_odd_number_between_two_pieces_is_noticed(start: int) -> None:
    for number, plain in ((b"1.0", 1), (b"18446744073709551615", 1.8446744073709552e19)):
        data = b'{"a":"%b","b":%b}' % (b"x" * (start - len(b'{"a":"","b":')), number)
        assert data.index(number) == start
        found = plain_numbers(data, orjson.loads(data))["b"]
        assert (found, type(found)) == (plain, type(plain))
