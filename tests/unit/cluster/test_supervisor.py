"""Components that fail are logged and restarted with backoff, while the others run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from setpoint.cli import status
from setpoint.client.resources import builtin
from setpoint.cluster.component import Component, ElectedComponent
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedCluster, EmbeddedOptions, embedded_cluster
from setpoint.cluster.supervisor import HEALTHY_AFTER, MAX_BACKOFF, Restarts, Supervisor
from setpoint.meta.errors import ApiError
from setpoint.system import RandomIds
from setpoint.testing import virtual
from setpoint.testing.snapshot import first_state
from setpoint.testing.virtual_time import VirtualClock

PODS, NODES = builtin("pods"), builtin("nodes")


@virtual()
async def test_the_backoff_doubles_up_to_a_limit_and_is_reset_after_a_healthy_time(virtual_time: VirtualClock) -> None:
    supervisor, starts = Supervisor(virtual_time), []

    async def work() -> None:
        starts.append(virtual_time.monotonic())
        if len(starts) == 10:
            await virtual_time.sleep(HEALTHY_AFTER)
        if len(starts) < 12:
            raise KeyError("node-3")

    await supervisor.run("work", work)
    delays = [round(after - before, 6) for before, after in pairwise(starts)]
    assert delays == [1, 2, 4, 8, 16, 32, MAX_BACKOFF, MAX_BACKOFF, MAX_BACKOFF, HEALTHY_AFTER + 1, 2]
    assert supervisor.restarts("work").count == 11
    assert not list(supervisor.errors())


@virtual()
async def test_errors_are_logged_and_reported(virtual_time: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(virtual_time)

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_raise(KeyError("node-3")))

    with caplog.at_level(logging.ERROR):
        running = asyncio.ensure_future(supervisor.run("heartbeat", work))
        await virtual_time.sleep(0.5)
    assert [*supervisor.errors()] == [("heartbeat", "failed with KeyError: 'node-3'; restarting in 1 s")]
    assert "heartbeat failed with KeyError: 'node-3'" in caplog.text
    assert "Traceback" in caplog.text
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def _raise(error: Exception) -> None:
    raise error


class Probe:
    """A component that can be made to fail."""

    def __init__(self) -> None:
        self.starts = 0
        self.fails_at_start: Callable[[int], bool] = lambda _: False
        self.fail = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        self.starts += 1
        self.fail = asyncio.Event()
        if self.fails_at_start(self.starts):
            raise ValueError("cannot start")
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(self._wait())
            try:
                yield self.starts
            finally:
                waiting.cancel()

    async def _wait(self) -> None:
        await self.fail.wait()
        raise ValueError("broken")


@virtual()
async def test_a_component_restarts_and_can_be_stopped_during_the_backoff(virtual_time: VirtualClock) -> None:
    probe, restarts = Probe(), Restarts("probe", virtual_time)
    component = Component("probe", probe.open, restarts)
    async with asyncio.TaskGroup() as tasks:
        await component.start(tasks)
        assert component.running == 1
        probe.fails_at_start = lambda starts: starts == 2
        probe.fail.set()
        await virtual_time.sleep(0.5)
        assert component.current is None
        assert restarts.error == "failed with ValueError: broken; restarting in 1 s"
        await virtual_time.sleep(1)
        assert restarts.error == "failed with ValueError: cannot start; restarting in 2 s"
        await virtual_time.sleep(2)
        assert (component.running, restarts.error, restarts.count) == (3, "", 2)
        probe.fail.set()
        await virtual_time.sleep(0.5)
        await component.stop()
        assert component.current is None
        await component.start(tasks)
        assert component.running == 4
        await component.stop()


@virtual()
async def test_a_failure_before_ready_is_raised_to_the_starter(virtual_time: VirtualClock) -> None:
    probe = Probe()
    probe.fails_at_start = lambda starts: starts < 3
    component = Component("probe", probe.open, Restarts("probe", virtual_time))
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.TaskGroup() as tasks:
            await component.start(tasks)
    assert failed.group_contains(ValueError, match="cannot start")
    retried = Component("probe", probe.open, Restarts("probe", virtual_time))
    async with asyncio.TaskGroup() as tasks:
        await retried.start(tasks, retry=True)
        assert retried.running == 3
        await retried.stop()


@virtual()
async def test_a_failed_term_is_followed_by_another(virtual_time: VirtualClock) -> None:
    probe, restarts = Probe(), Restarts("kube-scheduler", virtual_time)
    probe.fails_at_start = lambda starts: starts == 1
    elected: Any = ElectedComponent(None, probe.open, restarts)  # type: ignore[arg-type]
    running = asyncio.ensure_future(elected.run())
    await virtual_time.sleep(0.5)
    assert elected.error() == "failed with ValueError: cannot start; restarting in 1 s"
    await virtual_time.sleep(1)
    assert (elected.manager, elected.error()) == (2, "")
    probe.fail.set()
    await virtual_time.sleep(0.5)
    assert (elected.manager, elected.error()) == (None, "failed with ValueError: broken; restarting in 2 s")
    await virtual_time.sleep(2)
    assert (elected.manager, elected.error()) == (3, "")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# -- in a cluster -----------------------------------------------------------------------------------------------------


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


async def readyz(cluster: EmbeddedCluster, check: str = "") -> str:
    try:
        return (await cluster.client.sender.request("GET", f"/readyz{check}", "verbose")).body.decode()
    except ApiError as error:
        return error.message


@pytest.mark.parametrize("name", ["kube-controller-manager", "kube-scheduler", "nodes"])
@virtual()
async def test_a_failing_component_does_not_affect_the_others(virtual_time: VirtualClock, name: str) -> None:
    supervisor = Supervisor(virtual_time)
    options = EmbeddedOptions(ComponentOptions(nodes=2, supervisor=supervisor))
    async with embedded_cluster(virtual_time, RandomIds(1), options, await first_state()) as cluster:
        parts = cluster.components
        await cluster.client.create(deployment(3))
        await virtual_time.sleep(10)
        before = {pod["metadata"]["uid"] for pod in (await cluster.client.list(PODS, "default")).items}
        assert len(before) == 3
        assert f"[+]{name} ok" in await readyz(cluster)
        elected = {"kube-controller-manager": parts.controllers, "kube-scheduler": parts.scheduler}.get(name)
        manager = parts.fleet.running if elected is None else elected.running.manager
        assert manager is not None
        assert manager._tasks is not None
        manager._tasks.create_task(_raise(KeyError("node-3")))
        await virtual_time.sleep(0.5)
        assert f"[-]{name} failed" in await readyz(cluster)
        assert "failed with KeyError: 'node-3'; restarting in 1 s" in await readyz(cluster, f"/{name}")
        shown = await status._components(SimpleNamespace(client=cluster.client), virtual_time.now())  # type: ignore[arg-type]
        assert [name, "failed with KeyError: 'node-3'; restarting in 1 s"] in [row[:2] for row in shown]
        assert shown[0][:2] == ["kube-apiserver", "ready"]
        await virtual_time.sleep(30)
        assert f"[+]{name} ok" in await readyz(cluster)
        await cluster.client.patch(("apps/v1", "Deployment"), "web", {"spec": {"replicas": 5}}, "default", kind="merge")
        await virtual_time.sleep(30)
        pods = (await cluster.client.list(PODS, "default")).items
        assert before <= {pod["metadata"]["uid"] for pod in pods}
        assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 5
        assert [each.count for each in supervisor._restarts.values() if each.name == name] == [1]
