"""JSON with and without orjson: the same documents."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
from setpoint.meta.json_codec import decode_json, encode_json
encode_json([1])
assert len(decode_json(b'["' + b"x" * {size} + b'"]')[0]) == {size}
print("orjson" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{loaded}\n", done.stderr
