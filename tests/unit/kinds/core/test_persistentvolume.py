from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

AFFINITY = {
    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]}
}
NOW = "2030-01-01T00:00:00Z"


def body(source: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    source = {"hostPath": {"path": "/x"}} if source is None else source
    return {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source, **spec}}


@pytest.fixture
def volumes(lifecycle: Any) -> Any:
    return lifecycle("v1", "PersistentVolume")


def test_defaults(volumes: Any) -> None:
    obj = volumes.created({**body(), "status": {"phase": "Bound"}})
    assert obj["status"] == {"phase": "Pending", "lastPhaseTransitionTime": NOW}
    assert obj["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert obj["spec"]["volumeMode"] == "Filesystem"
    assert obj["spec"]["hostPath"] == {"path": "/x", "type": ""}
    rbd = volumes.decoded(body({"rbd": {"monitors": ["m"], "image": "i"}}))["spec"]["rbd"]
    assert (rbd["pool"], rbd["user"], rbd["keyring"]) == ("rbd", "admin", "/etc/ceph/keyring")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (body(capacity={"storage": "0"}), ['spec.capacity[storage]: Invalid value: "0": must be greater than zero']),
        (
            body(accessModes=["ReadWriteOncePod", "ReadWriteMany"]),
            ["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
        ),
        (body({}), ["spec: Required value: must specify a volume type"]),
        (
            body({"hostPath": {"path": "/"}, "nfs": {}}),
            ["spec.nfs: Forbidden: may not specify more than 1 volume type"],
        ),
        (body({"local": {"path": "/a"}}), ["spec.nodeAffinity: Required value: Local volume requires node affinity"]),
        (
            body({"hostPath": {"path": "/a/.."}}, persistentVolumeReclaimPolicy="Recycle"),
            [
                "spec.hostPath.path: Invalid value: \"/a/..\": must not contain '..'",
                "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
            ],
        ),
        (
            body({"iscsi": {"targetPortal": "a", "iqn": "foo"}}),
            ['spec.iscsi.iqn: Invalid value: "foo": must be valid format'],
        ),
        (
            body({"csi": {"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "a"}}}),
            ["spec.csi.nodePublishSecretRef.namespace: Required value"],
        ),
        (
            body(volumeAttributesClassName="a"),
            ["spec.csi: Required value: has to be specified when using volumeAttributesClassName"],
        ),
        (
            {**body(), "metadata": {"annotations": {"volume.beta.kubernetes.io/mount-options": "x"}}},
            [
                "metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: "
                "may not specify mount options for this volume type"
            ],
        ),
    ],
)
def test_rules(volumes: Any, given: dict[str, Any], expected: list[str]) -> None:
    assert volumes.errors(given) == expected


def test_volume_source_is_immutable(volumes: Any) -> None:
    old = volumes.created(body())
    assert volumes.put(old, body({"hostPath": {"path": "/y"}}))[1] == [
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n"
        '@@ -2,7 +2,7 @@\n  "GCEPersistentDisk": null,\n  "AWSElasticBlockStore": null,\n  "HostPath": {\n'
        '-  "Path": "/x",\n+  "Path": "/y",\n   "Type": ""\n  },\n  "Glusterfs": null,\n'
    ]
    csi = {"csi": {"driver": "d", "volumeHandle": "h"}}
    expandable = deepcopy(csi)
    expandable["csi"]["controllerExpandSecretRef"] = {"name": "a", "namespace": "b"}  # type: ignore[assignment]
    assert volumes.put(volumes.created(body(csi)), body(expandable))[1] == []
    assert volumes.put(volumes.created(body(expandable)), body(csi))[1] != []


def test_affinity_may_only_move_to_general_labels(volumes: Any) -> None:
    old = volumes.created(body(nodeAffinity=AFFINITY))
    general, other = deepcopy(AFFINITY), deepcopy(AFFINITY)
    general["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["key"] = "kubernetes.io/os"
    other["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["key"] = "x"
    assert volumes.put(old, body(nodeAffinity=general))[1] == []
    assert volumes.put(old, body(nodeAffinity=other))[1] == [
        'nodeAffinity: Invalid value: {"Required":{"NodeSelectorTerms":[{"MatchExpressions":[{"Key":"x",'
        '"Operator":"Exists","Values":null}],"MatchFields":null}]}}: '
        "field is immutable, except for updating from beta label to GA"
    ]


def test_a_change_of_phase_sets_the_transition_time(volumes: Any) -> None:
    old = volumes.created(body())
    old["status"]["lastPhaseTransitionTime"] = "2025-01-01T00:00:00Z"
    assert volumes.put(old, {"status": {"phase": "Available"}}, "status")[0]["status"] == {
        "phase": "Available",
        "lastPhaseTransitionTime": NOW,
    }
    same = volumes.put(old, {"status": {"phase": "Pending", "message": "m"}}, "status")[0]["status"]
    assert same["lastPhaseTransitionTime"] == "2025-01-01T00:00:00Z"


def test_warnings(volumes: Any) -> None:
    obj = body({"rbd": {"monitors": ["m"], "image": "i"}}, nodeAffinity=AFFINITY)
    assert volumes.warnings(obj) == [
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: "
        'beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead',
        "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
    ]


def test_row(volumes: Any) -> None:
    claim = {"namespace": "a", "name": "b"}
    obj = volumes.created(body(accessModes=["ReadWriteMany", "ReadWriteOnce"], claimRef=claim))
    assert volumes.cells(obj) == {
        "Name": "x",
        "Capacity": "1Gi",
        "Access Modes": "RWO,RWX",
        "Reclaim Policy": "Retain",
        "Status": "Pending",
        "Claim": "a/b",
        "StorageClass": "",
        "VolumeAttributesClass": "<unset>",
        "Reason": "",
        "Age": "24h",
        "VolumeMode": "Filesystem",
    }
    obj["metadata"]["deletionTimestamp"] = NOW
    assert volumes.cells(obj)["Status"] == "Terminating"
