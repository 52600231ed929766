from typing import Any

import pytest

GROUP = "resource.k8s.io/v1"


@pytest.fixture
def claims(lifecycle: Any) -> Any:
    return lifecycle(GROUP, "ResourceClaim")


def claim(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {"spec": {"devices": {"requests": list(requests), **devices}}}


def exactly(name: str = "r", **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "c", **fields}}


RESULT = {"request": "r", "driver": "d.e", "pool": "p", "device": "d1"}
DEVICE = {"driver": "d.e", "pool": "p", "device": "d1"}


def test_defaults_and_disabled_fields(claims: Any) -> None:
    body = claim(exactly(tolerations=[{"key": "k"}], derivedAttributes=[{"name": "a.b/c", "expression": "1"}]))
    (request,) = claims.created(body)["spec"]["devices"]["requests"]
    assert (request["exactly"]["allocationMode"], request["exactly"]["count"]) == ("ExactCount", 1)
    assert request["exactly"]["tolerations"] == [{"key": "k", "operator": "Equal"}]
    assert "derivedAttributes" not in request["exactly"]


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (
            claim({"name": "r"}),
            ["spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"],
        ),
        (claim(exactly(deviceClassName="")), ["spec.devices.requests[0].exactly.deviceClassName: Required value"]),
        (
            claim(exactly(allocationMode="All", count=2)),
            [
                "spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode "
                "is 'All'"
            ],
        ),
        (
            claim(exactly(), constraints=[{"requests": ["x"], "matchAttribute": "a.b/c"}]),
            [
                'spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the '
                "claim or the name of a "
                "request and a subrequest separated by '/'"
            ],
        ),
        # What is declared on fields comes last, wherever it stands.
        (
            claim(exactly(allocationMode="X"), exactly("A")),
            [
                'spec.devices.requests[1].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower '
                "case alphanumeric "
                "characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or "
                "'123-abc', regex used for "
                "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                'spec.devices.requests[0].exactly.allocationMode: Unsupported value: "X": supported values: "All", '
                '"ExactCount"',
            ],
        ),
        (
            claim(exactly(), config=[{"opaque": {"driver": "d", "parameters": "x"}}]),
            ['spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object'],
        ),
    ],
)
def test_errors(claims: Any, body: dict[str, Any], errors: list[str]) -> None:
    assert claims.errors(body) == errors


def test_spec_is_immutable(claims: Any) -> None:
    old = claims.created(claim(exactly()))
    _, errors, _ = claims.update(old, spec={"devices": {}})
    assert errors == ["spec: Invalid value: null: field is immutable"]


def test_device_status_is_removed_with_the_device(claims: Any) -> None:
    old = claims.created(claim(exactly()))
    allocation = {"devices": {"results": [RESULT]}}
    obj, errors, _ = claims.update(old, "status", status={"allocation": allocation, "devices": [DEVICE]})
    assert errors == []
    assert claims.cells(obj)["State"] == "allocated"
    _, errors, _ = claims.update(obj, "status", status={"allocation": {"devices": {"results": []}}})
    assert errors == ["status.allocation: Invalid value: null: field cannot be modified once set"]
    freed, errors, _ = claims.update(obj, "status", status={"allocation": None})
    assert errors == [] and "devices" not in freed["status"]
    _, errors, _ = claims.update(old, "status", status={"reservedFor": [{"resource": "pods", "name": "a", "uid": "1"}]})
    assert errors == ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"]


def test_immutable_template_error_shows_the_new_spec(lifecycle: Any) -> None:
    templates = lifecycle(GROUP, "ResourceClaimTemplate")
    old = templates.created({"spec": {"spec": claim(exactly())["spec"]}})
    _, errors, _ = templates.update(old, spec={"metadata": {"labels": {"a": "b"}}})
    assert errors[0].startswith('spec: Invalid value: {"labels":{"a":"b"},"Spec":{"Devices":{"Requests":[{"Name":"r"')
