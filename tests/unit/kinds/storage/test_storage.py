from __future__ import annotations

from typing import Any

import pytest

API = "storage.k8s.io/v1"


def test_storageclass_defaults(lifecycle: Any) -> None:
    obj, errs, _ = lifecycle(API, "StorageClass").create({"provisioner": "p"})
    assert (errs, obj["reclaimPolicy"], obj["volumeBindingMode"]) == ([], "Delete", "Immediate")


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (
            {"reclaimPolicy": "Y", "volumeBindingMode": "X"},
            [
                'reclaimPolicy: Unsupported value: "Y": supported values: "Delete", "Retain"',
                'volumeBindingMode: Unsupported value: "X": supported values: "Immediate", "WaitForFirstConsumer"',
                "provisioner: Required value",
            ],
        ),
        ({"provisioner": "p", "parameters": {"": "x"}}, ['parameters: Invalid value: "": field can not be empty.']),
        (
            {"provisioner": "p", "parameters": {str(i): "" for i in range(513)}},
            ["parameters: Too long: may not be more than 512 bytes"],
        ),
        (
            {"provisioner": "p", "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["x"]}]}] * 2},
            ['allowedTopologies[1].matchLabelExpressions: Duplicate value: ""'],
        ),
        (
            {
                "provisioner": "p",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["x", "x"]}]}],
            },
            ['allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "x"'],
        ),
    ],
)
def test_storageclass_rules(lifecycle: Any, body: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, "StorageClass").create(body)[1] == messages


def test_storageclass_update_and_warnings(lifecycle: Any) -> None:
    classes = lifecycle(API, "StorageClass")
    obj, _, _ = classes.create({"provisioner": "p"})
    assert classes.update(obj, provisioner="q", parameters={"a": "b"})[1] == [
        "provisioner: Invalid value: null: field is immutable",
        "parameters: Invalid value: null: field is immutable",
    ]
    assert classes.update(obj, allowVolumeExpansion=True)[1] == []
    topologies = [{"matchLabelExpressions": [{"key": "beta.kubernetes.io/os", "values": ["x"]}]}]
    _, _, warnings = classes.create({"provisioner": "p", "allowedTopologies": topologies})
    assert warnings == [
        'allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.14; use "kubernetes.io/os" instead'
    ]


def test_only_the_newest_default_class_is_marked(lifecycle: Any) -> None:
    classes = lifecycle(API, "StorageClass")
    meta = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    objs = [classes.create({"provisioner": "p", "metadata": meta}, name=name)[0] for name in ("b", "a")]
    objs += [classes.create({"provisioner": "p"}, name="c")[0]]

    def names() -> list[Any]:
        column = classes.strategy.columns_of(objs)[0]
        return [column.cell(obj, classes.ctx.now) for obj in objs]

    assert names() == ["b", "a (default)", "c"]
    objs[0]["metadata"]["creationTimestamp"] = "2029-12-31T12:00:00Z"
    assert names() == ["b (default)", "a", "c"]
    assert classes.cells(objs[0])["Name"] == "b", "alone, nobody knows"


def test_csidriver(lifecycle: Any) -> None:
    drivers = lifecycle(API, "CSIDriver")
    obj, errs, _ = drivers.create({"spec": {}})
    assert errs == []
    assert obj["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "preventPodSchedulingIfMissing": False,
    }
    assert "generation" not in obj["metadata"]
    new, errs, _ = drivers.update(obj, spec={"podInfoOnMount": True})
    assert (errs, new["metadata"]["generation"]) == ([], 1)
    assert drivers.update(obj, spec={"attachRequired": False, "volumeLifecycleModes": ["Ephemeral"]})[1] == [
        "spec.attachedRequired: Invalid value: false: field is immutable",
        'spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable',
    ]
    _, _, warnings = drivers.update(obj, spec={"tokenRequests": [{"audience": "a"}]})
    assert warnings[0].startswith("spec.serviceAccountTokenInSecrets is unset")
    assert drivers.cells(obj)["TokenRequests"] == "<unset>"


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        (
            {"tokenRequests": [{"audience": "a"}, {"audience": "a"}]},
            ['spec.tokenRequests[1].audience: Duplicate value: "a"'],
        ),
        (
            {"tokenRequests": [{"audience": "a", "expirationSeconds": 5}]},
            [
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 5: "
                "may not specify a duration less than 10 minutes"
            ],
        ),
        (
            {"serviceAccountTokenInSecrets": True},
            [
                "spec.serviceAccountTokenInSecrets: Invalid value: true: "
                "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            ],
        ),
        (
            {"nodeAllocatableUpdatePeriodSeconds": 5},
            ["spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 5: must be greater than or equal to 10 seconds"],
        ),
    ],
)
def test_csidriver_rules(lifecycle: Any, spec: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, "CSIDriver").create({"spec": spec})[1] == messages


def test_csinode(lifecycle: Any) -> None:
    nodes = lifecycle(API, "CSINode")
    obj, errs, _ = nodes.create({"spec": {"drivers": [{"name": "d", "nodeID": "n"}]}})
    assert (errs, nodes.cells(obj)["Drivers"]) == ([], 1)
    assert nodes.update(obj, spec={"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": 3}}]})[1] == []
    assert nodes.update(obj, spec={"drivers": [{"name": "d", "nodeID": "z"}]})[1] == [
        'spec.drivers: Invalid value: {"Name":"d","NodeID":"z","TopologyKeys":null,"Allocatable":null}: '
        "field is immutable"
    ]
    drivers = [{"name": "d", "nodeID": "", "allocatable": {"count": -1}}, {"name": "d", "nodeID": "n"}]
    assert nodes.create({"spec": {"drivers": drivers}})[1] == [
        "spec.drivers[0].nodeID: Required value",
        "spec.drivers[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0",
        'spec.drivers[1].name: Duplicate value: "d"',
    ]


def test_csistoragecapacity(lifecycle: Any) -> None:
    capacities = lifecycle(API, "CSIStorageCapacity")
    obj, errs, _ = capacities.create({"storageClassName": "a"})
    assert errs == []
    assert capacities.update(obj, storageClassName="b", nodeTopology={"matchLabels": {"a": "b"}})[1] == [
        'nodeTopology: Invalid value: {"matchLabels":{"a":"b"}}: field is immutable',
        'storageClassName: Invalid value: "b": field is immutable',
    ]
    assert capacities.create({"storageClassName": "a", "capacity": "-1"})[1] == [
        'capacity: Invalid value: "-1": must be greater than or equal to 0'
    ]


ATTACHED = {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}}


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        (ATTACHED, []),
        (
            {**ATTACHED, "source": {}, "attacher": ""},
            [
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
                "spec.attacher: Required value",
            ],
        ),
        ({**ATTACHED, "attacher": "a" * 64}, ["spec.attacher: Too long: may not be more than 63 characters"]),
        (
            {
                **ATTACHED,
                "source": {"inlineVolumeSpec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}},
            },
            [
                "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
                "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
                "spec.source.inlineVolumeSpec: Required value: must specify a volume type",
            ],
        ),
    ],
)
def test_volumeattachment_rules(lifecycle: Any, spec: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle(API, "VolumeAttachment").create({"spec": spec})[1] == messages


def test_volumeattachment_update(lifecycle: Any) -> None:
    attachments = lifecycle(API, "VolumeAttachment")
    obj, _, _ = attachments.create({"spec": ATTACHED})
    assert attachments.update(obj, spec={"attacher": None})[1] == [
        "spec.attacher: Required value",
        "spec: Invalid value: null: field is immutable",
    ]
    new, errs, _ = attachments.update(
        obj, "status", status={"attached": True}, spec={"nodeName": "z"}, metadata={"labels": {"a": "b"}}
    )
    assert (errs, new["spec"], "labels" in new["metadata"]) == ([], obj["spec"], False)
    assert attachments.cells(new)["Attached"] is True
    error = {"attached": False, "attachError": {"message": "x" * 1025, "errorCode": -1}}
    assert attachments.update(obj, "status", status=error)[1] == [
        "status.attachError.message: Too long: may not be more than 1024 bytes",
        "status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ]


def test_volumeattributesclass(lifecycle: Any) -> None:
    classes = lifecycle(API, "VolumeAttributesClass")
    assert classes.create({})[1] == [
        "driverName: Required value",
        "parameters: Required value: must contain at least one key/value pair",
    ]
    obj, errs, _ = classes.create({"driverName": "d", "parameters": {"a": "b"}})
    assert errs == []
    assert classes.update(obj, driverName="e", parameters={"a": "c"})[1] == [
        "driverName: Forbidden: updates to driverName are forbidden.",
        "parameters: Forbidden: updates to parameters are forbidden.",
    ]
