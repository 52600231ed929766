"""`kubectl explain` of the kinds of the examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from examples.coolstorage_operator import CoolStorage
from examples.gitops import Sync
from examples.postgres_operator import PostgresCluster

from setpoint.meta.objects import Obj
from setpoint.sdk import Kind


def undescribed(schema: Obj, path: str) -> Iterator[str]:
    if not schema.get("description"):
        yield path
    for name, below in schema.get("properties", {}).items():
        yield from undescribed(below, f"{path}.{name}")


@pytest.mark.parametrize("kind", [CoolStorage, Sync, PostgresCluster], ids=lambda kind: kind.ref[1])
def test_every_field_of_the_desired_state_is_described(kind: Kind[Any, Any]) -> None:
    versions = kind.definition()["spec"]["versions"]
    assert [
        path
        for version in versions
        for path in undescribed(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")
    ] == []
