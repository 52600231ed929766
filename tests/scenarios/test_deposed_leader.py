"""A leader that was paused in the middle of its work and resumed after the takeover changes nothing any more."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from paused_process import PausableProcess
from server_process import server_process

from setpoint.apiserver.diagnostics import CAUSES_PATH
from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.cluster.component import ElectedComponent
from setpoint.cluster.component_factory import ComponentFactory, ElectionOptions
from setpoint.cluster.components import InProcessClients
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import BadRequest, Conflict
from setpoint.meta.lease_term import TERM_HEADER, Term
from setpoint.store.interface import Event
from setpoint.system import RandomIds, SystemClock
from setpoint.testing import VirtualCluster, virtual

WANTED = 300
LEASES, PODS, CONFIG_MAPS = builtin("leases", "coordination.k8s.io"), builtin("pods"), builtin("configmaps")
CONTROLLERS = ("replicaset-controller", "serviceaccount-controller")


def replica_set(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod},
    }


class PodCount:
    """How many Pods there are, after each single change."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.now = self.most = 0
        cluster.embedded.store.watch("core/pods/", cluster.embedded.store.revision, self._see)

    def _see(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            self.now += (event.before is None) - (event.now is None)
            self.most = max(self.most, self.now)


@asynccontextmanager
async def control_plane(
    cluster: VirtualCluster, identity: str, process: PausableProcess | None = None
) -> AsyncIterator[ElectedComponent]:
    clock = cluster.clock if process is None else process
    clients = InProcessClients(cluster.embedded.components._server, clock, None if process is None else process.client)
    parts = ComponentFactory(clients, clock, RandomIds(hash(identity) % 1000), ElectionOptions(identity))
    async with parts.controllers(ControllerOptions(), CONTROLLERS) as elected:
        yield elected


@pytest.mark.parametrize("after", [1, 40, 150, 299])
@pytest.mark.parametrize("pause", [16, 120])
@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_resumed_leader_makes_no_surplus_pods(cluster: VirtualCluster, after: int, pause: int) -> None:
    count = PodCount(cluster)
    process = PausableProcess(cluster.clock)
    cluster.embedded.store.watch(
        "core/pods/", cluster.embedded.store.revision, lambda *_: process.pause() if count.now == after else None
    )
    async with control_plane(cluster, "first", process) as first:
        await cluster.client.create(replica_set(WANTED))
        await cluster.until(lambda: count.now >= after, within=5)  # more were on their way
        assert first.election is not None
        async with control_plane(cluster, "second") as second:
            assert second.election is not None
            await cluster.sleep(max(0, pause - 16))
            await cluster.until(second.election.leading.is_set, within=40)
            resumed_early = asyncio.get_running_loop().call_later(0.001, process.resume)
            await cluster.until(lambda: count.now >= WANTED, within=30)
            resumed_early.cancel()
            process.resume()
            await cluster.sleep(60)
            assert not first.election.leading.is_set()
            assert second.election.leading.is_set()
    assert (count.now, count.most) == (WANTED, WANTED)


# -- what the server compares -----------------------------------------------------------------------------------------


async def write(client: Client, name: str, term: Term | str) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    named = Client(client.sender.transport, client.sender.clock)
    named.sender._who.append((TERM_HEADER, str(term)))
    return await named.create(body)


def lease(holder: str, transitions: int) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "work", "namespace": "default"},
        "spec": {"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 15},
    }


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_the_server_commits_writes_of_the_present_term_only(cluster: VirtualCluster) -> None:
    client, term = cluster.client, Term("default", "work", "me/1 ü", 3)
    with pytest.raises(Conflict, match="no longer holds the lease default/work in term 3: its writes are refused"):
        await write(client, "none", term)
    held = await client.create(lease("me/1 ü", 3))
    await write(client, "first", term)
    # A renewal is no change of term.
    held["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    held = await client.update(held)
    await write(client, "second", term)
    with pytest.raises(Conflict, match="in term 2"):
        await write(client, "early", term._replace(transitions=2))
    with pytest.raises(Conflict, match="you no longer holds the lease"):
        await write(client, "you", term._replace(holder="you"))
    held["spec"] |= {"holderIdentity": "you", "leaseTransitions": 4}
    held = await client.update(held)
    with pytest.raises(Conflict, match="no longer holds"):
        await write(client, "late", term)
    await write(client, "you", term._replace(holder="you", transitions=4))
    # Once more the same holder: its writes of the earlier term are late all the same.
    held["spec"] |= {"holderIdentity": "me/1 ü", "leaseTransitions": 5}
    await client.update(held)
    with pytest.raises(Conflict, match="in term 3"):
        await write(client, "late", term)
    third = await write(client, "third", term._replace(transitions=5))
    # The cause of a write names the term.
    causes = await client.sender.json("GET", CAUSES_PATH, f"revisions={third['metadata']['resourceVersion']}")
    assert causes["causes"][0]["lease"] == str(term._replace(transitions=5))
    for wrong in ("", "a/b/c", "a/b/x/me", "a/b/1/", "/b/1/me", "a/b/" + "9" * 30 + "/me"):
        with pytest.raises(BadRequest, match="the setpoint-lease header is not"):
            await write(client, "wrong", wrong)
    await client.delete(LEASES, "work", "default")
    with pytest.raises(Conflict, match="no longer holds"):
        await write(client, "late", term._replace(transitions=5))
    found = [each["metadata"]["name"] for each in await cluster.all(CONFIG_MAPS)]
    assert sorted(found) == ["first", "second", "third", "you"]


# -- in processes of their own ----------------------------------------------------------------------------------------

TIMES = (
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1s",
    "--leader-elect-retry-period=200ms",
    "--secure-port=0",
    "--use-service-account-credentials",
)


@contextmanager
def controller_manager(kubeconfig: Path) -> Iterator[subprocess.Popen[str]]:
    own = kubeconfig.with_name("controller-manager.kubeconfig")
    command = [sys.executable, "-m", "setpoint", "controller-manager", "--kubeconfig", str(own), *TIMES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("setpoint controller-manager: ")
            yield process
        finally:
            process.kill()


class Watched:
    """Counts Pods after each event of a watch."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.now = self.most = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with self._client.watch(PODS, "default", resource_version="0") as watch:
            async for kind, _ in watch:
                self.now += (kind == "ADDED") - (kind == "DELETED")
                self.most = max(self.most, self.now)
                self._changed.set()

    async def reached(self, count: int) -> None:
        while self.now < count:
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.slow
async def test_a_stopped_process_makes_no_surplus_pods(tmp_path: Path) -> None:
    with server_process(tmp_path, "--authorization-mode", "Node,RBAC") as server, ExitStack() as stack:
        client = connect(find_access(str(server.kubeconfig)), SystemClock())
        pods = Watched(client)
        watching = asyncio.ensure_future(pods.run())
        first = stack.enter_context(controller_manager(server.kubeconfig))
        try:
            async with asyncio.timeout(30):
                await client.create(replica_set(WANTED))
                await pods.reached(WANTED // 5)
                os.kill(first.pid, signal.SIGSTOP)
                assert pods.now < WANTED
                stack.enter_context(controller_manager(server.kubeconfig))
                await pods.reached(WANTED)
                os.kill(first.pid, signal.SIGCONT)
                await asyncio.sleep(1)
            assert (pods.now, pods.most) == (WANTED, WANTED)
        finally:
            os.kill(first.pid, signal.SIGCONT)
            watching.cancel()
            await client.close()
