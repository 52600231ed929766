"""Story C5 in virtual time: startup, readiness and liveness probes."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS, SLICES = builtin("pods"), builtin("endpointslices", "discovery.k8s.io")
HTTP = {"httpGet": {"path": "/", "port": 80}}
READINESS = "simulate.setpoint.dev/readiness"


def a_pod(name: str, /, *, command: list[str] | None = None, **container: Any) -> Obj:
    container = {"image": "busybox", "command": command, **container} if command else {"image": "nginx", **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", **container}]},
    }


async def container(cluster: VirtualCluster, name: str) -> Obj:
    found: Obj = (await cluster.client.get(PODS, name, "default"))["status"]["containerStatuses"][0]
    return found


async def moments(cluster: VirtualCluster, name: str, seconds: int, what: str) -> list[int]:
    """At which seconds from now on the field changes."""
    found, begun = [], cluster.clock.monotonic()
    before = (await container(cluster, name))[what]
    while cluster.clock.monotonic() - begun < seconds:
        await cluster.sleep(0.1)
        now = (await container(cluster, name))[what]
        if now != before:
            found.append(round(cluster.clock.monotonic() - begun))
            before = now
    return found


@virtual(nodes=1)
async def test_an_unready_pod_is_removed_from_its_service_and_returns(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("web", readinessProbe={**HTTP, "periodSeconds": 5, "failureThreshold": 2}))
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]},
        }
    )

    async def served() -> list[bool]:
        slices = await cluster.all(SLICES, selector="kubernetes.io/service-name=web")
        return [end["conditions"]["ready"] for each in slices for end in each.get("endpoints") or ()]

    async def serves(wanted: bool) -> bool:
        return await served() == [wanted]

    await cluster.until(lambda: serves(True), within=5)
    await cluster.client.patch(PODS, "web", {"metadata": {"annotations": {READINESS: "false"}}}, "default")
    assert await moments(cluster, "web", 20, "ready") in ([6], [7], [8], [9], [10]), "after two failures"
    await cluster.until(lambda: serves(False), within=1)
    pod = await cluster.client.get(PODS, "web", "default")
    (ready,) = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
    assert (ready["reason"], ready["message"]) == ("ContainersNotReady", "containers with unready status: [c]")
    assert ("Warning", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503") in (
        await cluster.events("web")
    )
    await cluster.client.patch(PODS, "web", {"metadata": {"annotations": {READINESS: None}}}, "default")
    await cluster.until(lambda: serves(True), within=6)


@virtual(nodes=1)
async def test_the_classic_liveness_example(cluster: VirtualCluster) -> None:
    script = "touch /tmp/healthy; sleep 30; rm -f /tmp/healthy; sleep 600"
    probe = {"exec": {"command": ["cat", "/tmp/healthy"]}, "initialDelaySeconds": 5, "periodSeconds": 5}
    await cluster.client.create(a_pod("live", command=["/bin/sh", "-c", script], livenessProbe=probe))
    await cluster.sleep(0.05)
    # 30 s of health, three failures five seconds apart, and 30 s until a shell that hears no signal is killed.
    assert await moments(cluster, "live", 100, "restartCount") == [70]
    ended = (await container(cluster, "live"))["lastState"]["terminated"]
    assert ended["exitCode"] == 137
    events = await cluster.events("live")
    assert ("Normal", "Killing", "Container c failed liveness probe, will be restarted") in events
    said = "Liveness probe failed: cat: can't open '/tmp/healthy': No such file or directory\n"
    assert ("Warning", "Unhealthy", said) in events or ("Warning", "Unhealthy", said.rstrip()) in events


@virtual(nodes=1)
async def test_other_probes_wait_for_the_startup_probe(cluster: VirtualCluster) -> None:
    startup = {"exec": {"command": ["test", "-f", "/tmp/up"]}, "periodSeconds": 10, "failureThreshold": 30}
    await cluster.client.create(
        a_pod(
            "slow",
            command=["sh", "-c", "sleep 25; touch /tmp/up; sleep 9999"],
            startupProbe=startup,
            livenessProbe={"exec": {"command": ["test", "-f", "/tmp/up"]}, "periodSeconds": 1, "failureThreshold": 1},
            readinessProbe={**HTTP, "periodSeconds": 60},
        )
    )
    await cluster.sleep(0.05)
    found = await container(cluster, "slow")
    assert (found["started"], found["ready"], set(found["state"])) == (False, False, {"running"})
    assert await moments(cluster, "slow", 29, "started") == []
    await cluster.sleep(2)
    found = await container(cluster, "slow")
    assert (found["started"], found["ready"], found["restartCount"]) == (True, True, 0), (
        "ready as soon as it has started"
    )


@virtual(nodes=1)
async def test_a_failed_startup_probe_restarts_the_container(cluster: VirtualCluster) -> None:
    startup = {**HTTP, "periodSeconds": 2, "failureThreshold": 3, "terminationGracePeriodSeconds": 4}
    pod = a_pod("never", command=["sleep", "9999"], startupProbe=startup)
    pod["metadata"]["annotations"] = {"simulate.setpoint.dev/startup.c": "false"}
    await cluster.client.create(pod)
    await cluster.sleep(0.05)
    assert (await moments(cluster, "never", 12, "restartCount")) == [10], "three failures, and its own grace period"
    assert ("Normal", "Killing", "Container c failed startup probe, will be restarted") in await cluster.events("never")


@virtual(nodes=1)
async def test_a_probe_fails_at_its_timeout(cluster: VirtualCluster) -> None:
    probe = {"exec": {"command": ["sh", "-c", "sleep 5"]}, "periodSeconds": 10, "timeoutSeconds": 2}
    await cluster.client.create(a_pod("late", readinessProbe=probe))
    await cluster.sleep(25)
    assert not (await container(cluster, "late"))["ready"]
    assert any("timed out after 2s" in message for _, _, message in await cluster.events("late"))
