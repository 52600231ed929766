"""Image pulls: the registry's messages, back-off, pull policies and credentials."""

from __future__ import annotations

import pytest
from images import images_for_tests
from kubectl_runner import until
from real_kubectl import PodClient, pod
from real_registry import PASSWORD, USER, Registry

pytestmark = pytest.mark.real


def test_absent_image_until_it_is_pushed(pods: PodClient, registry: Registry) -> None:
    image = registry.image("late")
    pods.apply(pod("late", image, "sleep", "1000"))
    reason = f": {image}: not found"
    pods.wait_waiting("late", "ErrImagePull", "ImagePullBackOff")
    message = pods.wait_waiting("late", "ImagePullBackOff")
    assert message.startswith(f'Back-off pulling image "{image}": ErrImagePull: ')
    assert reason in message
    pods.has_event("late", "Failed", f'Failed to pull image "{image}": ')
    pods.has_event("late", "Failed", reason)
    pods.has_event("late", "Failed", "Error: ErrImagePull")
    pods.has_event("late", "Failed", "Error: ImagePullBackOff")
    pods.has_event("late", "BackOff", f'Back-off pulling image "{image}"')
    assert pods.get("late")["status"]["phase"] == "Pending"

    registry.push("late", images_for_tests()["busybox"])
    pods.wait_ready("late", 90.0)


def test_registry_that_does_not_answer(pods: PodClient) -> None:
    pods.apply(pod("refused", "127.0.0.1:5999/busybox:1"))
    pods.wait_waiting("refused", "ErrImagePull", "ImagePullBackOff")
    pods.has_event("refused", "Failed", "connect: connection refused")


def test_invalid_name(pods: PodClient) -> None:
    pods.apply(pod("invalid", "Not_A_Valid//Name"))
    message = pods.wait_waiting("invalid", "InvalidImageName")
    assert "couldn't parse image name" in message
    pods.has_event("invalid", "InspectFailed")


def test_pull_policy_never(pods: PodClient, registry: Registry) -> None:
    image = registry.image("web-next")
    pods.apply(pod("never", image, container={"imagePullPolicy": "Never"}))
    message = pods.wait_waiting("never", "ErrImageNeverPull")
    assert message == f'Container image "{image}" is not present with pull policy of Never'
    pods.has_event("never", "ErrImageNeverPull")


def test_present_image_is_not_pulled_again(pods: PodClient, registry: Registry) -> None:
    image = registry.image("tools")
    for name in ("first", "second"):
        pods.run(pod(name, image, "sleep", "1000"))
    pods.has_event("second", "Pulled", f'Container image "{image}" already present on machine')
    assert "Pulling" not in [reason for reason, _ in pods.events("second")]


def test_private_registry(pods: PodClient, private_registry: Registry) -> None:
    image = private_registry.image("busybox")
    pods.apply(pod("without", image, "sleep", "1000", imagePullSecrets=[{"name": "login"}]))
    message = pods.wait_waiting("without", "ErrImagePull", "ImagePullBackOff")
    pods.has_event("without", "FailedToRetrieveImagePullSecret", "some image pull secrets (login);")
    # The texts of containerd 1.x and 2.x.
    assert "401 Unauthorized" in message or "authorization failed" in message

    login = [f"--docker-server={private_registry.host}", f"--docker-username={USER}", f"--docker-password={PASSWORD}"]
    pods.kubectl("create", "secret", "docker-registry", "login", *login)
    pods.run(pod("with", image, "sleep", "1000", imagePullSecrets=[{"name": "login"}]))
    pods.run(pod("with-again", image, "sleep", "1000", imagePullSecrets=[{"name": "login"}]))
    assert PASSWORD not in str(pods.events("with"))


def test_image_volume(pods: PodClient, registry: Registry) -> None:
    mounts = {"volumeMounts": [{"name": "files", "mountPath": "/files"}]}
    volume = {"name": "files", "image": {"reference": registry.image("web"), "pullPolicy": "Always"}}
    pods.apply(pod("mounts", registry.image("busybox"), "sleep", "1000", container=mounts, volumes=[volume]))
    pods.has_event("mounts", "Pulled", f'Successfully pulled image "{registry.image("web")}"')
    runtime = pods.kubectl.get("node", "real-1")["status"]["nodeInfo"]["containerRuntimeVersion"]
    if runtime.startswith("containerd://1."):
        assert "failed to generate spec" in pods.wait_waiting("mounts", "CreateContainerError")
    else:
        pods.wait_ready("mounts")
        assert "serve" in pods.execute("mounts", "ls /files/bin").split()


def test_status_names_the_image(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("web", registry.image("web")))
    status = pods.status("web")
    assert status["image"] == registry.image("web")
    assert status["imageID"] == f"{registry.host}/web@{images_for_tests()['web'].digest}"
    until(lambda: registry.image("web") in str(pods.kubectl.get("node", "real-1")["status"].get("images", [])), 60.0)
