"""`pods/log` from the API server to a simulated container."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual


def a_pod(name: str, *command: str, **more: Any) -> Obj:
    container: Obj = {"name": "c", "image": "busybox"}
    if command:
        container["command"] = list(command)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **more},
    }


async def logs(cluster: VirtualCluster, pod: str, query: str = "", namespace: str = "default") -> tuple[int, str]:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    reply = await cluster.client.sender.transport.request("GET", path, query, [], b"")
    body = reply.body.decode()
    return reply.status, json.loads(body)["message"] if body.startswith("{") else body


async def running(cluster: VirtualCluster, pod: str) -> None:
    async def is_running() -> bool:
        found = await cluster.find(("v1", "Pod"), pod)
        return found is not None and found["status"].get("phase") == "Running"

    await cluster.until(is_running)


@virtual(nodes=1)
async def test_output_of_a_container(cluster: VirtualCluster) -> None:
    script = "echo one; echo two >&2; sleep 10; echo three; sleep 1000"
    await cluster.client.create(a_pod("talks", "sh", "-c", script))
    await running(cluster, "talks")
    assert await logs(cluster, "talks") == (200, "one\ntwo\n")
    await cluster.sleep(15)
    assert await logs(cluster, "talks") == (200, "one\ntwo\nthree\n")
    assert await logs(cluster, "talks", "tailLines=1") == (200, "three\n")
    assert await logs(cluster, "talks", "sinceSeconds=8") == (200, "three\n")
    assert await logs(cluster, "talks", "limitBytes=5") == (200, "one\nt")
    _, stamped = await logs(cluster, "talks", "timestamps=true&tailLines=1")
    stamp, _, text = stamped.partition(" ")
    assert text == "three\n" and stamp.endswith("Z") and len(stamp) == len("2026-01-01T00:00:00.000000000Z")
    since = stamp[:19] + "Z"
    assert await logs(cluster, "talks", f"sinceTime={since}") == (200, "three\n")


@virtual(nodes=1)
async def test_following_ends_with_the_container(cluster: VirtualCluster) -> None:
    script = "for i in 1 2 3; do echo $i; sleep 5; done"
    await cluster.client.create(a_pod("counts", "sh", "-c", script, restartPolicy="Never"))
    await running(cluster, "counts")
    path, seen = "/api/v1/namespaces/default/pods/counts/log", []
    stream = await cluster.client.sender.transport.stream("GET", path, "follow=true&tailLines=0", [], b"")
    started = cluster.clock.monotonic()
    async for piece in stream:
        seen.append((round(cluster.clock.monotonic() - started), piece))
    assert [piece for _, piece in seen] == [b"2\n", b"3\n"]
    assert [at for at, _ in seen] == [5, 10]
    assert round(cluster.clock.monotonic() - started) == 15
    assert await logs(cluster, "counts", "follow=true") == (200, "1\n2\n3\n"), "it is over, so this ends at once"


@virtual(nodes=1)
async def test_a_disconnected_follower_is_removed(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("talks", "sh", "-c", "while true; do echo hi; sleep 1; done"))
    await running(cluster, "talks")
    path = "/api/v1/namespaces/default/pods/talks/log"
    stream = await cluster.client.sender.transport.stream("GET", path, "follow=true", [], b"")
    assert await asyncio.wait_for(stream.__anext__(), 5)
    before = len(asyncio.all_tasks())
    stream.close()
    await cluster.sleep(3)
    assert len(asyncio.all_tasks()) < before


@virtual(nodes=1)
async def test_previous_shows_the_log_of_the_previous_run(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("dies", "sh", "-c", "echo $RANDOM; date +%s; sleep 5; exit 3"))
    await running(cluster, "dies")
    first = await logs(cluster, "dies")
    assert await logs(cluster, "dies", "previous=true") == (
        400,
        'previous terminated container "c" in pod "dies" not found',
    )
    await cluster.sleep(6)
    pod = await cluster.client.get(("v1", "Pod"), "dies", "default")
    status = pod["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1 and "running" in status["state"]
    second = await logs(cluster, "dies")
    assert await logs(cluster, "dies", "previous=true") == first != second
    await cluster.sleep(6)  # in backoff now: the last run is shown, and it is also the previous one
    pod = await cluster.client.get(("v1", "Pod"), "dies", "default")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert await logs(cluster, "dies") == await logs(cluster, "dies", "previous=true") == second


@virtual(nodes=1)
async def test_invalid_requests_are_rejected(cluster: VirtualCluster) -> None:
    waits = a_pod("waits", "true")
    waits["spec"]["initContainers"] = [{"name": "first", "image": "busybox", "command": ["sleep", "100"]}]
    await cluster.client.create(waits)
    missing = a_pod("missing")
    missing["spec"]["containers"][0]["image"] = "nowhere.invalid/does-not-exist:v0"
    await cluster.client.create(missing)
    gated = a_pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    await cluster.client.create(gated)
    two = a_pod("two")
    two["spec"]["containers"].append({"name": "d", "image": "busybox"})
    await cluster.client.create(two)
    await cluster.sleep(5)
    assert await logs(cluster, "waits", "container=c") == (
        400,
        'container "c" in pod "waits" is waiting to start: PodInitializing',
    )
    status, text = await logs(cluster, "missing")
    assert status == 400 and text.startswith('container "c" in pod "missing" is waiting to start: ')
    assert text.endswith(("image can't be pulled", "trying and failing to pull image"))
    assert await logs(cluster, "gated") == (204, "")
    assert await logs(cluster, "none") == (404, 'pods "none" not found')
    assert await logs(cluster, "two") == (
        400,
        "a container name must be specified for pod two, choose one of: [c d]",
    )
    assert await logs(cluster, "two", "container=e") == (400, "container e is not valid for pod two")
    assert (await logs(cluster, "two", "container=c&tailLines=-1"))[0] == 422
    assert (await logs(cluster, "two", "container=c&sinceTime=x"))[0] == 400
    status, text = await logs(cluster, "two", "container=c&stream=Stdout")
    assert status == 422 and "stream: Forbidden: may not be specified" in text


@virtual(nodes=1)
async def test_a_missing_node_is_reported(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p"))
    await running(cluster, "p")
    await cluster.stop("fleet")
    status, text = await logs(cluster, "p")
    assert status == 500
    assert text.startswith('Get "https://172.30.0.1:10250/containerLogs/default/p/c": ')


@pytest.mark.parametrize("state", ["stopped", "partitioned"])
@virtual(nodes=1)
async def test_a_stopped_node_does_not_answer(cluster: VirtualCluster, state: str) -> None:
    await cluster.client.create(a_pod("p"))
    await running(cluster, "p")
    note = {"metadata": {"annotations": {"simulate.setpoint.dev/state": state}}}
    await cluster.client.patch(("v1", "Node"), "node-1", note)
    await cluster.sleep(1)
    assert await logs(cluster, "p") == (
        500,
        'Get "https://172.30.0.1:10250/containerLogs/default/p/c": '
        "dial tcp 172.30.0.1:10250: connect: no route to host",
    )
