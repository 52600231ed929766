"""Stories A1 to A5 and graceful termination (D1), in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.errors import Conflict
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, DEPLOYMENTS = builtin("pods"), builtin("deployments", "apps")

MISSING = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nginx:does-not-exist": '
    'failed to resolve reference "docker.io/library/nginx:does-not-exist": '
    "docker.io/library/nginx:does-not-exist: not found"
)


def a_pod(name: str = "simple-pod", /, *, command: list[str] | None = None, image: str = "nginx", **spec: Any) -> Obj:
    container: Obj = {"name": "c", "image": image, **({"command": command} if command else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


async def get(cluster: VirtualCluster, name: str) -> Obj:
    return await cluster.client.get(PODS, name, "default")


async def state(cluster: VirtualCluster, name: str) -> Obj:
    (container,) = (await get(cluster, name))["status"]["containerStatuses"]
    found: Obj = container
    return found


def conditions(pod: Obj) -> dict[str, tuple[str, str, str]]:
    return {
        found["type"]: (found["status"], found.get("reason", ""), found.get("message", ""))
        for found in pod["status"]["conditions"]
    }


@virtual(nodes=1)
async def test_a1_a_minimal_pod_gets_defaults_and_a_status(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod())
    await cluster.sleep(1)
    pod = await get(cluster, "simple-pod")
    spec, status, meta = pod["spec"], pod["status"], pod["metadata"]
    assert meta["uid"] and meta["resourceVersion"] and meta["creationTimestamp"] and meta["generation"] == 1
    assert (spec["dnsPolicy"], spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "ClusterFirst",
        "Always",
        30,
    )
    assert (spec["schedulerName"], spec["nodeName"], len(spec["tolerations"])) == ("default-scheduler", "node-1", 2)
    assert (status["phase"], status["qosClass"], status["observedGeneration"]) == ("Running", "BestEffort", 1)
    assert status["startTime"] and status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["hostIPs"] == [{"ip": status["hostIP"]}]
    assert [found["type"] for found in status["conditions"]] == [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    assert {found["status"] for found in status["conditions"]} == {"True"}
    (container,) = status["containerStatuses"]
    assert container["imageID"].startswith("docker.io/library/nginx@sha256:")
    assert container["image"] == "docker.io/library/nginx:latest"
    assert (container["ready"], container["started"], container["restartCount"]) == (True, True, 0)
    assert set(container["state"]) == {"running"} and container["lastState"] == {}
    assert [(kind, reason) for kind, reason, _ in await cluster.events("simple-pod")] == [
        ("Normal", reason) for reason in ("Scheduled", "Pulling", "Pulled", "Created", "Started")
    ]


@virtual(nodes=1)
async def test_a2_a_watch_shows_each_step(cluster: VirtualCluster) -> None:
    start = (await cluster.client.list(PODS, "default")).resource_version
    slow = a_pod()
    slow["metadata"]["annotations"] = {"simulate.setpoint.dev/pull-seconds": "3"}
    await cluster.client.create(slow)
    await cluster.sleep(5)
    await cluster.client.delete(PODS, "simple-pod", "default")
    await cluster.sleep(1)
    steps: list[tuple[str, str, bool, str]] = []
    async with cluster.client.watch(PODS, "default", resource_version=start, bookmarks=False) as watch:
        while not steps or steps[-1][0] != "DELETED":
            kind, pod = await watch.__anext__()
            shown = ""
            for container in pod["status"].get("containerStatuses") or ():
                ((name, detail),) = container["state"].items()
                shown = detail.get("reason") or name
            steps.append((kind, pod["status"]["phase"], "nodeName" in pod["spec"], shown))
    assert steps[:4] == [
        ("ADDED", "Pending", False, ""),
        ("MODIFIED", "Pending", True, ""),
        ("MODIFIED", "Pending", True, "ContainerCreating"),
        ("MODIFIED", "Running", True, "running"),
    ]
    assert steps[-1] == ("DELETED", "Succeeded", True, "Completed")


@virtual(nodes=1)
async def test_a3_an_image_that_does_not_exist(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("bad", image="nginx:does-not-exist"))
    await cluster.sleep(0.5)
    assert (await state(cluster, "bad"))["state"] == {"waiting": {"reason": "ErrImagePull", "message": MISSING}}
    await cluster.sleep(1)
    waiting = (await state(cluster, "bad"))["state"]["waiting"]
    back_off = 'Back-off pulling image "nginx:does-not-exist"'
    assert waiting == {"reason": "ImagePullBackOff", "message": f"{back_off}: ErrImagePull: {MISSING}"}
    pod = await get(cluster, "bad")
    assert pod["status"]["phase"] == "Pending"
    assert conditions(pod)["Ready"] == ("False", "ContainersNotReady", "containers with unready status: [c]")
    assert conditions(pod)["PodReadyToStartContainers"][0] == "True"
    attempts = []
    for _ in range(1300):
        await cluster.sleep(1)
        if (await state(cluster, "bad"))["state"]["waiting"]["reason"] == "ErrImagePull":
            attempts.append(round(cluster.clock.monotonic()))
    gaps = [after - before for before, after in pairwise(attempts)]
    assert gaps == [20, 40, 80, 160, 300, 300, 300]
    assert [event for event in await cluster.events("bad") if event[1] != "Scheduled"] == [
        ("Normal", "Pulling", 'Pulling image "nginx:does-not-exist"'),
        ("Warning", "Failed", f'Failed to pull image "nginx:does-not-exist": {MISSING}'),
        ("Warning", "Failed", "Error: ErrImagePull"),
        ("Normal", "BackOff", back_off),
        ("Warning", "Failed", "Error: ImagePullBackOff"),
    ]


@virtual(nodes=1)
async def test_a3_a_corrected_image_starts_the_pod(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("bad", image="nginx:does-not-exist"))
    await cluster.sleep(5)
    await cluster.client.patch(
        PODS, "bad", {"spec": {"containers": [{"name": "c", "image": "nginx:1.29"}]}}, "default", kind="strategic"
    )
    await cluster.until(lambda: running(cluster, "bad"), within=15)


async def running(cluster: VirtualCluster, name: str) -> bool:
    return bool((await get(cluster, name))["status"]["phase"] == "Running")


@virtual(nodes=1)
async def test_a4_an_exiting_container_is_restarted_with_backoff(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("crash", image="busybox", command=["sh", "-c", "sleep 1; exit 3"]))
    began: list[int] = []
    seen = set()
    for _ in range(13000):
        await cluster.sleep(0.1)
        container = await state(cluster, "crash")
        for kind, detail in container["state"].items():
            seen.add((kind, detail.get("reason", "")))
            if kind == "running" and len(began) == container["restartCount"]:
                began.append(round(cluster.clock.monotonic()))
    waits = [after - before - 1 for before, after in pairwise(began)]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    assert seen == {("running", ""), ("terminated", "Error"), ("waiting", "CrashLoopBackOff")}
    pod = await get(cluster, "crash")
    container = pod["status"]["containerStatuses"][0]
    assert pod["status"]["phase"] == "Running"
    assert container["restartCount"] == 9 and container["lastState"]["terminated"]["exitCode"] == 3
    uid = pod["metadata"]["uid"]
    message = f"back-off 5m0s restarting failed container=c pod=crash_default({uid})"
    assert container["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    assert ("Warning", "BackOff", f"Back-off restarting failed container c in pod crash_default({uid})") in (
        await cluster.events("crash")
    )


@virtual(nodes=1)
async def test_a4_the_backoff_is_reset_after_ten_minutes(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("crash", image="busybox", command=["sh", "-c", "sleep 601; exit 1"]))
    await cluster.sleep(601 + 601 + 0.5)
    assert set((await state(cluster, "crash"))["state"]) == {"running"}
    assert (await state(cluster, "crash"))["restartCount"] == 2


@virtual(nodes=2)
async def test_a4_restarts_under_a_deployment(cluster: VirtualCluster) -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["false"]}]},
    }
    await cluster.client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "x", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template},
        }
    )
    await cluster.sleep(120)
    pods = await cluster.all(PODS)
    assert len(pods) == 2
    for pod in pods:
        (container,) = pod["status"]["containerStatuses"]
        assert container["restartCount"] == 4 and container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    deployment = await cluster.client.get(DEPLOYMENTS, "x", "default")
    assert "readyReplicas" not in deployment["status"] and deployment["status"]["unavailableReplicas"] == 2


@virtual(nodes=1)
async def test_a5_two_field_owners_do_not_conflict(cluster: VirtualCluster) -> None:
    made = await cluster.client.create(a_pod())
    await cluster.sleep(1)
    with pytest.raises(Conflict):
        await cluster.client.update({**made, "metadata": {**made["metadata"], "labels": {"stale": "yes"}}})
    pod = await get(cluster, "simple-pod")
    written = await cluster.client.update({**pod, "status": {"phase": "Failed"}})
    assert written["status"]["phase"] == "Running", "status is not written through the object"
    changed = {"spec": {"containers": [{"name": "c", "image": "nginx:1.29"}]}, "status": {"message": "mine"}}
    written = await cluster.client.patch(PODS, "simple-pod", changed, "default", kind="strategic", subresource="status")
    assert written["spec"]["containers"][0]["image"] == "nginx", "nor the spec through the status"
    pod = await cluster.client.patch(
        PODS,
        "simple-pod",
        {"spec": {"containers": [{"name": "c", "image": "nginx:1.29"}]}},
        "default",
        kind="strategic",
    )
    assert (pod["metadata"]["generation"], pod["status"]["observedGeneration"]) == (2, 1)
    await cluster.sleep(1)
    pod = await get(cluster, "simple-pod")
    assert (pod["metadata"]["generation"], pod["status"]["observedGeneration"]) == (2, 2)
    (container,) = pod["status"]["containerStatuses"]
    assert (container["image"], container["restartCount"]) == ("docker.io/library/nginx:1.29", 1)


@virtual(nodes=1)
async def test_d1_a_program_that_ignores_sigterm_is_killed_after_the_grace_period(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("deaf", image="busybox", command=["sleep", "3600"]))
    await cluster.sleep(5)
    start = (await get(cluster, "deaf"))["metadata"]["resourceVersion"]
    await cluster.client.delete(PODS, "deaf", "default")
    await cluster.sleep(29)
    pod = await get(cluster, "deaf")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30 and conditions(pod)["Ready"][0] == "True"
    await cluster.sleep(2)
    assert await cluster.find(PODS, "deaf") is None
    async with cluster.client.watch(PODS, "default", resource_version=start, bookmarks=False) as watch:
        while True:
            kind, pod = await watch.__anext__()
            if kind == "DELETED":
                break
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], pod["status"]["phase"]) == (137, "Error", "Failed")
    assert ("Normal", "Killing", "Stopping container c") in await cluster.events("deaf")


@virtual(nodes=1)
async def test_d1_prestop_hooks_signal_handlers_and_shorter_grace_periods(cluster: VirtualCluster) -> None:
    slept = a_pod("slept")
    slept["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 10}}}
    ran = a_pod("ran")
    ran["spec"]["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 7; exit 1"]}}}
    trapped = a_pod("trapped", image="busybox", command=["sh", "-c", "trap 'sleep 2; exit 5' TERM; sleep 999 & wait"])
    deaf = a_pod("deaf", image="busybox", command=["sleep", "3600"], terminationGracePeriodSeconds=600)
    for pod in (slept, ran, trapped, deaf):
        await cluster.client.create(pod)
    await cluster.sleep(1)
    ends: dict[str, float] = {}
    for name in ("slept", "ran", "trapped", "deaf"):
        await cluster.client.delete(PODS, name, "default")
    begun = cluster.clock.monotonic()
    await cluster.sleep(20)
    await cluster.client.delete(PODS, "deaf", "default", grace_period=5)

    async def all_gone() -> bool:
        names = {pod["metadata"]["name"] for pod in await cluster.all(PODS)}
        for name in ("deaf",):
            if name not in names:
                ends.setdefault(name, cluster.clock.monotonic() - begun)
        return not names

    await cluster.until(all_gone, within=60)
    assert 21.5 < ends["deaf"] < 22.5, "that patience was over already: the least there is"
    assert ("Warning", "FailedPreStopHook", "PreStopHook failed") in await cluster.events("ran")
