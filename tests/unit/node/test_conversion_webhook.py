"""The conversion webhook of the agnhost image."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from setpoint.node.runtime.agnhost_webhooks import convert_review


def _review(wanted: str, *objects: dict[str, Any]) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": objects}
    return orjson.dumps({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request})


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        ({"apiVersion": "g/v1", "hostPort": "h:1"}, "g/v2", {"apiVersion": "g/v2", "host": "h", "port": "1"}),
        ({"apiVersion": "g/v2", "host": "h", "port": "1"}, "g/v1", {"apiVersion": "g/v1", "hostPort": "h:1"}),
        ({"apiVersion": "g/v2", "host": "h"}, "g/v1", {"apiVersion": "g/v1", "hostPort": "h:"}),
        ({"apiVersion": "g/v1"}, "g/v2", {"apiVersion": "g/v2"}),
    ],
)
def test_conversion_in_both_directions(given: dict[str, Any], wanted: str, expected: dict[str, Any]) -> None:
    answer = orjson.loads(convert_review(_review(wanted, given)))
    assert answer["response"] == {"uid": "u", "convertedObjects": [expected], "result": {"status": "Success"}}


@pytest.mark.parametrize(
    ("given", "wanted", "said"),
    [
        ({"apiVersion": "g/v1", "hostPort": "h"}, "g/v2", "invalid hostPort value `h`"),
        ({"apiVersion": "g/v1"}, "g/v3", 'unexpected conversion version "g/v3"'),
    ],
)
def test_failed_conversions(given: dict[str, Any], wanted: str, said: str) -> None:
    response = orjson.loads(convert_review(_review(wanted, given)))["response"]
    assert response["result"] == {"status": "Failure", "message": said}
