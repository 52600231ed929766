"""JSON with and without orjson: the same documents."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from setpoint.meta import gojson
from setpoint.meta.json_codec import decode_json, encode_json

DOCUMENT = {"a": [1, 2.5, None, True, "ü\u2028"], "b": {"c": 2**63, "d": {}}, "e": ""}


@pytest.fixture(params=["orjson", "json"])
def without_orjson(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    import orjson

    assert orjson
    if request.param == "json":
        monkeypatch.delitem(sys.modules, "orjson")


@pytest.mark.usefixtures("without_orjson")
def test_both_decoders_and_encoders_agree() -> None:
    text = json.dumps(DOCUMENT, ensure_ascii=False, separators=(",", ":")).encode()
    assert encode_json(DOCUMENT) == text
    assert decode_json(text) == DOCUMENT


@pytest.mark.usefixtures("without_orjson")
@pytest.mark.parametrize("data", [b"", b"{", b'"\xff"', b"<html>"])
def test_both_refuse_what_is_not_json(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_json(data)


@pytest.mark.usefixtures("without_orjson")
def test_both_refuse_invalid_unicode() -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_json({"a": "\ud800"})


@pytest.mark.parametrize(("size", "loaded"), [(10, "False"), (1024 * 1024, "True")])
def test_orjson_is_loaded_for_large_documents_only(size: int, loaded: str) -> None:
    script = f"""
import sys
from setpoint.meta import gojson
from setpoint.meta.json_codec import decode_json, encode_json
encode_json([1])
assert len(decode_json(b'["' + b"x" * {size} + b'"]')[0]) == {size}
print("orjson" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{loaded}\n", done.stderr


HARD = [
    {"b": [1, True, None, {"z": "", "a": {}}], "a": []},
    '\x00\x1f\x7f"\\/<>&\u2028\u2029\b\f\n\r\t é 漢 😀',
    {"é": 1, "e": 2, "f": 3, "\U0001f600": 4, "\uffff": 5},
    ["a\udcff"],
    {"n": 1.0, "m": 1e21, "big": 2**64, "small": -(2**63)},
    list(range(3000)),
    [],
    {},
    "",
    None,
]


@pytest.mark.parametrize("value", HARD, ids=lambda value: repr(value)[:20])
def test_go_json_is_the_same_without_orjson(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def written() -> list[object]:
        return [
            gojson.compact(value),
            gojson.compact(value, ordered=False),
            gojson.indented(value),
            gojson.indented(value, ordered=False),
            gojson.indented_by_two(value),
            gojson.go_round_trip(value),
        ]

    import orjson

    assert orjson
    wanted = written()
    monkeypatch.delitem(sys.modules, "orjson")
    assert written() == wanted


def test_small_plain_values_are_written_as_go_does_without_orjson() -> None:
    script = """
import sys
from setpoint.meta.gojson import compact, go_round_trip, indented
assert compact({"b": "<", "a": [1]}) == '{"a":[1],"b":"\\\\u003c"}'
assert indented({"b": [{}], "a": 1}, ordered=False) == '{\\n    "b": [\\n        {}\\n    ],\\n    "a": 1\\n}'
assert go_round_trip([1]) == [1]
print("orjson" in sys.modules)
print(go_round_trip([1.0]), "orjson" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n[1] True\n", done.stderr
