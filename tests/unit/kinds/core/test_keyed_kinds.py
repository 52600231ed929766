from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from setpoint.kinds.core.configmap import decoded_length

SEALED = "Forbidden: field is immutable when `immutable` is set"


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.fixture
def configmaps(lifecycle: Any) -> Any:
    return lifecycle("v1", "ConfigMap")


@pytest.fixture
def secrets(lifecycle: Any) -> Any:
    return lifecycle("v1", "Secret")


@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "abcd", "é" * 7])
def test_length_of_base64(text: str) -> None:
    assert decoded_length(b64(text)) == len(text.encode())


def test_config_map_keys(configmaps: Any) -> None:
    [error] = configmaps.errors({"data": {"a b": ""}})
    assert error.startswith('data[a b]: Invalid value: "a b": a valid config key must consist of')
    assert configmaps.errors({"data": {"a": "1"}, "binaryData": {"a": "AAAA"}}) == [
        'data[a]: Invalid value: "a": duplicate of key present in binaryData'
    ]


def test_config_map_size_counts_bytes(configmaps: Any) -> None:
    assert configmaps.errors({"data": {"a": "x" * 1048576}}) == []
    too_long = ["[]: Too long: may not be more than 1048576 bytes"]
    assert configmaps.errors({"data": {"a": "é" * 524289}}) == too_long
    assert configmaps.errors({"data": {"a": "x"}, "binaryData": {"b": b64("x" * 1048576)}}) == too_long


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"data": {"a": "2"}}, [f"data: {SEALED}"]),
        ({"immutable": False}, [f"immutable: {SEALED}"]),
        ({"binaryData": {"b": "AAAA"}}, [f"binaryData: {SEALED}"]),
        ({"metadata": {"labels": {"a": "b"}}}, []),
    ],
)
def test_immutable_config_maps(configmaps: Any, change: dict[str, Any], expected: list[str]) -> None:
    body = {"data": {"a": "1"}, "immutable": True}
    assert configmaps.put(configmaps.created(body), {**body, **change})[1] == expected


def test_config_map_row(configmaps: Any) -> None:
    obj = configmaps.created({"data": {"a": "1"}, "binaryData": {"b": "AAAA"}})
    assert configmaps.cells(obj) == {"Name": "x", "Data": 2, "Age": "24h"}


def test_string_data_is_merged_into_data(secrets: Any) -> None:
    obj = secrets.created({"data": {"a": b64("old"), "c": b64("kept")}, "stringData": {"a": "new", "b": "é"}})
    assert obj["data"] == {"a": b64("new"), "b": b64("é"), "c": b64("kept")}
    assert "stringData" not in obj
    assert obj["type"] == "Opaque"
    assert secrets.strategy.selectable_fields(obj) == {"type": "Opaque"}


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("service-account-token", {}, ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]),
        ("dockercfg", {}, ["data[.dockercfg]: Required value"]),
        (
            "dockerconfigjson",
            {".dockerconfigjson": "{"},
            ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input'],
        ),
        ("basic-auth", {}, ["data[username]: Required value", "data[password]: Required value"]),
        ("basic-auth", {"password": ""}, []),
        ("ssh-auth", {"ssh-privatekey": ""}, ["data[ssh-privatekey]: Required value"]),
        ("tls", {"tls.crt": ""}, ["data[tls.key]: Required value"]),
    ],
)
def test_required_keys_of_secret_types(secrets: Any, kind: str, data: dict[str, str], expected: list[str]) -> None:
    assert secrets.errors({"type": f"kubernetes.io/{kind}", "stringData": data}) == expected


def test_type_of_a_secret_is_immutable(secrets: Any) -> None:
    old = secrets.created({"type": "a"})
    assert secrets.put(old, {"type": "b"})[1] == ['type: Invalid value: "b": field is immutable']
    sealed = secrets.created({"data": {"a": b64("1")}, "immutable": True})
    assert secrets.put(sealed, {"stringData": {"a": "1"}, "immutable": True})[1] == []
    assert secrets.put(sealed, {"stringData": {"a": "2"}, "immutable": True})[1] == [f"data: {SEALED}"]
