"""Static Pods of a real node, on the simulated runtime, and their mirror Pods in the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.kinds.typed import Pod
from setpoint.meta.errors import NotFound
from setpoint.meta.objects import Obj
from setpoint.node.dependencies import InformerLister, PodWorkerDependencies
from setpoint.node.host.static_pod_files import static_pod
from setpoint.node.host.static_pods import HostStaticPods, mirror_status_patch
from setpoint.node.mirror_pods import is_mirror
from setpoint.node.node_state import POD_NETWORK, AddressPool, NodeState
from setpoint.node.pod_sync import PodSync
from setpoint.node.pod_worker import PodWorker
from setpoint.node.runtime.interface import ContainerConfig, ContainerRecord
from setpoint.node.runtime.simulated import SimulatedRuntime
from setpoint.reconcile import Informer, Manager
from setpoint.system import RandomIds

PODS, NODES = builtin("pods"), builtin("nodes")
MIRROR = "kubernetes.io/config.mirror"
NODE = "node-1"
KEY, NAME = f"default/web-{NODE}", f"web-{NODE}"
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 10}


class CuttableClient:
    """A client whose writes and reads of single objects fail while the API server is away."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        if self.cut and name in ("create", "get", "patch", "update", "delete"):
            return self._fail
        return getattr(self._client, name)

    async def _fail(self, *_: Any, **__: Any) -> None:
        raise Unreachable("connection refused")


class LastingRuntime(SimulatedRuntime):
    """A runtime whose containers outlive the agent."""

    def restore_container(
        self, uid: str, config: ContainerConfig, reported: Mapping[str, Any], now: float
    ) -> ContainerRecord | None:
        return self.records(uid).current.get(config.name)


class Agent:
    """The parts of an agent that run Pods."""

    def __init__(self, server: Any, runtime: SimulatedRuntime) -> None:
        self.api = CuttableClient(server.client)
        client = cast(Client, self.api)
        self.manager = Manager(server.client, server.clock, RandomIds(1), host=NODE)
        self.node = NodeState(NODE, "192.0.2.1", AddressPool(POD_NETWORK))
        self.pods: Informer[Pod] = self.manager.informer(PODS, field_selector=f"spec.nodeName={NODE}")
        dependencies = PodWorkerDependencies(
            runtime, self.manager.recorder("kubelet"), InformerLister(self.manager), {NODE: self.node}
        )
        self.sync = PodSync(
            dependencies, self.pods, lambda _: client, server.clock, self._prepare, continues_offline=True
        )
        self.removing: set[str] = set()
        self.static = HostStaticPods(
            self.node, self.sync, self.pods, client, server.clock, lambda uid: uid in self.removing
        )
        self._clock = server.clock

    async def _prepare(self, worker: PodWorker) -> None:
        """Nothing takes time."""

    def set(self, **specs: Any) -> None:
        """Write the manifest of each static Pod, and remove all others."""
        found: dict[str, Pod] = {}
        for name, spec in specs.items():
            main = {"name": "main", "image": "busybox", "command": ["sleep", "1000"], **spec.pop("main", {})}
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
            data = json.dumps({**manifest, "spec": {"containers": [main], **spec}}).encode()
            found[f"default/{name}-{NODE}"] = static_pod(data, Path(f"/m/{name}.json"), NODE, self._clock.now())
        self.static.set(found)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        uid = pod["metadata"]["uid"]
        if is_mirror(pod):
            return
        if new is None:
            self.sync.remove_worker(uid, self.node)
        elif uid in self.sync.workers:
            self.sync.update_worker(self.sync.workers[uid], new)
        else:
            self.sync.start_worker(new, self.node)


@asynccontextmanager
async def running(server: Any, runtime: SimulatedRuntime | None = None, online: bool = True) -> AsyncIterator[Agent]:
    """Run an agent; if it is not `online`, it never reaches the API server."""
    agent = Agent(server, runtime or SimulatedRuntime(server.clock, RandomIds(1)))
    try:
        await server.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    except Exception:
        assert await server.client.get(NODES, NODE)
    agent.node.object = await server.client.get(NODES, NODE) if online else None
    work = [agent.sync.controller.run(), agent.static.run()]
    if online:
        work += [agent.manager.run(), agent.static.run_mirrors()]
    tasks = [asyncio.ensure_future(each) for each in work]
    if online:
        await agent.manager.ready.wait()
        agent.pods.add_handler(agent.pod_changed)
    try:
        yield agent
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def find(server: Any, name: str = NAME) -> Obj | None:
    try:
        found: Obj = await server.client.get(PODS, name, "default")
    except NotFound:
        return None
    return found


async def get(server: Any, name: str = NAME) -> Obj:
    found = await find(server, name)
    assert found is not None
    return found


async def test_static_pod_runs_and_is_mirrored(local_server: Any) -> None:
    async with running(local_server) as agent:
        agent.set(web={})
        await local_server.clock.advance(2)
        mirror, worker = await get(local_server), agent.sync.static[KEY]
        annotations, node = mirror["metadata"]["annotations"], await local_server.client.get(NODES, NODE)
        assert annotations[MIRROR] == annotations["kubernetes.io/config.hash"] == worker.uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"], "controller": True}
        assert mirror["metadata"]["ownerReferences"] == [owner]
        status = mirror["status"]
        assert (status["phase"], status["podIP"]) == ("Running", "10.244.0.1")
        assert status["containerStatuses"][0]["ready"] is True
        assert status["containerStatuses"] == worker.reported["containerStatuses"]
        assert agent.sync.worker("default", NAME) is worker


async def test_deleted_mirror_pod_returns_with_the_same_status(local_server: Any) -> None:
    async with running(local_server) as agent:
        agent.set(web={})
        await local_server.clock.advance(2)
        before = await get(local_server)
        await local_server.clock.advance(60)
        await local_server.client.delete(PODS, NAME, "default")
        await local_server.clock.advance(2)
        after = await get(local_server)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["status"] == before["status"]


async def test_changed_file_replaces_the_pod_after_it_has_ended(local_server: Any) -> None:
    async with running(local_server) as agent:
        hook = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}}
        agent.set(web={"main": hook})
        await local_server.clock.advance(2)
        first = agent.sync.static[KEY]
        agent.set(web={"hostNetwork": True})
        await local_server.clock.advance(3)
        assert agent.sync.static[KEY] is first and first.deleting and not first.finished
        assert (await get(local_server))["metadata"]["annotations"][MIRROR] == first.uid
        await local_server.clock.advance(60)
        second = agent.sync.static[KEY]
        assert second.uid != first.uid and first.uid not in agent.sync.workers
        mirror = await get(local_server)
        assert mirror["metadata"]["annotations"][MIRROR] == second.uid
        assert (mirror["status"]["phase"], mirror["status"]["podIP"]) == ("Running", "192.0.2.1")


async def test_removed_file_ends_the_pod(local_server: Any) -> None:
    async with running(local_server) as agent:
        agent.set(web={}, other={})
        await local_server.clock.advance(2)
        agent.set(other={})
        await local_server.clock.advance(60)
        assert await find(local_server) is None
        assert [*agent.sync.static] == [f"default/other-{NODE}"]
        assert len(agent.sync.workers) == 1
        assert await find(local_server, f"other-{NODE}")


async def test_same_pod_starts_again_when_the_former_one_is_removed(local_server: Any) -> None:
    async with running(local_server) as agent:
        agent.set(web={})
        await local_server.clock.advance(2)
        uid = agent.sync.static[KEY].uid
        agent.removing.add(uid)
        agent.set()
        await local_server.clock.advance(40)
        agent.set(web={})
        await local_server.clock.advance(5)
        assert not agent.sync.static, "something of the former Pod is left"
        agent.removing.clear()
        await local_server.clock.advance(2)
        assert agent.sync.static[KEY].uid == uid
        assert (await get(local_server))["status"]["phase"] == "Running"


async def test_pod_of_the_same_name_is_left_alone(local_server: Any) -> None:
    meta = {"name": NAME, "namespace": "default"}
    spec = {"nodeName": NODE, "containers": [{"name": "own", "image": "busybox", "command": ["sleep", "1000"]}]}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
    await local_server.client.create(account)
    created = await local_server.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    async with running(local_server) as agent:
        agent.set(web={})
        await local_server.clock.advance(2)
        assert len(agent.sync.workers) == 2
        assert agent.sync.static[KEY].reported["phase"] == "Running"
        found = await get(local_server)
        assert found["metadata"]["uid"] == created["metadata"]["uid"]
        assert found["status"]["phase"] == "Running"
        worker = agent.sync.worker("default", NAME)
        assert worker is not None and worker.uid == created["metadata"]["uid"]


async def test_static_pod_runs_without_the_api_server(local_server: Any) -> None:
    async with running(local_server, online=False) as agent:
        script = {"command": ["sh", "-c", "sleep 3; exit 1"]}
        agent.set(web={"main": script})
        await local_server.clock.advance(2)
        worker = agent.sync.static[KEY]
        assert worker.reported["phase"] == "Running"
        await local_server.clock.advance(30)
        assert worker.reported["containerStatuses"][0]["restartCount"] >= 1


async def test_mirror_pod_is_created_when_the_api_server_returns(local_server: Any) -> None:
    async with running(local_server) as agent:
        agent.api.cut = True
        agent.set(web={})
        await local_server.clock.advance(1000)
        assert await find(local_server) is None
        assert agent.sync.static[KEY].reported["phase"] == "Running"
        agent.api.cut = False
        await local_server.clock.advance(6)
        mirror = await get(local_server)
        assert mirror["status"]["phase"] == "Running"
        assert mirror["status"]["startTime"] == "2030-01-01T00:00:00Z"


async def test_restarted_agent_adopts_the_pod(local_server: Any) -> None:
    runtime = LastingRuntime(local_server.clock, RandomIds(1))
    web = {"main": {"readinessProbe": PROBE, "livenessProbe": PROBE}}
    async with running(local_server, runtime) as agent:
        agent.set(web={**web})
        await local_server.clock.advance(30)
        before = await get(local_server)
    await local_server.clock.advance(100)
    async with running(local_server, runtime) as agent:
        agent.set(web={"main": {"readinessProbe": PROBE, "livenessProbe": PROBE}})
        for _ in range(30):
            await local_server.clock.advance(1)
            after = await get(local_server)
            assert after["status"] == before["status"]
            assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_pod_that_the_node_ended_starts_again(local_server: Any) -> None:
    async with running(local_server) as agent:
        agent.set(web={})
        await local_server.clock.advance(2)
        worker = agent.sync.static[KEY]
        worker.evict("Terminated", "a shutdown", 1.0, disruption=True, announced=False)
        agent.sync.enqueue(worker.uid)
        await local_server.clock.advance(5)
        status = (await get(local_server))["status"]
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Terminated", "a shutdown")
        agent.static.restart_failed()
        await local_server.clock.advance(5)
        status = (await get(local_server))["status"]
        assert (status["phase"], "reason" in status) == ("Running", False)
        assert "DisruptionTarget" not in {each["type"] for each in status["conditions"]}


async def test_other_pods_go_on_without_the_api_server(local_server: Any) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
    await local_server.client.create(account)
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", "sleep 5; exit 1"]}
    meta = {"name": "api", "namespace": "default"}
    spec = {"nodeName": NODE, "containers": [main]}
    await local_server.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    async with running(local_server) as agent:
        await local_server.clock.advance(2)
        agent.api.cut = True
        await local_server.clock.advance(40)
        (worker,) = agent.sync.workers.values()
        record = worker.containers[0].record
        assert record is not None and record.attempt >= 1, "the container restarts although nobody knows of it"
        assert (await get(local_server, "api"))["status"]["containerStatuses"][0]["restartCount"] == 0
        agent.api.cut = False
        await local_server.clock.advance(6)
        assert (await get(local_server, "api"))["status"]["containerStatuses"][0]["restartCount"] >= record.attempt


def test_patch_of_the_mirror_status() -> None:
    ready = {"type": "Ready", "status": "True"}
    theirs = {"type": "example.com/Theirs", "status": "True"}
    stored = {"phase": "Failed", "reason": "Terminated", "podIP": "10.0.0.1", "conditions": [theirs]}
    wanted = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}
    patch = mirror_status_patch(stored, wanted)
    assert patch == {"phase": "Running", "reason": None, "conditions": [ready, theirs]}
    assert mirror_status_patch({**wanted, "conditions": [ready, theirs]}, wanted) == {}
