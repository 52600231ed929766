"""Small parts of descriptions."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.cli.describe.containers import probe_text, resource_value
from setpoint.cli.describe.generic import label_for
from setpoint.cli.describe.networking import endpoints_text


@pytest.mark.parametrize(
    ("name", "text", "older"),
    [
        ("simpleField", "Simple Field", "Simple Field"),
        ("respectPDBs", "Respect PDBs", "Respect PD Bs"),
        ("respectPDB", "Respect PDB", "Respect PDB"),
        ("apiURL", "API URL", "API URL"),
        ("kubeAPI", "Kube API", "Kube API"),
        ("userUID", "User UID", "User UID"),
        ("HTTPSProxy", "HTTPSProxy", "HTTPS Proxy"),
        ("osb", "Osb", "OSB"),
        ("kebab-case", "Kebab - Case", "Kebab - Case"),
        ("snake_case", "snake_case", "snake_case"),
        ("v1", "v1", "v1"),
        ("X", "X", "X"),
        ("", "", ""),
    ],
)
def test_field_names_as_titles(name: str, text: str, older: str) -> None:
    assert label_for(name, 37) == text
    assert label_for(name, 33) == older


HTTP = {"scheme": "HTTP", "port": 80}


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        ({"exec": {"command": ["cat", "/x"]}}, "exec [cat /x]"),
        ({"exec": {}}, "exec []"),
        ({"httpGet": HTTP}, "http-get http://:80"),
        ({"httpGet": {**HTTP, "path": "/a b?c"}}, "http-get http://:80/a%20b%3Fc"),
        ({"httpGet": {**HTTP, "path": "relative", "host": "h"}}, "http-get http://h:80/relative"),
        ({"httpGet": {**HTTP, "scheme": "HTTPS", "host": "::1", "port": "web"}}, "http-get https://[::1]:web"),
        ({"tcpSocket": {"port": 9}}, "tcp-socket :9"),
        ({"grpc": {"port": 1, "service": "s"}}, "grpc <pod>:1 s"),
        ({}, "unknown"),
    ],
)
def test_probes(probe: dict[str, Any], text: str) -> None:
    times = {
        "initialDelaySeconds": 1,
        "timeoutSeconds": 2,
        "periodSeconds": 3,
        "successThreshold": 4,
        "failureThreshold": 5,
    }
    assert probe_text({**probe, **times}, 37) == (
        f"{text} delay=1s timeout=2s period=3s successThreshold=4 failureThreshold=5"
    )
    assert probe_text(probe, 36) == f"{text} delay=0s timeout=0s period=0s #success=0 #failure=0"


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.cpu", "0", "2"),
        ("limits.memory", "1Mi", "128"),
        ("limits.memory", "100Mi", "2"),
        ("requests.memory", None, "0"),
        ("limits.hugepages-2Mi", "1Mi", "4"),
        ("limits.example.com/gpu", None, ""),
        ("nonsense", None, ""),
    ],
)
def test_resources_in_the_environment(resource: str, divisor: str | None, value: str) -> None:
    limits = {"cpu": "1500m", "memory": "128Mi", "hugepages-2Mi": "4Mi"}
    field = {"resource": resource, **({"divisor": divisor} if divisor else {})}
    assert resource_value({"resources": {"limits": limits}}, field) == value


def slice_of(*ready: bool | None, ports: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    endpoints = [
        {"addresses": [f"10.0.0.{at}"], "conditions": {} if one is None else {"ready": one}}
        for at, one in enumerate(ready)
    ]
    return {"endpoints": endpoints, "ports": [{"name": "", "port": 80}] if ports is None else ports}


@pytest.mark.parametrize(
    ("slices", "text"),
    [
        ([], "<none>"),
        ([slice_of()], ""),
        ([slice_of(True, None, False)], "10.0.0.0:80,10.0.0.1:80"),
        ([slice_of(True, True, True)], "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80"),
        ([slice_of(True, True, True, True, True)], "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."),
        ([slice_of(True, True, True, False)], "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 0 more..."),
        ([slice_of(True, ports=[])], "10.0.0.0"),
        ([slice_of(True, ports=[{"name": "other", "port": 1}])], ""),
        ([{"endpoints": [{"addresses": ["fd00::1"]}], "ports": [{"port": 80}]}], "[fd00::1]:80"),
    ],
)
def test_endpoints_of_a_port(slices: list[dict[str, Any]], text: str) -> None:
    assert endpoints_text(slices, "") == text
