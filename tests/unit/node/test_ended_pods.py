"""What the status says at the end of Pods some of whose containers never ran, and after changes during an absence of the
agent."""

from __future__ import annotations

from typing import Any, cast

from scripted_pod import ScriptedPod
from scripted_runtime import CANNOT_START

from setpoint.kinds.typed import Pod
from setpoint.meta.objects import Obj
from setpoint.node.container_state import container_states
from setpoint.node.dependencies import ObjectLister
from setpoint.node.pod_status import PodState, mark_unlocated, pod_status, status_changes

IMAGE = "example.com/image:1"
UNLOCATED = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}


def scripted_pod(*containers: str, **spec: Any) -> ScriptedPod:
    main = [{"name": name, "image": IMAGE} for name in containers]
    return ScriptedPod(
        {"containers": main, "restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "volumes": []} | spec
    )


def fail(pod: ScriptedPod, *names: str, problem: str = "it failed", turns: int = 12) -> None:
    """Let everything succeed except the operations with these names."""
    for _ in range(turns):
        pod.sync()
        if not pod.runtime.completable:
            return
        found = pod.runtime.completable[0]
        pod.complete(found, problem if found.name in names else "")
    pod.sync()


def states(pod: ScriptedPod, field: str = "containerStatuses") -> list[Obj]:
    return [each["state"] for each in pod.stored["status"][field]]


def test_containers_without_an_end_of_their_own() -> None:
    pod = scripted_pod("one", "two", activeDeadlineSeconds=50)
    fail(pod, "start two")
    assert [*map(next, map(iter, states(pod)))] == ["running", "waiting"]
    pod.advance(51.0)
    pod.settle()
    one, two = states(pod)
    assert one["terminated"]["exitCode"] == 0 and two == {"terminated": UNLOCATED}
    status = pod.stored["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert pod.events.count("DeadlineExceeded", "") == 4
    # An agent that is started later leaves it so.
    pod.crash(with_effect=False, stops_go_on=True)
    pod.sync()
    assert pod.stored["status"] == status


def test_a_container_that_waits_for_its_restart_has_no_end_of_its_own() -> None:
    pod = scripted_pod("one", restartPolicy="Always", activeDeadlineSeconds=50)
    fail(pod, "start one", problem=CANNOT_START)
    pod.advance(51.0)
    pod.settle()
    (status,) = pod.stored["status"]["containerStatuses"]
    assert status["state"] == {"terminated": UNLOCATED}
    assert status["lastState"]["terminated"]["reason"] == "StartError"
    pod.crash(with_effect=False, stops_go_on=True)
    pod.sync()
    assert pod.stored["status"]["containerStatuses"] == [status]


def test_containers_of_a_pod_that_was_not_initialized_keep_waiting() -> None:
    init = [{"name": name, "image": IMAGE} for name in ("first", "second", "third")]
    pod = scripted_pod("main", initContainers=init, activeDeadlineSeconds=50)
    fail(pod, "start first", turns=9)
    pod.advance(51.0)
    pod.settle()
    first, second, third = states(pod, "initContainerStatuses")
    assert first == {"terminated": UNLOCATED}, "at least the first one is reported as terminated"
    assert {*second, *third} == {"waiting"} and "waiting" in states(pod)[0]


def test_a_rejected_pod_has_a_status_of_the_rejection_alone() -> None:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "example.com/gate", "status": "True"}]
    pod = cast(
        Pod, {"metadata": {"uid": "u", "generation": 3}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}}
    )
    state = PodState("192.0.2.1", failure=("OutOfcpu", "Pod was rejected: too much"), rejected=True, ended=True)
    containers = container_states(pod["spec"])
    before: Obj = {"phase": "Pending", "qosClass": "Burstable", "conditions": conditions}
    status = pod_status(pod, containers, state, before, 0.0)
    assert status_changes(before, status) == {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: too much",
        "startTime": "1970-01-01T00:00:00Z",
        "observedGeneration": 3,
        "conditions": [{"type": "PodScheduled", "$patch": "delete"}],
    }
    assert not status_changes({**before, **status}, pod_status(pod, containers, state, {**before, **status}, 9.0))


def test_addresses_and_resources_of_the_first_status() -> None:
    spec: Obj = {
        "hostNetwork": True,
        "containers": [
            {"name": "a", "image": IMAGE, "resources": {"requests": {"cpu": "33m", "memory": "10Mi"}}},
            {"name": "b", "image": IMAGE, "resources": {"requests": {"cpu": "1m"}, "limits": {"cpu": "50m"}}},
        ],
    }
    pod = cast(Pod, {"metadata": {"uid": "u"}, "spec": spec})
    containers = container_states(spec)
    status = pod_status(pod, containers, PodState("192.0.2.1", ("192.0.2.1", "fd00::1")), {}, 0.0)
    assert status["podIP"] == "192.0.2.1"
    assert status["podIPs"] == status["hostIPs"] == [{"ip": "192.0.2.1"}, {"ip": "fd00::1"}]
    assert status["resources"] == {"requests": {"cpu": "34m", "memory": "10Mi"}, "limits": {"cpu": "50m"}}
    assert status["allocatedResources"] == {"cpu": "34m", "memory": "10Mi"}
    # A resize that is not allocated yet does not count.
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert pod_status(pod, containers, PodState("192.0.2.1"), {}, 0.0)["allocatedResources"]["cpu"] == "34m"
    plain = cast(Pod, {"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "a", "image": IMAGE}]}})
    status = pod_status(plain, container_states(plain["spec"]), PodState("192.0.2.1"), {}, 0.0)
    assert status["resources"] == {} and "allocatedResources" not in status and "podIP" not in status


def test_a_deleted_pod_that_never_ran() -> None:
    pod = cast(Pod, {"metadata": {"uid": "u", "deletionTimestamp": "t"}, "spec": {"containers": [{"name": "c"}]}})
    containers = container_states(pod["spec"])
    mark_unlocated(pod, containers, False, {})
    status = pod_status(pod, containers, PodState("192.0.2.1", ended=True), {"phase": "Pending"}, 0.0)
    assert status["phase"] == "Failed"
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady"), "as before the end"


def test_an_image_that_changes_while_the_agent_is_away() -> None:
    pod = scripted_pod("main", restartPolicy="Always")
    pod.settle()
    pod.change_image(0)
    pod.crash(with_effect=False, stops_go_on=True)
    pod.settle()
    (run,) = pod.runtime.running
    assert run.image == "example.com/image:2" and run.record.attempt == 1
    assert pod.events.count("Killing", "spec.containers{main}") == 1


# -- images -----------------------------------------------------------------------------------------------------------


class Secrets:
    def secret(self, namespace: str, name: str) -> Obj | None:
        return {"metadata": {"name": name}} if name == "known" else None


def test_missing_pull_secrets_are_reported_with_a_failed_pull() -> None:
    pod = scripted_pod("main", imagePullSecrets=[{"name": each} for each in ("known", "one", "two")])
    pod.worker.dependencies.lister = cast(ObjectLister, Secrets())
    fail(pod, "pull image")
    text = "Unable to retrieve some image pull secrets (one, two); attempting to pull the image may not succeed."
    assert ("FailedToRetrieveImagePullSecret", text, "") in pod.events.found
    assert pod.events.found[-1][0] == "FailedToRetrieveImagePullSecret"
    pod.settle()
    assert pod.events.count("FailedToRetrieveImagePullSecret", "") == 1


def test_image_volumes_are_pulled_before_containers_start() -> None:
    volume = {"name": "files", "image": {"reference": "example.com/files:1", "pullPolicy": "IfNotPresent"}}
    pod = scripted_pod("main", "other", volumes=[volume])
    pod.stored["spec"]["containers"][0]["volumeMounts"] = [{"name": "files", "mountPath": "/files"}]
    pod = ScriptedPod(pod.stored["spec"])
    started: list[Obj] = []
    pod.runtime.on_start_request = lambda config: started.append(dict(config.image_volumes))
    fail(pod, "pull image", turns=4)
    # The container that mounts the image waits; the other one needs it no more than its own image.
    status = {each["name"]: each["state"] for each in pod.stored["status"]["containerStatuses"]}
    assert status["main"]["waiting"] == {"reason": "ErrImagePull", "message": "it failed"}
    failed = [each for each in pod.events.found if each[0] in ("Pulling", "Failed")]
    assert failed[:3] == [
        ("Pulling", 'Pulling image "example.com/files:1"', ""),
        ("Failed", 'Failed to pull image "example.com/files:1": it failed', ""),
        ("Failed", "Error: ErrImagePull", "spec.containers{main}"),
    ]
    pod.advance(2.0)
    status = {each["name"]: each["state"] for each in pod.stored["status"]["containerStatuses"]}
    message = 'Back-off pulling image "example.com/files:1": ErrImagePull: it failed'
    assert status["main"]["waiting"] == {"reason": "ImagePullBackOff", "message": message}
    pod.settle()
    assert {"files": "example.com/files:1@sha256:1"} in started
    assert len(started) == 2 and len(pod.runtime.running) == 2
