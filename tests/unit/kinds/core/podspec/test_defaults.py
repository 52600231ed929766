from typing import Any

import pytest

from setpoint.kinds.core.podspec import default_pod_spec, default_pod_template
from setpoint.kinds.core.podspec.defaults import default_pull_policy, default_volume


def test_defaults_of_an_empty_spec() -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "nginx", "resources": {}}]}
    default_pod_spec(spec)
    assert spec == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    }


def test_defaults_do_not_replace_given_values() -> None:
    spec = {
        "containers": [{"name": "c", "image": "nginx", "imagePullPolicy": "Never", "terminationMessagePolicy": "X"}],
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
        "securityContext": {"fsGroup": 1},
    }
    default_pod_spec(spec)
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"] == {"fsGroup": 1}
    assert spec["containers"][0]["imagePullPolicy"] == "Never"  # type: ignore[index]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"serviceAccount": "old"}, "old"),
        ({"serviceAccountName": "new"}, "new"),
        ({"serviceAccountName": "new", "serviceAccount": "old"}, "new"),
    ],
)
def test_both_names_of_the_service_account_agree(given: dict[str, Any], expected: str) -> None:
    template = {"spec": given}
    default_pod_template(template)
    assert (given["serviceAccountName"], given["serviceAccount"]) == (expected, expected)


def test_probes_ports_and_variables() -> None:
    container: dict[str, Any] = {
        "image": "i:1",
        "ports": [{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}],
        "livenessProbe": {"httpGet": {"port": 1}, "periodSeconds": 7},
        "readinessProbe": {"grpc": {"port": 1, "service": None}},
        "lifecycle": {"preStop": {"httpGet": {"port": 1}}, "stopSignal": "SIGTERM"},
        "env": [
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
            {"name": "B", "valueFrom": {"fileKeyRef": {}}},
        ],
        "resources": {"limits": {"cpu": "100u", "memory": "1Gi"}},
    }
    default_pod_spec({"containers": [container]})
    assert [port["protocol"] for port in container["ports"]] == ["TCP", "UDP"]
    assert container["livenessProbe"] == {
        "httpGet": {"port": 1, "path": "/", "scheme": "HTTP"},
        "periodSeconds": 7,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container["readinessProbe"]["grpc"]["service"] == ""
    assert container["lifecycle"]["preStop"]["httpGet"]["path"] == "/"
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["env"][1]["valueFrom"]["fileKeyRef"]["optional"] is False
    assert container["resources"]["limits"] == {"cpu": "1m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"emptyDir": {}}),
        ({"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}),
        ({"hostPath": {"path": "/"}}, {"hostPath": {"path": "/", "type": ""}}),
        ({"iscsi": {}}, {"iscsi": {"iscsiInterface": "default"}}),
        ({"rbd": {"pool": "p"}}, {"rbd": {"pool": "p", "user": "admin", "keyring": "/etc/ceph/keyring"}}),
        ({"scaleIO": {}}, {"scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"}}),
        ({"image": {"reference": "r:1"}}, {"image": {"reference": "r:1", "pullPolicy": "IfNotPresent"}}),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
        ),
        (
            {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"volumeMode": "Filesystem"}}}},
        ),
        (
            {"azureDisk": {"kind": "Managed"}},
            {"azureDisk": {"kind": "Managed", "cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False}},
        ),
    ],
)
def test_volumes(given: dict[str, Any], expected: dict[str, Any]) -> None:
    volume = {"name": "v", **given}
    default_volume(volume)
    assert volume == {"name": "v", **expected}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("localhost:5000/nginx", "Always"),
        ("Registry.io/nginx", "Always"),
        ("a:latest@sha256:" + "a" * 64, "Always"),
        ("nginx:1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
        ("NGINX", "IfNotPresent"),
        ("not an image", "IfNotPresent"),
        ("a" * 64, "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_default_pull_policy_depends_on_the_tag(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy
