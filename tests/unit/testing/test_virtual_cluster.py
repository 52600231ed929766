"""A cluster in virtual time: hours pass in a moment, and the same seed gives the same run."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.cluster.config import ConfigError
from setpoint.testing import VirtualCluster, run_virtual, virtual, virtual_cluster
from setpoint.testing.virtual_time import VirtualClock, VirtualDeadlock

PODS, DEPLOYMENTS = builtin("pods"), builtin("deployments", "apps")


def web(replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


async def all_run(cluster: VirtualCluster, count: int) -> bool:
    pods = await cluster.all(PODS)
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    return len(running) == len(pods) == count


@virtual(nodes=3)
async def test_pods_start_and_are_replaced(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(3))
    await cluster.until(lambda: all_run(cluster, 3), within=30)
    gone = (await cluster.all(PODS))[0]["metadata"]["name"]
    await cluster.client.delete(PODS, gone, "default", grace_period=0)
    await cluster.until(lambda: all_run(cluster, 3), within=30)
    assert gone not in {pod["metadata"]["name"] for pod in await cluster.all(PODS)}


@virtual(nodes=1)
async def test_an_hour_passes_in_a_moment(cluster: VirtualCluster) -> None:
    before = cluster.clock.now()
    await cluster.sleep(3600)
    assert (cluster.clock.now() - before).total_seconds() == pytest.approx(3600)
    assert (await cluster.client.get(builtin("nodes"), "node-1"))["status"]["conditions"]


@virtual(nodes=2)
async def test_a_restarted_component_catches_up(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(4))
    await cluster.until(lambda: all_run(cluster, 4))
    await cluster.kill("controllers", "scheduler")
    for pod in await cluster.all(PODS):
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_period=0)
    await cluster.sleep(60)
    assert not await cluster.all(PODS)
    await cluster.start("scheduler", "controllers")
    await cluster.until(lambda: all_run(cluster, 4))


def test_a_wait_without_timers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.cluster.virtual.time._SOCKET_TIMEOUT", 0.0)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(VirtualDeadlock):
        run_virtual(main)


def test_sleepers_wake_in_order() -> None:
    seen: list[float] = []

    async def main() -> None:
        clock = VirtualClock()

        async def one(seconds: float) -> None:
            await clock.sleep(seconds)
            seen.append(clock.monotonic())

        async with asyncio.TaskGroup() as tasks:
            for seconds in (3600.0, 0.5, 60.0, 0.25):
                tasks.create_task(one(seconds))

    run_virtual(main)
    assert seen == pytest.approx([0.25, 0.5, 60.0, 3600.0])


async def history(seed: int) -> str:
    """Return the digest of all revisions of a busy cluster."""
    async with virtual_cluster(seed=seed) as cluster:
        await cluster.client.create(web(5))
        await cluster.sleep(20)
        await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, "default")
        await cluster.sleep(20)
        await cluster.kill("controllers")
        await cluster.client.delete(DEPLOYMENTS, "web", "default")
        await cluster.start("controllers")
        await cluster.sleep(300)
        return cluster.fingerprint()


@functools.cache
def in_this_process() -> str:
    """Return the history in this process, in which other tests have run before."""
    return run_virtual(history, 5)


def test_the_same_seed_gives_the_same_revisions() -> None:
    assert run_virtual(history, 5) == in_this_process()
    assert run_virtual(history, 6) != in_this_process()


@pytest.mark.memory_store("compares with another process, which works on the memory store")
def test_the_hash_seed_of_the_process_does_not_matter() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_virtual_cluster as t; "
        "print(t.run_virtual(t.history, 5))"
    )
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", program, here],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == in_this_process() + "\n"


def test_the_shortest_sleep_advances_time() -> None:
    async def main() -> int:
        clock, waits = VirtualClock(), 0
        await clock.sleep(4000)
        until = clock.monotonic() + 1e-11
        while (left := until - clock.monotonic()) > 0:
            await clock.sleep(left)
            waits += 1
            assert waits < 100
        return waits

    assert run_virtual(main) == 1


def test_time_stands_still_while_a_thread_works() -> None:
    async def main() -> float:
        clock, let_go = VirtualClock(), threading.Event()

        async def beside() -> None:
            for _ in range(100):
                await asyncio.sleep(0)
            let_go.set()  # no callback of the loop is ready any more
            await clock.sleep(3600)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(beside())
            await asyncio.to_thread(let_go.wait)
            return clock.monotonic()

    assert run_virtual(main) == 0.0


class SlowExecutor(ThreadPoolExecutor):
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        threading.Event().wait(0.05)
        super().shutdown(wait, cancel_futures=cancel_futures)


@pytest.mark.filterwarnings("error")
def test_the_end_of_a_loop_waits_for_its_threads() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(SlowExecutor())

    run_virtual(main)


POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}


@virtual(nodes=1, audit=POLICY)
async def test_the_audit_log_has_all_requests(cluster: VirtualCluster) -> None:
    await cluster.client.create(web(1))
    await cluster.until(lambda: all_run(cluster, 1), within=30)
    events = cluster.audited()
    assert {each["apiVersion"] for each in events} == {"audit.k8s.io/v1"}
    bound = [each for each in events if each.get("objectRef", {}).get("subresource") == "binding"]
    assert {each["stage"] for each in bound} == {"RequestReceived", "ResponseComplete"}
    assert {each["user"]["username"] for each in bound} == {"system:kube-scheduler"}
    assert bound[-1]["requestObject"]["target"] == {"kind": "Node", "name": "node-1"}
    assert bound == [each for each in cluster.audited(by="system:kube-scheduler") if each in bound]


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_without_a_policy_there_is_no_audit_log(cluster: VirtualCluster) -> None:
    with pytest.raises(ValueError, match="nothing is audited: the cluster has no policy"):
        cluster.audited()
    with pytest.raises(ConfigError, match=r"audit policy: .*rules.0..level: Unsupported value"):
        async with cluster.fork(audit={**POLICY, "rules": [{"level": "Everything"}]}):
            pass


SERVICE_ACCOUNT = ("v1", "ServiceAccount")


@virtual(nodes=0)
async def test_the_controllers_find_their_work_at_the_start_done(cluster: VirtualCluster) -> None:
    assert await cluster.find(SERVICE_ACCOUNT, "default") is not None
    await cluster.settle()
    assert [write.key for write in cluster.embedded.write_log.writes if "/leases/" not in write.key] == []


@virtual(nodes=0, controllers=())
async def test_a_cluster_without_controllers_has_nothing_of_theirs(cluster: VirtualCluster) -> None:
    await cluster.settle()
    assert await cluster.find(SERVICE_ACCOUNT, "default") is None
