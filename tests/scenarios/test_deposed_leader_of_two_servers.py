"""Leaders that were suspended, or whose server was, with two API servers on one etcd: they commit nothing any more once
another one leads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from server_pair import ApiServerProcess, server_pair

from setpoint.apiserver.diagnostics import CAUSES_PATH
from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.meta.errors import Conflict
from setpoint.meta.lease_term import TERM_HEADER, Term, parse_term
from setpoint.system import SystemClock

WANTED = 150
LEASES, PODS = builtin("leases", "coordination.k8s.io"), builtin("pods")
REPLICA_SETS = builtin("replicasets", "apps")
TIMES = ("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms")
FLAGS = {
    "controller-manager": ("--use-service-account-credentials", "--controllers=replicaset-controller"),
    "scheduler": (),
}
_MAX_REVISIONS = 500


def pod() -> dict[str, Any]:
    labels = {"app": "web"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}


def named_pod(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **pod(), "metadata": {"name": name, "namespace": "default"}}


def replica_set(replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": pod()},
    }


def node() -> dict[str, Any]:
    capacity = {"cpu": "1000", "memory": "1000Gi", "pods": "1000"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "large"}, "status": status}


@contextmanager
def component(name: str, server: ApiServerProcess, *flags: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "setpoint", name, "--kubeconfig", str(server.directory / f"{name}.kubeconfig")]
    command += ["--secure-port=0", *TIMES, *FLAGS[name], *flags]
    with open(server.directory / f"{name}.log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(f"setpoint {name}: ")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Observer:
    """What a watch shows of the Pods and of the terms of one Lease."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._lease = f"kube-{name}"
        self.pods: dict[str, bool] = {}
        """Whether each Pod is bound, by name."""
        self.most = 0
        self.terms: dict[Term, int] = {}
        """The revision with which each term began."""
        self._changed = asyncio.Event()

    async def pods_changed(self) -> None:
        async with self._client.watch(PODS, "default", resource_version="0") as watch:
            async for kind, found in watch:
                self.pods.pop(found["metadata"].get("name"), None)
                if kind in ("ADDED", "MODIFIED"):
                    self.pods[found["metadata"]["name"]] = bool(found["spec"].get("nodeName"))
                self.most = max(self.most, len(self.pods))
                self._changed.set()

    async def lease_changed(self) -> None:
        selector = f"metadata.name={self._lease}"
        async with self._client.watch(LEASES, "kube-system", field_selector=selector, resource_version="0") as watch:
            async for kind, found in watch:
                spec = found.get("spec") or {}
                if kind in ("ADDED", "MODIFIED") and spec.get("holderIdentity"):
                    term = Term("kube-system", self._lease, spec["holderIdentity"], spec.get("leaseTransitions") or 0)
                    self.terms.setdefault(term, int(found["metadata"]["resourceVersion"]))
                    self._changed.set()

    @property
    def bound(self) -> int:
        return sum(self.pods.values())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def late_writes(self) -> tuple[list[int], set[Term]]:
        """The revisions of writes whose term had ended, and all terms that have written."""
        last = int((await self._client.list(PODS, "default")).resource_version)
        began = list(self.terms.values())
        ends = dict(zip(self.terms, [*began[1:], last + 1], strict=True))
        late, wrote = [], set()
        for start in range(began[0], last + 1, _MAX_REVISIONS):
            revisions = ",".join(map(str, range(start, min(start + _MAX_REVISIONS, last + 1))))
            answer = await self._client.sender.json("GET", CAUSES_PATH, f"revisions={revisions}")
            for cause in answer["causes"]:
                if cause.get("lease") and (term := parse_term(cause["lease"])) in ends:
                    wrote.add(term)
                    if cause["revision"] >= ends[term]:
                        late.append(cause["revision"])
        return late, wrote


@asynccontextmanager
async def observing(server: ApiServerProcess, name: str) -> AsyncIterator[tuple[Client, Observer]]:
    client = connect(find_access(str(server.kubeconfig)), SystemClock())
    observer = Observer(client, name)
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(observer.pods_changed()), tasks.create_task(observer.lease_changed())]
            yield client, observer
            for task in watching:
                task.cancel()
    finally:
        await client.close()


async def lost_leadership(server: ApiServerProcess, name: str) -> None:
    """Return when a component of this server has noticed that it does not lead any more."""
    await contains(server.directory / f"{name}.log", "no longer holds the lease")


async def contains(file: Path, text: str) -> None:
    """Return when another process has written this to the file."""

    async def written() -> bool:
        try:
            with open(file) as opened:  # noqa: ASYNC230 (small and local)
                return text in opened.read()
        except FileNotFoundError:
            return False

    await poll(written)


async def poll(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 (nothing signals it)
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["controller-manager", "scheduler"])
async def test_a_leader_that_was_suspended_commits_nothing_after_the_takeover(tmp_path: Path, name: str) -> None:
    with server_pair(tmp_path) as (first, second), ExitStack() as stack:
        async with observing(second, name) as (client, observer):
            leader = stack.enter_context(component(name, first))
            await observer.until(lambda: len(observer.terms) == 1)
            if name == "scheduler":
                await client.create(node())
                await client.patch(builtin("nodes"), "large", {"spec": {"taints": None}})
                async with asyncio.TaskGroup() as tasks:
                    for number in range(WANTED):
                        tasks.create_task(client.create(named_pod(f"p{number}")))
                done: Callable[[], int] = lambda: observer.bound  # noqa: E731
            else:
                await client.create(replica_set(WANTED))
                done = lambda: len(observer.pods)  # noqa: E731
            await observer.until(lambda: done() >= WANTED // 5)
            os.kill(leader.pid, signal.SIGSTOP)
            try:
                stack.enter_context(component(name, second))
                await observer.until(lambda: len(observer.terms) == 2)
                # Requests that the first leader had sent may have done all of its work.
                if name == "scheduler":
                    await client.create(named_pod("last"))
                else:
                    await client.patch(REPLICA_SETS, "web", {"spec": {"replicas": WANTED + 1}}, namespace="default")
            finally:
                os.kill(leader.pid, signal.SIGCONT)
            await observer.until(lambda: done() == WANTED + 1)
            await lost_leadership(first, name)
            late, wrote = await observer.late_writes()
            assert (late, len(wrote)) == ([], 2)
            assert (len(observer.pods), observer.most) == (WANTED + 1, WANTED + 1)
            assert len(observer.terms) == 2


@pytest.mark.slow
async def test_writes_that_wait_in_a_suspended_server_are_refused_after_the_takeover(tmp_path: Path) -> None:
    name = "controller-manager"
    with server_pair(tmp_path) as (first, second), ExitStack() as stack:
        async with observing(second, name) as (client, observer):
            stack.enter_context(component(name, first, "--balance-servers=false"))
            await observer.until(lambda: len(observer.terms) == 1)
            writer = connect(find_access(str(first.kubeconfig)), SystemClock())
            writer.sender._who.append((TERM_HEADER, str(next(iter(observer.terms)))))
            await writer.create(config_map("in-time"))
            await client.create(replica_set(WANTED))
            await observer.until(lambda: len(observer.pods) >= WANTED // 5)
            os.kill(first.process.pid, signal.SIGSTOP)
            try:
                # Its connection is established: the request waits in the buffer of the socket.
                waiting = asyncio.ensure_future(writer.create(config_map("late")))
                stack.enter_context(component(name, second))
                await observer.until(lambda: len(observer.terms) == 2)
                await observer.until(lambda: len(observer.pods) == WANTED)
            finally:
                os.kill(first.process.pid, signal.SIGCONT)
            with pytest.raises(Conflict, match="its writes are refused"):
                await waiting
            await writer.close()
            await lost_leadership(first, name)
            late, wrote = await observer.late_writes()
            assert (late, len(wrote)) == ([], 2)
            assert (len(observer.pods), observer.most) == (WANTED, WANTED)


@pytest.mark.slow
async def test_a_leader_whose_server_is_killed_continues_its_term_on_the_other(tmp_path: Path) -> None:
    name = "controller-manager"
    with server_pair(tmp_path) as (first, second), ExitStack() as stack:
        async with observing(second, name) as (client, observer):
            stack.enter_context(component(name, first))
            await observer.until(lambda: len(observer.terms) == 1)
            await contains(first.directory / "servers.json", second.url.rpartition(":")[2])
            await client.create(replica_set(WANTED))
            await observer.until(lambda: len(observer.pods) >= WANTED // 5)
            first.process.kill()
            assert len(observer.pods) < WANTED, "it was killed too late"
            # The creation of a Pod whose answer was lost may be repeated; then the surplus is deleted.
            await observer.until(lambda: len(observer.pods) >= WANTED)

            async def complete() -> bool:
                found = await client.get(builtin("replicasets", "apps"), "web", "default")
                pods = (await client.list(PODS, "default")).items
                return (len(pods), found["status"].get("replicas")) == (WANTED, WANTED)

            await poll(complete)
            assert len(observer.terms) == 1


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
