"""What the status says about containers that could not be started, or that were stopped by their post-start hook."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_pod import ScriptedPod
from scripted_runtime import CANNOT_START

from setpoint.meta.objects import Obj
from setpoint.node.container_state import Backoff
from setpoint.node.recovery import resumed_delay

IMAGE = "example.com/image:1"
HOOK = {"postStart": {"exec": {"command": ["true"]}}}


def scripted_pod(policy: str = "Always", **container: Any) -> ScriptedPod:
    main = {"name": "main", "image": IMAGE, **container}
    return ScriptedPod({"containers": [main], "restartPolicy": policy, "terminationGracePeriodSeconds": 30})


def until(pod: ScriptedPod, operation: str, problem: str = "") -> None:
    """Let everything succeed up to this operation, which ends with the problem."""
    for _ in range(20):
        pod.sync()
        (found, *_) = pod.runtime.completable
        pod.complete(found, problem if found.name == operation else "")
        if found.name == operation:
            pod.sync()
            return
    raise AssertionError(f"{operation} was not requested")


def shown(pod: ScriptedPod) -> Obj:
    (status,) = pod.stored["status"]["containerStatuses"]
    return dict(status)


def test_a_container_waits_for_its_restart_after_its_post_start_hook_failed() -> None:
    pod = scripted_pod(lifecycle=HOOK)
    until(pod, "post-start hook of main", "it failed")
    # The container ends without waiting for another change of the Pod, and is never reported as ready.
    assert "stop main" in pod.runtime.requests
    assert (shown(pod)["ready"], shown(pod)["started"]) == (False, False)
    (run,) = pod.runtime.running
    pod.exit(run, 0)
    pod.sync()
    assert shown(pod)["state"] == {"waiting": {"reason": "PostStartHookError", "message": "it failed"}}
    assert shown(pod)["lastState"]["terminated"]["exitCode"] == 0
    until(pod, "post-start hook of main", "")
    assert (shown(pod)["ready"], shown(pod)["restartCount"]) == (True, 1)


def test_a_container_waits_for_its_restart_after_it_could_not_be_started() -> None:
    pod = scripted_pod()
    until(pod, "start main", CANNOT_START)
    assert shown(pod)["state"] == {"waiting": {"reason": "RunContainerError", "message": CANNOT_START}}
    assert shown(pod)["lastState"]["terminated"]["reason"] == "StartError"
    until(pod, "start main", CANNOT_START)
    pod.advance(2.0)
    assert shown(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert pod.events.count("BackOff", "spec.containers{main}") == 1


def test_a_container_that_is_not_restarted_is_reported_as_terminated() -> None:
    pod = scripted_pod("Never")
    until(pod, "start main", CANNOT_START)
    assert shown(pod)["state"]["terminated"]["reason"] == "StartError"


def test_a_container_waits_for_the_same_reason_until_it_runs() -> None:
    pod = scripted_pod()
    until(pod, "start main")
    pod.exit(pod.runtime.running[0], 1)
    until(pod, "start main")
    pod.exit(pod.runtime.running[0], 1)
    pod.sync()
    pod.advance(2.0)
    assert shown(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    pod.advance(10.0)
    until(pod, "find image")
    assert [each.name for each in pod.runtime.pending] == ["start main"]
    assert shown(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"


@pytest.mark.parametrize(
    ("image", "policy", "event", "reason"),
    [
        ("Invalid", "IfNotPresent", "InspectFailed", "InvalidImageName"),
        (IMAGE, "Never", "ErrImageNeverPull", "ErrImageNeverPull"),
    ],
)
def test_an_image_that_cannot_be_used_is_reported_again_and_again(
    image: str, policy: str, event: str, reason: str
) -> None:
    pod = scripted_pod(image=image, imagePullPolicy=policy)
    until(pod, "create sandbox")
    for attempt in range(1, 4):
        for lookup in [*pod.runtime.completable]:
            pod.complete(lookup)
        pod.sync()
        assert pod.events.count(event, "spec.containers{main}") == attempt
        assert pod.events.count("Failed", "spec.containers{main}") == attempt
        assert shown(pod)["state"]["waiting"]["reason"] == reason
        pod.advance(10.0)


def test_the_runtime_gets_new_labels_and_annotations() -> None:
    pod = scripted_pod()
    pod.settle()
    for field in ("labels", "annotations"):
        before = pod.runtime.requests.count("update pod")
        pod.change_metadata(field, {"changed": "true"})
        assert pod.runtime.requests.count("update pod") == before + 1


@pytest.mark.parametrize(
    "message", ["back-off for ever restarting", "back-off 1000000000m0s restarting", "back-off s restarting", ""]
)
def test_a_message_that_is_not_the_agents_own_resumes_no_back_off(message: str) -> None:
    assert resumed_delay(message) is None


def test_a_resumed_back_off_is_bounded() -> None:
    assert resumed_delay("back-off 2m40s restarting failed container=a pod=p") == 160.0
    backoff = Backoff(10.0)
    backoff.resume(59_940.0, 0.0)
    assert backoff.ends(1.0) == 301.0
