"""A real node: `sudo python bench/node_agent.py [--pods 50] [--probes 20] [--seconds 60] [--singles 20]`.

A control plane, a registry and a node agent with its own containerd, each a process of its own, in a network namespace
and a cgroup of their own; the images are made of the machine's busybox. Needs root and what the real tests need.

Measured are: the start of the agent until the Node is Ready, with containerd running and not; from a Pod that is bound
to the node until it is Running, the image being there, one by one and many at once; from the end of a container's
process until its status is in the API; and memory and CPU time of the agent and of containerd without Pods and with
many that sleep, some of them with an HTTP probe every 10 seconds. All times are taken by a client that watches the API.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from real_cluster import NODE, NodeAgent, RealCluster, joined_cluster
from real_machine import RealMachine, remove_stale
from real_registry import Registry, registry

from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.interface import ResourceRef
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj, ObjView
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks

PODS, NODES = builtin("pods"), builtin("nodes")
NAMESPACE = "default"
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT = 300.0
PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a real node.")
    parser.add_argument("--pods", type=int, default=50, help="Pods while memory and CPU time are measured")
    parser.add_argument("--probes", type=int, default=20, help="how many of them have an HTTP probe")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which CPU time is measured")
    parser.add_argument("--singles", type=int, default=20, help="Pods that are started one by one")
    parser.add_argument("--at-once", type=int, default=20, help="Pods that are started at once")
    parser.add_argument("--starts", type=int, default=3, help="starts of the agent, of which the median counts")
    parser.add_argument("--hold", action="store_true", help="wait for Enter before the Pods are removed")
    options = parser.parse_args()
    with cluster() as (running, images):
        asyncio.run(Measurement(running, images, options).run())


@contextmanager
def cluster() -> Iterator[tuple[RealCluster, Registry]]:
    remove_stale()
    machine = RealMachine.create()
    # Modules are compiled, as an installation leaves them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(machine.directory / "compiled")
    try:
        with machine.entered(), registry(machine) as images, joined_cluster(machine) as running:
            yield running, images
    finally:
        machine.destroy()


# -- processes --------------------------------------------------------------------------------------------------------


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) / 1024 for row in rows if row.startswith("VmRSS"))


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def process_of(machine: RealMachine, command: str) -> int:
    """Return the process id of a container's program."""
    for pid in machine.processes():
        if Path(f"/proc/{pid}/cmdline").read_bytes() == command.replace(" ", "\0").encode() + b"\0":
            return pid
    raise LookupError(command)


# -- Pods -------------------------------------------------------------------------------------------------------------


def pod(name: str, image: str, *command: str, probe: bool = False) -> Obj:
    container: Obj = {"name": "main", "image": image}
    if command:
        container["command"] = list(command)
    if probe:
        container["readinessProbe"] = PROBE
    spec = {"nodeName": NODE, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def condition(obj: ObjView, kind: str) -> str:
    found = [each["status"] for each in obj.get("status", {}).get("conditions") or () if each["type"] == kind]
    return found[0] if found else ""


def terminated(found: ObjView) -> bool:
    statuses = found["status"].get("containerStatuses") or ()
    return any("terminated" in each["state"] for each in statuses)


class Watched:
    """The objects of a resource as a watch shows them, and when."""

    def __init__(self) -> None:
        self.objects: dict[str, ObjView] = {}
        self.added_at: dict[str, float] = {}
        self._seen = asyncio.Condition()
        self._ready = asyncio.Event()

    async def follow(self, client: Client, resource: ResourceRef) -> None:
        async with client.watch(resource, send_initial_events=True) as events:
            async for event in events:
                now = time.perf_counter()
                if event.type == "BOOKMARK":
                    self._ready.set()
                    continue
                name = event.object["metadata"]["name"]
                if event.type == "DELETED":
                    self.objects.pop(name, None)
                else:
                    self.added_at.setdefault(name, now)
                    self.objects[name] = event.object
                async with self._seen:
                    self._seen.notify_all()

    async def ready(self) -> None:
        await self._ready.wait()

    async def until(self, reached: Callable[[], bool]) -> float:
        """Wait for a condition, and return when it was met."""
        async with asyncio.timeout(TIMEOUT), self._seen:
            await self._seen.wait_for(reached)
            return time.perf_counter()


class Measurement:
    def __init__(self, running: RealCluster, images: Registry, options: argparse.Namespace) -> None:
        self._machine = running.machine
        self._agent: NodeAgent = running.agent
        self._kubeconfig = running.kubeconfig
        self._sleeper, self._server = images.image("busybox"), images.image("web")
        self._options = options
        self._pods, self._nodes = Watched(), Watched()
        self._rows: list[tuple[str, str, str]] = []

    async def run(self) -> None:
        access = find_access(str(self._kubeconfig))
        client = connect(access, SystemClock(), user_agent="bench")
        try:
            async with child_tasks(self._pods.follow(client, PODS), self._nodes.follow(client, NODES)):
                await self._pods.ready()
                await self._nodes.ready()
                await self._measure(client)
        finally:
            await client.close()
        print(f"{'measure':52} {'found':>22}   target")
        for row in self._rows:
            print(f"{row[0]:52} {row[1]:>22}   {row[2]}")

    def _row(self, what: str, found: str, target: str = "") -> None:
        self._rows.append((what, found, target))
        print(f"{what}: {found}", file=sys.stderr, flush=True)

    async def _measure(self, client: Client) -> None:
        options = self._options
        await self._until_ready()
        starts = [await self._start(client, containerd=True) for _ in range(options.starts)]
        self._row("agent start to Ready, containerd up", f"{median(starts):.2f} s", "<= 0.7 s")
        starts = [await self._start(client, containerd=False) for _ in range(options.starts)]
        self._row("agent start to Ready, containerd down", f"{median(starts):.2f} s", "<= 1.2 s")
        await self._started(client, [pod("first", self._sleeper, "sleep", "86400")])
        await self._started(client, [pod("first-server", self._server)])
        await self._remove(client)
        await asyncio.sleep(5.0)
        self._row("agent memory, idle", f"{resident(self._agent.pid):.0f} MiB", "<= 45 MB")
        self._row("containerd memory, idle", f"{resident(self._agent.containerd_pid()):.0f} MiB")
        await self._singles(client)
        await self._at_once(client)
        await self._many(client)
        if options.hold:
            print(f"agent {self._agent.pid}, containerd {self._agent.containerd_pid()}", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        await self._remove(client)

    async def _until_ready(self) -> float:
        return await self._nodes.until(lambda: condition(self._nodes.objects.get(NODE) or {}, "Ready") == "True")

    async def _start(self, client: Client, *, containerd: bool) -> float:
        """Return the seconds from the start of the agent until the Node is Ready. The agent was killed before."""
        if not containerd:
            self._agent.kill_containerd()
        self._agent.kill()
        ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        change = {"status": {"conditions": [ready]}}
        await client.patch(NODES, NODE, change, kind="strategic", subresource="status")
        await self._nodes.until(lambda: condition(self._nodes.objects[NODE], "Ready") == "Unknown")
        began = time.perf_counter()
        self._agent.start()
        return await self._until_ready() - began

    async def _started(self, client: Client, manifests: list[Obj]) -> list[float]:
        """Create Pods, and return how long each took from its binding to the state Running, in seconds."""
        names = [each["metadata"]["name"] for each in manifests]

        def running(name: str) -> bool:
            return condition(self._pods.objects.get(name) or {}, "ContainersReady") == "True"

        async def one(manifest: Obj) -> float:
            name = manifest["metadata"]["name"]
            await client.create(manifest)
            at = await self._pods.until(lambda: running(name))
            return at - self._pods.added_at[name]

        found = await asyncio.gather(*(one(each) for each in manifests))
        assert all(map(running, names))
        return sorted(found)

    async def _singles(self, client: Client) -> None:
        found: list[float] = []
        exits: list[float] = []
        for number in range(self._options.singles):
            name, seconds = f"single-{number}", str(86401 + number)
            found += await self._started(client, [pod(name, self._sleeper, "sleep", seconds)])
            began = time.perf_counter()
            os.kill(process_of(self._machine, f"sleep {seconds}"), signal.SIGKILL)
            exits.append(await self._pods.until(lambda name=name: terminated(self._pods.objects[name])) - began)  # type: ignore[misc]
        self._row("bind to Running, one by one, p50 / p99", _p50_p99(found), "idle machine <= 0.4 s")
        self._row("exit of a container to status, p50 / p99", _p50_p99(exits), "<= 0.1 s")
        await self._remove(client)

    async def _at_once(self, client: Client) -> None:
        count = self._options.at_once
        manifests = [pod(f"many-{number}", self._sleeper, "sleep", "86400") for number in range(count)]
        before = cpu_seconds(self._agent.pid)
        began = time.perf_counter()
        found = await self._started(client, manifests)
        took, used = time.perf_counter() - began, cpu_seconds(self._agent.pid) - before
        self._row(f"bind to Running, {count} at once, p50 / p99", _p50_p99(found), "<= 0.6 x kubelet")
        self._row(f"{count} at once until all run", f"{took:.2f} s", "110 Pods <= 30 s")
        self._row("CPU time of the agent for each of them", f"{1000 * used / count:.0f} ms", "<= 40 ms")
        await self._remove(client)

    async def _many(self, client: Client) -> None:
        options = self._options
        probes = min(options.probes, options.pods)
        manifests = [
            pod(f"idle-{number}", self._server, probe=True)
            if number < probes
            else pod(f"idle-{number}", self._sleeper, "sleep", "86400")
            for number in range(options.pods)
        ]
        for at in range(0, len(manifests), 10):
            await self._started(client, manifests[at : at + 10])
        await asyncio.sleep(10.0)
        agent, containerd = self._agent.pid, self._agent.containerd_pid()
        before = (cpu_seconds(agent), cpu_seconds(containerd))
        began = time.perf_counter()
        await asyncio.sleep(options.seconds)
        took = time.perf_counter() - began
        used = (cpu_seconds(agent) - before[0], cpu_seconds(containerd) - before[1])
        what = f"{options.pods} Pods"
        self._row(f"agent memory, {what}", f"{resident(agent):.0f} MiB", "110 Pods <= 60 MB")
        self._row(f"containerd memory, {what}", f"{resident(containerd):.0f} MiB")
        probed = f"{what}, {probes} HTTP probes"
        self._row(f"agent CPU, {probed}", f"{100 * used[0] / took:.2f} % of a core", "110 Pods <= 2 %")
        self._row(f"containerd CPU, {probed}", f"{100 * used[1] / took:.2f} % of a core")

    async def _remove(self, client: Client) -> None:
        await client.delete_collection(PODS, NAMESPACE)
        await self._pods.until(lambda: not self._pods.objects)
        self._pods.added_at.clear()


def _p50_p99(found: list[float]) -> str:
    ordered = sorted(found)
    if not ordered:
        return "-"
    return f"{median(ordered):.3f} / {ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]:.3f} s"


if __name__ == "__main__":
    main()
