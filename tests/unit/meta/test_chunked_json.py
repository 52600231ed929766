"""Large JSON documents are read and written in bounded steps, with orjson's results."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from setpoint.meta import chunked_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(['"', "\\", '\\"', '":', "[{,}]", "\u2028", "x" * 50])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6),
    max_leaves=60,
)
SPELLINGS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"ensure_ascii": False},
        {"indent": 2},
        {"separators": (" ,\n", "\t: ")},
    ]
)
LARGE: dict[str, Any] = {
    "flat": {f"key-{number}": number for number in range(30_000)},
    "rows": [{"name": f"c{number}", "ports": [{"port": number}]} for number in range(10_000)],
    "deep": [[[[[[[[[number]]]]]]]] for number in range(20_000)],
    "wide and deep": {
        f"a{a}": {f"b{b}": {f"c{c}": {"d": [c]} for c in range(30)} for b in range(10)} for a in range(60)
    },
    "texts": ["x" * 1_000 for _ in range(500)],
}


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let documents of some bytes be read and written in several steps."""
    monkeypatch.setattr(chunked_json, "WINDOW", 24)
    monkeypatch.setattr(chunked_json, "_FEW", 2)


def spelled(value: Any, spelling: dict[str, Any]) -> bytes:
    return json.dumps(value, **spelling).encode(errors="surrogatepass")


@pytest.mark.usefixtures("small_window")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES, SPELLINGS)
def test_reads_what_orjson_reads(value: Any, spelling: dict[str, Any]) -> None:
    data = spelled(value, spelling)
    try:
        expected = orjson.loads(data)
    except orjson.JSONDecodeError:
        with pytest.raises(chunked_json.Unreadable):
            chunked_json.loads(data)
        return
    found, _ = chunked_json.loads(data)
    assert found == expected
    assert orjson.dumps(found) == orjson.dumps(expected)  # in the same order, with the same types


@pytest.mark.usefixtures("small_window")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(VALUES, SPELLINGS, st.data())
def test_rejects_what_orjson_rejects(value: Any, spelling: dict[str, Any], choice: st.DataObject) -> None:
    data = spelled(value, spelling)
    at = choice.draw(st.integers(0, len(data)))
    removed = choice.draw(st.integers(0, 2))
    added = choice.draw(st.sampled_from([b"", b",", b":", b'"', b"\\", b"[", b"]", b"{", b"}", b"1", b" ", b"\xff"]))
    data = data[:at] + added + data[at + removed :]
    try:
        expected = orjson.loads(data)
    except orjson.JSONDecodeError:
        with pytest.raises(chunked_json.Unreadable):
            chunked_json.loads(data)
    else:
        assert orjson.dumps(chunked_json.loads(data)[0]) == orjson.dumps(expected)


@pytest.mark.usefixtures("small_window")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("abcde"), VALUES), max_size=8), SPELLINGS)
def test_duplicate_keys_are_noticed_and_the_last_wins(pairs: list[tuple[str, Any]], spelling: dict[str, Any]) -> None:
    members = [json.dumps(key).encode() + b":" + spelled(value, spelling) for key, value in pairs]
    data = b'{"outer":{' + b",".join(members) + b"}}"
    try:
        expected = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    found, may_have_duplicates = chunked_json.loads(data)
    assert orjson.dumps(found) == orjson.dumps(expected)
    assert may_have_duplicates or len({key for key, _ in pairs}) == len(pairs)


def test_duplicate_keys_far_apart_are_noticed() -> None:
    members = b",".join(b'"key-%d":%d' % (number, number) for number in range(20_000))
    assert chunked_json.loads(b"{%b}" % members)[1] is False
    assert chunked_json.loads(b'{%b,"key-0":1}' % members)[1] is True


def test_duplicate_keys_side_by_side_are_noticed() -> None:
    assert chunked_json.loads(b'[{"a":{"b":1,"b":1}}]') == ([{"a": {"b": 1}}], True)


@pytest.mark.usefixtures("small_window")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(VALUES)
def test_writes_what_orjson_writes(value: Any) -> None:
    try:
        expected = orjson.dumps(value)
    except orjson.JSONEncodeError:
        with pytest.raises(orjson.JSONEncodeError):
            chunked_json.dumps(value)
    else:
        assert chunked_json.dumps(value) == expected


@pytest.mark.parametrize("few", [1, 2, 64])
def test_the_limit_on_the_depth_is_that_of_orjson(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_json, "_FEW", few)
    for depth in (chunked_json.MAX_DEPTH, chunked_json.MAX_DEPTH + 1):
        value: Any = []
        for _ in range(depth - 2):
            value = [value, 1]
        value = {"a": value}
        if depth <= chunked_json.MAX_DEPTH:
            assert chunked_json.dumps(value) == orjson.dumps(value)
        else:
            with pytest.raises(orjson.JSONEncodeError):
                chunked_json.dumps(value)


def test_a_document_that_orjson_cannot_write_is_not_read() -> None:
    depth = chunked_json.MAX_DEPTH + 1
    with pytest.raises(chunked_json.Unreadable):
        chunked_json.loads(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize("name", list(LARGE))
def test_no_step_is_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = LARGE[name]
    data = orjson.dumps(value)
    steps: list[int] = []

    def loads(text: bytes) -> Any:
        steps.append(len(text))
        return orjson.loads(text)

    def dumps(value: Any) -> bytes:
        text = orjson.dumps(value)
        steps.append(len(text))
        return text

    replacement = SimpleNamespace(loads=loads, dumps=dumps, JSONDecodeError=orjson.JSONDecodeError)
    monkeypatch.setattr(chunked_json, "orjson", replacement)
    assert chunked_json.loads(data) == (value, False)
    assert chunked_json.dumps(value) == data
    assert len(data) > 4 * chunked_json.WINDOW
    assert max(steps) <= 4 * chunked_json.WINDOW
