"""Errors of strategic patches after which a document no longer fits its type."""

from __future__ import annotations

import pytest

from setpoint.kinds.tables import type_of
from setpoint.meta.patch.errors import reflection_error

DEPLOYMENT = type_of("io.k8s.api.apps.v1.Deployment")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"spec": {"replicas": 3}}, None),
        ({"spec": {"replicas": 3.0}}, None),
        ({"spec": {"replicas": 1.5}}, "cannot convert float64 to int32"),
        ({"spec": {"replicas": "x"}}, "unrecognized type: int32"),
        ({"spec": {"paused": 1}}, "unrecognized type: bool"),
        ({"metadata": {"labels": {"a": 5}}}, "cannot convert int64 to string"),
        ({"metadata": {"labels": 5}}, "cannot restore map from int64"),
        ({"spec": {"template": []}}, "cannot restore struct from: slice"),
        ({"spec": {"template": {"spec": {"containers": "x"}}}}, "cannot restore slice from string"),
    ],
)
def test_first_type_mismatch(value: object, words: str | None) -> None:
    assert reflection_error(DEPLOYMENT, value) == words
