from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.kinds.core.pod import STRATEGY
from setpoint.kinds.strategy import Context
from setpoint.meta.field import FieldError

CTX = Context(now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def pod(container: dict[str, Any] | None = None, meta: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    obj = {
        "metadata": {"name": "p", "namespace": "n", **(meta or {})},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}, **(container or {})}], **fields},
    }
    STRATEGY.default(obj)
    return obj


def created(*args: Any, **kwargs: Any) -> dict[str, Any]:
    obj = pod(*args, **kwargs)
    STRATEGY.prepare_for_create(obj, CTX)
    return obj


def update(old: dict[str, Any], new: dict[str, Any], subresource: str = "") -> list[str]:
    """Return the errors of an update; `new` is prepared in place."""
    strategy = STRATEGY.subresources[subresource] if subresource else STRATEGY
    before = deepcopy(old)
    strategy.default(new)
    strategy.prepare_for_update(new, old, CTX)
    errs: list[FieldError] = []
    strategy.validate_update(new, old, errs, CTX)
    assert old == before, "the stored object is shared"
    return [error.message() for error in errs]


def changed(old: dict[str, Any], container: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    new = deepcopy(old)
    new["spec"].update(fields)
    new["spec"]["containers"][0].update(container or {})
    return new


# -- defaults and creation --------------------------------------------------------------------------------------------


def test_defaults_that_only_pods_get() -> None:
    spec = pod({"resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 5}]}, hostNetwork=True)["spec"]
    assert spec["enableServiceLinks"] is True
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert spec["containers"][0]["ports"][0]["hostPort"] == 5
    assert pod(terminationGracePeriodSeconds=-5)["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"podIP": "1.1.1.1"}, {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]}),
        ({"podIPs": [{"ip": "1.1.1.1"}]}, {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]}),
        ({"podIP": "1.1.1.1", "podIPs": [{"ip": "2.2.2.2"}]}, {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]}),
    ],
)
def test_pod_ip_and_pod_ips_agree(given: dict[str, Any], expected: dict[str, Any]) -> None:
    obj = {"metadata": {}, "spec": {"containers": []}, "status": given}
    STRATEGY.default(obj)
    assert obj["status"] == expected


def test_a_new_pod_is_pending_regardless_of_its_given_status() -> None:
    obj = pod()
    obj["status"] = {"phase": "Running"}
    STRATEGY.prepare_for_create(obj, CTX)
    assert obj["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert obj["metadata"]["generation"] == 1


def test_scheduling_gates_set_a_condition() -> None:
    assert created(schedulingGates=[{"name": "g"}])["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    ]


def test_match_label_keys_become_part_of_the_selector() -> None:
    term = {"topologyKey": "z", "labelSelector": {}, "matchLabelKeys": ["a", "gone"], "mismatchLabelKeys": ["b"]}
    obj = created(
        meta={"labels": {"a": "1", "b": "2"}},
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    )
    found = obj["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert found["labelSelector"]["matchExpressions"] == [
        {"key": "a", "operator": "In", "values": ["1"]},
        {"key": "b", "operator": "NotIn", "values": ["2"]},
    ]


def test_the_old_app_armor_annotation_becomes_a_field_with_a_warning() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c"
    warning = f'metadata.annotations[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    obj = created(meta={"annotations": {key: "localhost/x"}})
    profile = obj["spec"]["containers"][0]["securityContext"]["appArmorProfile"]
    assert profile == {"type": "Localhost", "localhostProfile": "x"}
    assert STRATEGY.warnings_on_create(obj, CTX) == [warning]
    both = created(
        {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, {"annotations": {key: "unconfined"}}
    )
    assert STRATEGY.warnings_on_create(both, CTX) == []


def test_fields_of_features_that_are_off_are_dropped() -> None:
    obj = created(
        {"lifecycle": {"stopSignal": "SIGTERM"}, "livenessProbe": {"grpc": {"port": 1, "mode": "TLS"}}},
        {"annotations": {"pod.beta.kubernetes.io/init-containers": "x"}},
        schedulingGroup={"podGroupName": "g"},
        volumes=[{"name": "v", "secret": {"secretName": "s", "defaultUser": 1}}],
    )
    container = obj["spec"]["containers"][0]
    assert "lifecycle" not in container
    assert "mode" not in container["livenessProbe"]["grpc"]
    assert "schedulingGroup" not in obj["spec"]
    assert "defaultUser" not in obj["spec"]["volumes"][0]["secret"]
    assert obj["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (
            pod({"image": " i"}),
            'spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace',
        ),
        (
            pod(ephemeralContainers=[{"name": "e", "image": "i"}]),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            pod(nodeName="n", schedulingGates=[{"name": "g"}]),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            pod(
                volumes=[
                    {
                        "name": "v",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]},
                    }
                ]
            ),
            "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
        ),
        (
            pod(meta={"annotations": {"controller.kubernetes.io/pod-deletion-cost": "+1"}}),
            'metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer',
        ),
    ],
)
def test_rules_that_only_pods_have(obj: dict[str, Any], expected: str) -> None:
    errs: list[FieldError] = []
    STRATEGY.validate(obj, errs, CTX)
    assert [error.message() for error in errs] == [expected]


def test_a_name_that_is_not_a_dns_label_causes_a_warning() -> None:
    found = STRATEGY.warnings_on_create(created(meta={"name": "a.b"}), CTX)
    assert found == [
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
        "a DNS label is recommended: [must not contain dots]"
    ]


# -- deletion and selection -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "phase", "requested", "expected"),
    [
        ({"nodeName": "n"}, "Running", None, 30),
        ({"nodeName": "n"}, "Running", 5, 5),
        ({"nodeName": "n"}, "Running", 0, 0),
        ({"nodeName": "n"}, "Running", -1, 1),
        ({}, "Pending", 5, 0),
        ({"nodeName": "n"}, "Succeeded", 5, 0),
        ({"nodeName": "n"}, "Failed", None, 0),
    ],
)
def test_grace_period(fields: dict[str, Any], phase: str, requested: int | None, expected: int) -> None:
    obj = pod(**fields)
    obj["status"] = {"phase": phase}
    assert STRATEGY.grace_period(obj, requested) == expected


def test_selectable_fields() -> None:
    obj = created(nodeName="n1", hostNetwork=True)
    fields = STRATEGY.selectable_fields(obj)
    assert fields["spec.nodeName"] == fields["spec.host"] == "n1"
    assert fields["spec.hostNetwork"] == "true"
    assert fields["status.phase"] == "Pending"
    assert fields.keys() <= STRATEGY.field_labels


# -- updates ----------------------------------------------------------------------------------------------------------


def test_an_image_may_change_and_counts_as_a_new_generation() -> None:
    old = created()
    new = changed(old, {"image": "j"})
    assert update(old, new) == []
    assert new["metadata"]["generation"] == 2
    same = changed(old)
    assert update(old, same) == []
    assert same["metadata"]["generation"] == 1


def test_a_refused_change_is_shown_as_a_difference() -> None:
    old = created()
    (text,) = update(old, changed(old, {"command": ["<x>"]}))
    head, _, difference = text.partition("\n")
    assert head.startswith("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,")
    assert difference == (
        '@@ -5,7 +5,9 @@\n   {\n    "Name": "c",\n    "Image": "i",\n-   "Command": null,\n+   "Command": [\n'
        '+    "\\u003cx\\u003e"\n+   ],\n    "Args": null,\n    "WorkingDir": "",\n    "Ports": null,\n'
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"activeDeadlineSeconds": 5}, None),
        ({"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 5}, None),
        (
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 9},
            "spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value",
        ),
        (
            {"tolerations": [{"key": "k", "operator": "Exists"}]},
            {"tolerations": []},
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        ({}, {"tolerations": [{"key": "k", "operator": "Exists"}]}, None),
        (
            {"schedulingGates": [{"name": "g"}]},
            {"schedulingGates": [{"name": "g"}, {"name": "h"}]},
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'",
        ),
        ({"schedulingGates": [{"name": "g"}]}, {"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}}, None),
        (
            {"schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}},
            {"nodeSelector": {"a": "c"}},
            'spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)',
        ),
        ({}, {"containers": []}, "spec.containers: Forbidden: pod updates may not add or remove containers"),
    ],
)
def test_mutable_fields(before: dict[str, Any], after: dict[str, Any], expected: str | None) -> None:
    old = created(**before)
    new = deepcopy(old)
    new["spec"].update(after)
    found = update(old, new)
    assert (expected in found) if expected else not found


def test_node_affinity_of_a_gated_pod_may_only_narrow() -> None:
    def affinity(*expressions: str) -> dict[str, Any]:
        terms = [{"matchExpressions": [{"key": key, "operator": "Exists"} for key in expressions]}]
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}

    old = created(schedulingGates=[{"name": "g"}], affinity=affinity("a"))
    assert update(old, changed(old, affinity=affinity("a", "b"))) == []
    (text,) = update(old, changed(old, affinity=affinity("b")))
    assert text.endswith("only additions are allowed (no mutations or deletions)")
    assert '{"MatchExpressions":[{"Key":"b","Operator":"Exists","Values":null}],"MatchFields":null}' in text


@pytest.mark.parametrize("subresource", ["", "status"])
def test_mirror_and_app_armor_annotations_are_immutable(subresource: str) -> None:
    old = created(meta={"annotations": {"kubernetes.io/config.mirror": "x"}}, nodeName="n")
    new = deepcopy(old)
    new["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}
    assert update(old, new, subresource)[:2] == [
        "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation",
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may not add AppArmor annotations",
    ]


# -- ephemeral containers ---------------------------------------------------------------------------------------------


def test_ephemeral_containers_can_only_be_added() -> None:
    old = created(meta={"labels": {"a": "b"}})
    new = changed(old, {"image": "other"}, ephemeralContainers=[{"name": "e", "image": "i", "resources": {}}])
    new["metadata"]["labels"] = {}
    assert update(old, new, "ephemeralcontainers") == []
    assert new["spec"]["containers"] == old["spec"]["containers"]
    assert new["metadata"]["labels"] == {"a": "b"}
    assert new["metadata"]["generation"] == 2
    gone = changed(new)
    del gone["spec"]["ephemeralContainers"]
    assert update(new, gone, "ephemeralcontainers") == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "e" may not be removed\n'
    ]
    other = deepcopy(new)
    other["spec"]["ephemeralContainers"][0]["tty"] = True
    (text,) = update(new, other, "ephemeralcontainers")
    assert 'existing ephemeral containers "e" may not be changed\n@@' in text
    assert '- "TTY": false,\n+ "TTY": true,\n' in text


def test_rules_of_ephemeral_containers() -> None:
    old = created()
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 1}], "targetContainerName": "x"}
    assert update(old, changed(old, ephemeralContainers=[container]), "ephemeralcontainers") == [
        'spec.ephemeralContainers[0].name: Duplicate value: "c"',
        'spec.ephemeralContainers[0].targetContainerName: Not found: "x"',
        "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
    ]


# -- resize -----------------------------------------------------------------------------------------------------------


def resized(old: dict[str, Any], **resources: Any) -> dict[str, Any]:
    return changed(old, {"resources": resources, "image": "ignored"})


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"requests": {"cpu": "2"}}, []),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, []),
        (
            {},
            [
                'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            ],
        ),
        (
            {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}},
            ["spec: Forbidden: only cpu and memory resources are mutable"],
        ),
    ],
)
def test_resize(after: dict[str, Any], expected: list[str]) -> None:
    old = created({"resources": {"requests": {"cpu": "1"}}})
    new = resized(old, **after)
    assert update(old, new, "resize") == expected
    assert new["spec"]["containers"][0]["image"] == "i"


def test_resize_requires_a_capable_node() -> None:
    old = created({"resources": {"requests": {"cpu": "1"}}})
    old["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
    assert update(old, resized(old, requests={"cpu": "2"}), "resize") == [
        "spec: Forbidden: Pod running on node without support for resize"
    ]


def test_static_and_windows_pods_cannot_be_resized() -> None:
    mirror = created(meta={"annotations": {"kubernetes.io/config.mirror": "x"}}, nodeName="n")
    assert update(mirror, resized(mirror), "resize") == ["[]: Forbidden: static pods cannot be resized"]
    windows = created(os={"name": "windows"})
    assert update(windows, resized(windows), "resize") == ["[]: Forbidden: windows pods cannot be resized"]
