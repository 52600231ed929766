"""Deployment, ReplicaSet, StatefulSet, DaemonSet and ControllerRevision."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.meta.errors import BadRequest

SELECTOR = {"matchLabels": {"app": "a"}}


def template(labels: dict[str, str] | None = None, **pod: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "a"} if labels is None else labels},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **pod},
    }


def spec(**more: Any) -> dict[str, Any]:
    return {"spec": {"selector": SELECTOR, "template": template(), **more}}


def test_deployment_defaults(lifecycle: Any) -> None:
    obj, errs, warnings = lifecycle("apps/v1", "Deployment").create(spec())
    assert (errs, warnings) == ([], [])
    assert obj["spec"]["replicas"] == 1
    assert obj["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (obj["spec"]["revisionHistoryLimit"], obj["spec"]["progressDeadlineSeconds"]) == (10, 600)
    assert obj["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert obj["status"] == {}


MISMATCH = "`selector` does not match template `labels`"
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)
ROLLING = "spec.strategy.rollingUpdate"


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"replicas": -1}, ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
        ({"selector": {}}, ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]),
        (
            {"template": template({"zz": "1", "aa": "2"})},
            [f'spec.template.metadata.labels: Invalid value: {{"aa":"2","zz":"1"}}: {MISMATCH}'],
        ),
        (
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}},
            [
                "spec.selector.matchExpressions[0].values: Required value: "
                "must be specified when `operator` is 'In' or 'NotIn'",
                'spec.selector: Invalid value: {"matchExpressions":[{"key":"app","operator":"In"}]}: '
                "invalid label selector",
            ],
        ),
        (
            {"template": template(restartPolicy="Never", activeDeadlineSeconds=3)},
            [
                'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
                "spec.template.spec.activeDeadlineSeconds: Forbidden: "
                "activeDeadlineSeconds in ReplicaSet is not Supported",
            ],
        ),
        (
            {"strategy": {"type": "X", "rollingUpdate": {"maxSurge": 1}}},
            [
                'spec.strategy: Unsupported value: {"Type":"X","RollingUpdate":{"MaxUnavailable":0,"MaxSurge":1}}: '
                'supported values: "Recreate", "RollingUpdate"'
            ],
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
            [f"{ROLLING}: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": "abc", "maxUnavailable": "150%"}}},
            [
                f'{ROLLING}.maxSurge: Invalid value: "abc": {PERCENT}',
                f'{ROLLING}.maxUnavailable: Invalid value: "150%": must not be greater than 100%',
            ],
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}},
            [f'{ROLLING}.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0'],
        ),
        (
            {"minReadySeconds": 700},
            ["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"],
        ),
    ],
)
def test_deployment_rules(lifecycle: Any, changes: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle("apps/v1", "Deployment").create(spec(**changes))[1] == messages


def test_names_that_are_not_hostnames_cause_a_warning(lifecycle: Any) -> None:
    for kind in ("Deployment", "ReplicaSet"):
        _, _, (warning,) = lifecycle("apps/v1", kind).create(spec(), name="a.b")
        assert warning.startswith("metadata.name: this is used in Pod names and hostnames")
        assert "a DNS label is recommended: [must not contain dots]" in warning


def test_deployment_generation_counts_annotations_but_not_labels(lifecycle: Any) -> None:
    deployments = lifecycle("apps/v1", "Deployment")
    obj, _, _ = deployments.create(spec())
    for change, generation in (
        ({"spec": {"replicas": 3}}, 2),
        ({"metadata": {"annotations": {"a": "b"}}}, 2),
        ({"metadata": {"labels": {"a": "b"}}}, 1),
        ({"status": {"replicas": 5}}, 1),
    ):
        new, errs, _ = deployments.update(obj, **change)
        assert (errs, new["metadata"]["generation"], new["status"]) == ([], generation, {})
    _, errs, _ = deployments.update(obj, spec={"selector": {"matchLabels": {"app": "a", "b": "c"}}})
    assert 'spec.selector: Invalid value: {"matchLabels":{"app":"a","b":"c"}}: field is immutable' in errs


def test_deployment_status_update_retains_spec_and_labels(lifecycle: Any) -> None:
    deployments = lifecycle("apps/v1", "Deployment")
    obj, _, _ = deployments.create(spec())
    obj["status"]["collisionCount"] = 2
    new, errs, _ = deployments.update(
        obj, "status", status={"replicas": 2}, spec={"replicas": 9}, metadata={"labels": {"a": "b"}}
    )
    assert (errs, new["spec"], "labels" in new["metadata"]) == ([], obj["spec"], False)
    bad = {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3, "unavailableReplicas": -1, "collisionCount": 1}
    assert deployments.update(obj, "status", status=bad)[1] == [
        "status.unavailableReplicas: Invalid value: -1: must be greater than or equal to 0",
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas",
        "status.collisionCount: Invalid value: 1: cannot be decremented",
    ]


@pytest.mark.parametrize(
    ("kind", "annotation", "message"),
    [
        ("DaemonSet", "deprecated.daemonset.template.generation", ""),
        (
            "Deployment",
            "deprecated.deployment.rollback.to",
            "failed to parse annotation[deprecated.deployment.rollback.to]=abc as int64: ",
        ),
    ],
)
def test_annotations_of_former_integer_fields(lifecycle: Any, kind: str, annotation: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        lifecycle("apps/v1", kind).create({**spec(), "metadata": {"annotations": {annotation: "abc"}}})
    why = f'{message}strconv.ParseInt: parsing "abc": invalid syntax'
    assert caught.value.message == f'{kind} in version "v1" cannot be handled as a {kind}: {why}'
    _, errs, _ = lifecycle("apps/v1", kind).create({**spec(), "metadata": {"annotations": {annotation: "4"}}})
    assert errs == []


def test_tables(lifecycle: Any) -> None:
    deployments, sets = lifecycle("apps/v1", "Deployment"), lifecycle("apps/v1", "DaemonSet")
    obj, _, _ = deployments.create(spec())
    assert deployments.cells(obj) == {
        "Name": "x",
        "Ready": "0/1",
        "Up-to-date": 0,
        "Available": 0,
        "Age": "24h",
        "Containers": "c",
        "Images": "i:1",
        "Selector": "app=a",
    }
    daemon, _, _ = sets.create(spec(template=template(nodeSelector={"b": "1", "a": "2"})))
    assert sets.cells(daemon)["Node Selector"] == "a=2,b=1"


def test_daemonset_increments_its_template_generation(lifecycle: Any) -> None:
    sets = lifecycle("apps/v1", "DaemonSet")
    key = "deprecated.daemonset.template.generation"
    obj, errs, _ = sets.create(spec())
    assert (errs, obj["metadata"]["annotations"]) == ([], {key: "1"})
    assert obj["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    new, _, _ = sets.update(obj, spec={"template": template(hostname="h")})
    assert (new["metadata"]["annotations"][key], new["metadata"]["generation"]) == ("2", 2)
    new, _, _ = sets.update(obj, spec={"minReadySeconds": 3}, metadata={"annotations": {key: "9", "own": "o"}})
    assert (new["metadata"]["annotations"], new["metadata"]["generation"]) == ({key: "1", "own": "o"}, 2)


@pytest.mark.parametrize(
    ("rolling", "messages"),
    [
        ({"maxUnavailable": 0}, ["maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]),
        (
            {"maxUnavailable": "10%", "maxSurge": "5%"},
            ['maxSurge: Invalid value: "5%": may not be set when maxUnavailable is non-zero'],
        ),
    ],
)
def test_daemonset_has_either_max_surge_or_max_unavailable(
    lifecycle: Any, rolling: dict[str, Any], messages: list[str]
) -> None:
    _, errs, _ = lifecycle("apps/v1", "DaemonSet").create(spec(updateStrategy={"rollingUpdate": rolling}))
    assert errs == [f"spec.updateStrategy.rollingUpdate.{text}" for text in messages]


CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def test_statefulset_defaults(lifecycle: Any) -> None:
    obj, errs, _ = lifecycle("apps/v1", "StatefulSet").create(spec(volumeClaimTemplates=[CLAIM]))
    assert errs == []
    assert obj["spec"]["podManagementPolicy"] == "OrderedReady"
    assert obj["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 0, "maxUnavailable": 1}
    assert obj["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    claim = obj["spec"]["volumeClaimTemplates"][0]
    assert (claim["kind"], claim["status"], claim["spec"]["volumeMode"]) == (
        "PersistentVolumeClaim",
        {"phase": "Pending"},
        "Filesystem",
    )


def test_statefulset_claims_are_volumes(lifecycle: Any) -> None:
    pod = template(hostname="_", subdomain="_")
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    assert lifecycle("apps/v1", "StatefulSet").create(spec(template=pod, volumeClaimTemplates=[CLAIM]))[1] == []


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        (
            {"updateStrategy": {"type": "B", "rollingUpdate": {"partition": 2}}},
            [
                'spec.updateStrategy: Invalid value: {"Type":"B","RollingUpdate":'
                "{\"Partition\":2,\"MaxUnavailable\":null}}: must be 'RollingUpdate' or 'OnDelete'"
            ],
        ),
        (
            {"updateStrategy": {"rollingUpdate": {"partition": -1, "maxUnavailable": 0}}},
            [
                "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
            ],
        ),
        ({"ordinals": {"start": -1}}, ["spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Y"}},
            [
                'spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Y": '
                'supported values: "Retain", "Delete"'
            ],
        ),
    ],
)
def test_statefulset_rules(lifecycle: Any, changes: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle("apps/v1", "StatefulSet").create(spec(**changes))[1] == messages


def test_statefulset_update(lifecycle: Any) -> None:
    sets = lifecycle("apps/v1", "StatefulSet")
    obj, _, _ = sets.create(spec(serviceName="s"))
    _, errs, _ = sets.update(obj, spec={"serviceName": "t", "podManagementPolicy": "Parallel"})
    assert errs == [
        'spec.serviceName: Invalid value: "t": field is immutable',
        'spec.podManagementPolicy: Invalid value: "Parallel": field is immutable',
    ]
    (claims,) = sets.update(obj, spec={"volumeClaimTemplates": [CLAIM]})[1]
    assert claims.startswith('spec.volumeClaimTemplates: Invalid value: [{"name":"data","Spec":{"AccessModes"')
    _, errs, warnings = sets.update(obj, spec={"replicas": 2, "revisionHistoryLimit": -1})
    assert (errs, len(warnings)) == ([], 1)
    assert warnings[0].startswith("spec.revisionHistoryLimit: a negative value retains all")


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        ({"revision": 1, "data": {"a": 1}}, []),
        ({"revision": -1, "data": {}}, ["revision: Invalid value: -1: must be greater than or equal to 0"]),
        ({"revision": 1}, ["data: Required value: data is mandatory"]),
        ({"revision": 1, "data": [1]}, ["data: Required value: data must be a valid JSON object"]),
    ],
)
def test_controllerrevision_rules(lifecycle: Any, body: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle("apps/v1", "ControllerRevision").create(body)[1] == messages


def test_controllerrevision_data_never_changes(lifecycle: Any) -> None:
    revisions = lifecycle("apps/v1", "ControllerRevision")
    obj, _, _ = revisions.create({"revision": 1, "data": {"a": 1}})
    assert revisions.update(obj, revision=2)[1] == []
    assert revisions.update(obj, data={"b": 1})[1] == ['data: Invalid value: {"b":1}: field is immutable']
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "u", "controller": True}
    ]
    assert revisions.cells(obj)["Controller"] == "statefulset.apps/s"
