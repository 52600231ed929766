"""A cluster whose process was paused, or whose wall clock was set, converges again and loses no Pods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from up_process import up_process

from setpoint.client.resources import builtin
from setpoint.cluster.virtual.link import Proceed, Write
from setpoint.meta.times import parse_time
from setpoint.testing import VirtualCluster, virtual

NODES, PODS, LEASES = builtin("nodes"), builtin("pods"), builtin("leases", "coordination.k8s.io")
REPLICAS = 6


def deployment() -> dict[str, Any]:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": pod},
    }


def condition(obj: dict[str, Any]) -> str:
    return next(str(one["status"]) for one in obj["status"]["conditions"] if one["type"] == "Ready")


async def ready_pods(cluster: VirtualCluster) -> set[str]:
    pods = await cluster.all(PODS)
    return {each["metadata"]["uid"] for each in pods if each["status"].get("conditions") and condition(each) == "True"}


async def check_well(cluster: VirtualCluster) -> None:
    """Nodes are ready and say so again and again; controllers and scheduler hold their leases."""
    for node in (await cluster.client.list(NODES)).items:
        assert condition(node) == "True", node["metadata"]["name"]
        assert not (node["spec"].get("taints") or []), node["metadata"]["name"]
    for namespace in ("kube-node-lease", "kube-system"):
        for lease in (await cluster.client.list(LEASES, namespace)).items:
            age = (cluster.clock.now() - parse_time(lease["spec"]["renewTime"])).total_seconds()
            assert -1 <= age <= 41, (lease["metadata"]["name"], age)


async def converged(cluster: VirtualCluster) -> None:
    async def well() -> bool:
        await check_well(cluster)
        return len(await ready_pods(cluster)) == REPLICAS

    await cluster.until(well, within=120, every=5)
    await cluster.sleep(120)
    await check_well(cluster)
    assert len(await ready_pods(cluster)) == len(await cluster.all(PODS)) == REPLICAS
    # It still works.
    await cluster.client.patch(
        ("apps/v1", "Deployment"), "web", {"spec": {"replicas": REPLICAS + 2}}, "default", kind="merge"
    )
    await cluster.until(lambda: _has(cluster, REPLICAS + 2), within=60, every=1)


async def _has(cluster: VirtualCluster, count: int) -> bool:
    return len(await ready_pods(cluster)) == count


async def started(cluster: VirtualCluster) -> set[str]:
    await cluster.client.create(deployment())
    await cluster.until(lambda: _has(cluster, REPLICAS), within=30, every=1)
    await cluster.sleep(60)
    return await ready_pods(cluster)


async def slowly(cluster: VirtualCluster, _: Write, proceed: Proceed) -> Any:
    """As a server does that writes to a disk: several requests of a component are under way at once."""
    await cluster.clock.sleep(0.02)
    return await proceed()


@pytest.mark.parametrize("seconds", [12, 30, 45, 100, 600])
@virtual(nodes=3, leader_elect=True)
async def test_a_paused_cluster_converges_and_keeps_its_pods(cluster: VirtualCluster, seconds: int) -> None:
    for link in cluster.links.values():
        link.write_interceptor = partial(slowly, cluster)
    before = await started(cluster)
    cluster.clock.freeze(seconds)
    await converged(cluster)
    assert before <= await ready_pods(cluster)


@virtual(nodes=30, leader_elect=True)
async def test_several_pauses_in_a_row(cluster: VirtualCluster) -> None:
    before = await started(cluster)
    for seconds in (61, 13, 300, 1, 40, 40):
        cluster.clock.freeze(seconds)
        await cluster.sleep(seconds % 7)
    await converged(cluster)
    assert before <= await ready_pods(cluster)


@pytest.mark.parametrize("seconds", [3600, -3600, 86_400, -86_400])
@virtual(nodes=3, leader_elect=True)
async def test_setting_the_wall_clock_changes_nothing(cluster: VirtualCluster, seconds: int) -> None:
    before = await started(cluster)
    cluster.clock.jump(seconds)
    await converged(cluster)
    assert before <= await ready_pods(cluster)


@virtual(nodes=1)
async def test_a_pod_that_is_being_started_does_not_wait_for_the_clock_to_catch_up(cluster: VirtualCluster) -> None:
    made = deployment()
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["readinessProbe"] = {"httpGet": {"port": 80}, "initialDelaySeconds": 20, "periodSeconds": 20}
    await cluster.client.create(made)
    await cluster.sleep(10)
    cluster.clock.jump(-3600)
    await cluster.sleep(60)
    assert len(await ready_pods(cluster)) == REPLICAS


@pytest.mark.slow
def test_a_stopped_process_continues(tmp_path: Path) -> None:
    """Nodes with very short leases have missed many renewals after three seconds, as others have after a minute."""
    (tmp_path / "fleet.yaml").write_text("nodes: {count: 5, leaseDurationSeconds: 1}\n")
    with up_process(tmp_path, "--fleet", "fleet.yaml") as kubeconfig:
        pid = json.loads((kubeconfig.parent / "running.json").read_text())["pid"]
        for _ in range(3):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.1)

        def setpoint(*words: str) -> str:
            command = [sys.executable, "-m", "setpoint", *words, "--kubeconfig", str(kubeconfig)]
            return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout

        leases = ("get", "leases", "-n", "kube-node-lease", "-o", "jsonpath={.items[*].spec.renewTime}")
        before = setpoint(*leases).split()
        assert len(before) == 5
        assert setpoint("get", "--raw", "/readyz") == "ok"
        deadline = time.monotonic() + 20
        while not all(then < now for then, now in zip(before, setpoint(*leases).split(), strict=True)):
            assert time.monotonic() < deadline, "a node does not renew its Lease any more"
        log = (tmp_path / "log").read_text()
        assert "failed" not in log, log
