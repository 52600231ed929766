from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.meta.json_syntax import decoding_error, unmarshal

END = "unexpected end of JSON input"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", ""),
        ("null", ""),
        ("", END),
        ("{", END),
        ('{"a":"b', END),
        ("[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ("1", "json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("true", "json: cannot unmarshal bool into Go value of type map[string]interface {}"),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ("nulx", "invalid character 'x' in literal null (expecting 'l')"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ("{'a'", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a"}', "invalid character '}' after object key"),
        ('{"a":}', "invalid character '}' looking for beginning of value"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ('{"a":[1 2]}', "invalid character '2' after array element"),
        ('{"a":01}', "invalid character '1' after object key:value pair"),
        ('{"a":1.}', "invalid character '}' after decimal point in numeric literal"),
        ('{"a":1e}', "invalid character '}' in exponent of numeric literal"),
        ('{"a":-}', "invalid character '}' in numeric literal"),
        ('{"a":"\n"}', "invalid character '\\n' in string literal"),
        ('{"a":"\\x"}', "invalid character 'x' in string escape code"),
        ('{"a":"\\u12g4"}', "invalid character 'g' in \\u hexadecimal character escape"),
        ("{} x", "invalid character 'x' after top-level value"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
        ('{"a":1e400}', "json: cannot unmarshal number 1e400 into Go value of type float64"),
    ],
)
def test_errors_are_those_of_gos_decoder(text: str, expected: str) -> None:
    error = ""
    try:
        unmarshal(text.encode(), dict, "map[string]interface {}")
    except ValueError as raised:
        error = str(raised)
    assert error == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_valid_json_has_no_error(value: object) -> None:
    assert decoding_error(orjson.dumps(value)) == ""


@given(st.binary(max_size=60))
def test_invalid_json_has_an_error(data: bytes) -> None:
    try:
        data.decode()
        orjson.loads(data)
    except (orjson.JSONDecodeError, UnicodeDecodeError):
        assert isinstance(decoding_error(data), str)
    else:
        assert decoding_error(data) == ""


def test_nesting_depth_is_bounded() -> None:
    assert decoding_error(b"[" * 20000) == "invalid character '[' exceeded max depth"


def test_invalid_utf8_is_replaced() -> None:
    assert unmarshal(b'{"a":"\xff"}', dict, "map[string]interface {}") == {"a": "\ufffd"}
