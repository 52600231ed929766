from __future__ import annotations

from typing import Any

import pytest

ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def body(size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}}


@pytest.fixture
def claims(lifecycle: Any) -> Any:
    return lifecycle("v1", "PersistentVolumeClaim")


def bound(claims: Any, **spec: Any) -> Any:
    obj = claims.created(body(volumeName="v", **spec))
    obj["status"] = {"phase": "Bound", "capacity": {"storage": "500Mi"}}
    return obj


def test_rules(claims: Any) -> None:
    assert claims.created(body())["status"] == {"phase": "Pending"}
    assert claims.errors({"spec": {"accessModes": ["ReadWriteOnce"]}}) == ["spec.resources[storage]: Required value"]


@pytest.mark.parametrize(
    ("spec", "kept"),
    [
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}}, True),
        ({"dataSource": {"kind": "VolumeSnapshot", "name": "a", "apiGroup": "snapshot.storage.k8s.io"}}, True),
        ({"dataSource": {"kind": "Foo", "name": "a", "apiGroup": "x.y"}}, False),
        ({"dataSourceRef": {"kind": "Foo", "name": "a", "apiGroup": "x.y"}}, True),
        ({"dataSourceRef": {"kind": "Foo", "name": "a", "apiGroup": "x.y", "namespace": "other"}}, False),
    ],
)
def test_data_sources_agree_or_are_dropped(claims: Any, spec: dict[str, Any], kept: bool) -> None:
    stored = claims.created(body(**spec))["spec"]
    assert ("dataSource" in stored, "dataSourceRef" in stored) == (kept, kept)
    if kept:
        assert stored["dataSource"] == stored["dataSourceRef"]
        assert stored["dataSource"]["name"] == "a"


def test_only_a_bound_claim_can_be_expanded(claims: Any) -> None:
    unbound = claims.created(body())
    [error] = claims.put(unbound, body("2Gi"))[1]
    assert error.startswith("spec: Forbidden: spec is immutable after creation except resources.requests and")
    assert '-   "storage": "1Gi"\n+   "storage": "2Gi"\n' in error
    assert claims.put(unbound, body("1024Mi"))[1] == []
    old = bound(claims)
    assert claims.put(old, body("2Gi", volumeName="v"))[1] == []
    assert claims.put(old, body("600Mi", volumeName="v"))[1] == []
    assert claims.put(old, body("500Mi", volumeName="v"))[1] == [
        "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
    ]


def test_volume_name_can_be_set_once(claims: Any) -> None:
    assert claims.put(claims.created(body()), body(volumeName="v"))[1] == []
    assert claims.put(bound(claims), body(volumeName="w"))[1] != []


def test_a_class_may_be_filled_in_and_move_to_its_field(claims: Any) -> None:
    assert claims.put(claims.created(body()), body(storageClassName="c"))[1] == []
    assert claims.put(claims.created(body(storageClassName="c")), body(storageClassName="d"))[1] != []
    noted = claims.created({**body(), "metadata": {"annotations": {ANNOTATION: "c"}}})
    assert claims.put(noted, body(storageClassName="c"))[1] == []
    assert claims.put(noted, body())[1] == [f'metadata.annotations.{ANNOTATION}: Invalid value: "": field is immutable']


def test_status(claims: Any) -> None:
    old = claims.created(body())
    status = {"allocatedResources": {"cpu": "1"}, "allocatedResourceStatuses": {"storage": "X"}, "healthStatus": {}}
    obj, errors = claims.put(old, {"status": status}, "status")
    assert "healthStatus" not in obj["status"]
    assert errors == [
        'status.allocatedResourceStatuses: Unsupported value: "storage": supported values: '
        '"ControllerResizeInProgress", "ControllerResizeInfeasible", '
        '"NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"',
        'status.allocatedResources: Unsupported value: "cpu": supported values: "storage"',
    ]


def test_warnings_and_row(claims: Any) -> None:
    assert claims.warnings(body("1.5")) == [
        'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'
    ]
    row = claims.cells(bound(claims))
    assert (row["Volume"], row["Capacity"], row["Status"]) == ("v", "500Mi", "Bound")
    assert claims.cells(claims.created(body()))["Capacity"] == ""
