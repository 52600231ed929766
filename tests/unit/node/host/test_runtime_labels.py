"""Labels and annotations in the container runtime: what an agent adopts, and what it replaces."""

from __future__ import annotations

from host_pods import UID, make_pod

from setpoint.node.host import runtime_labels
from setpoint.node.host.runtime_labels import (
    container_annotations,
    container_hash,
    container_labels,
    is_outdated,
    is_owned,
    sandbox_annotations,
    sandbox_labels,
)

IDENTITY = {
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.pod.uid": UID,
    "setpoint.dev/node": "node-1",
}


def test_a_sandbox_has_the_labels_of_the_pod_and_its_identity() -> None:
    pod = make_pod(metadata={"labels": {"app": "web", "setpoint.dev/node": "other", "io.kubernetes.pod.uid": "forged"}})
    labels = sandbox_labels(pod, "node-1")
    assert labels == {"app": "web", **IDENTITY}
    assert is_owned(labels, "node-1")
    assert not is_owned(labels, "node-2")
    assert not is_owned({"io.kubernetes.pod.uid": UID}, "node-1")


def test_a_container_has_the_identity_of_the_pod_only() -> None:
    pod = make_pod(metadata={"labels": {"app": "web"}})
    assert container_labels(pod, "c", "node-1") == {**IDENTITY, "io.kubernetes.container.name": "c"}


def test_annotations_of_pods_pass_to_the_sandbox() -> None:
    static = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "abc", "note": "x"}
    assert sandbox_annotations(make_pod(metadata={"annotations": static})) == static
    assert sandbox_annotations(make_pod()) == {"kubernetes.io/config.source": "api"}


def test_annotations_of_a_container() -> None:
    container = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "a && b"]}}},
        "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http", "hostIP": "::1", "hostPort": 0}],
    }
    pod = make_pod(container, metadata={"deletionGracePeriodSeconds": 5}, terminationGracePeriodSeconds=30)
    assert container_annotations(pod, pod["spec"]["containers"][0], 3) == {
        "io.kubernetes.container.hash": container_hash({"name": "c", "image": "nginx:1"}),
        "setpoint.dev/container-hash-version": "1",
        "io.kubernetes.container.restartCount": "3",
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.pod.deletionGracePeriod": "5",
        "io.kubernetes.pod.terminationGracePeriod": "30",
        "io.kubernetes.container.preStopHandler": '{"exec":{"command":["sh","-c","a \\u0026\\u0026 b"]}}',
        "io.kubernetes.container.ports": '[{"name":"http","containerPort":80,"protocol":"TCP","hostIP":"::1"}]',
    }


def test_the_hash_is_that_of_the_kubelet() -> None:
    # The kubelet's own test has this value for this container.
    assert container_hash({"name": "test_container", "image": "foo/image:v1", "args": ["x"]}) == "8e45cbd0"


def test_only_a_change_of_the_image_replaces_a_container() -> None:
    pod = make_pod()
    before = container_annotations(pod, {"name": "c", "image": "nginx:1", "env": []}, 0)
    assert not is_outdated(before, {"name": "c", "image": "nginx:1", "args": ["new"]})
    assert is_outdated(before, {"name": "c", "image": "nginx:2"})


def test_a_hash_of_another_version_replaces_nothing() -> None:
    before = container_annotations(make_pod(), {"name": "c", "image": "nginx:1"}, 0)
    other = {"name": "c", "image": "nginx:2"}
    assert not is_outdated({**before, runtime_labels.HASH_VERSION: "0"}, other)
    assert not is_outdated({runtime_labels.HASH: "1"}, other)
