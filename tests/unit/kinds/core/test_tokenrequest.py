from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.core.serviceaccount import default_token_request, validate_token_request
from setpoint.meta.field import Errors

WEBHOOK = {"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "name": "w"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"expirationSeconds": 5},
            ["spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"],
        ),
        (
            {"expirationSeconds": 2**33},
            ["spec.expirationSeconds: Invalid value: 8589934592: may not specify a duration larger than 2^32 seconds"],
        ),
        (
            {"expirationSeconds": 5, "attestations": {"a": ["b"]}},
            [
                'spec.attestations: Invalid value: {"a":["b"]}: '
                "attestations may only be specified with a webhook bound object reference"
            ],
        ),
        ({"boundObjectRef": WEBHOOK, "audiences": ["a"], "attestations": {"admissionReviewAPIGroups": ["*"]}}, []),
        (
            {"boundObjectRef": WEBHOOK, "audiences": ["a"], "attestations": {"x": ["*"]}},
            ['spec.attestations[x]: Unsupported value: "x": supported values: "admissionReviewAPIGroups"'],
        ),
    ],
)
def test_rules(spec: dict[str, Any], expected: list[str]) -> None:
    request = {"spec": dict(spec)}
    default_token_request(request)
    errs: Errors = []
    validate_token_request(request, errs)
    assert [error.message() for error in errs] == expected
