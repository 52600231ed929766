from typing import Any

import pytest


@pytest.fixture
def migrations(lifecycle: Any) -> Any:
    return lifecycle("storagemigration.k8s.io/v1", "StorageVersionMigration")


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}


def test_spec_is_immutable(migrations: Any) -> None:
    assert migrations.errors({"spec": {"resource": {}}}) == [
        "spec.resource.resource: Required value: resource is required to be set"
    ]
    old = migrations.created({"spec": {"resource": {"resource": "pods"}}})
    _, errors, _ = migrations.update(old, spec={"resource": {"resource": "nodes", "group": "a.b"}})
    assert errors == ['spec: Invalid value: {"Resource":{"group":"a.b","resource":"nodes"}}: field is immutable']


def test_success_is_final(migrations: Any) -> None:
    old = migrations.created({"spec": {"resource": {"resource": "pods", "group": "a.b"}}})
    status = {"resourceVersion": "7", "conditions": [condition("Succeeded")]}
    obj, errors, _ = migrations.update(old, "status", status=status)
    assert errors == []
    assert migrations.cells(obj) == {"Name": "x", "Resource": "pods.a.b", "Status": "Succeeded"}
    _, errors, _ = migrations.update(obj, "status", status={"resourceVersion": "8", "conditions": []})
    assert errors[0] == 'status.resourceVersion: Invalid value: "8": field is immutable'
    assert errors[1].endswith("Success condition cannot be set to false once it is true")
