"""Real nodes and a control plane of three machines on etcd: nodes joined through one server, and that machine is lost."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from control_plane import require_etcd
from effort import THOROUGH
from kubectl_runner import Kubectl
from network_lab import Lab
from real_cluster import PORT, NodeAgent, RealCluster, setpoint
from real_kubectl import pod
from real_machine import RealMachine, wait_until
from real_node import pods_in_namespace
from real_registry import registry as run_registry

pytestmark = pytest.mark.real

ADDRESSES = ("172.31.0.11", "172.31.0.12", "172.31.0.13", "172.31.0.14")
"""The first three machines are the control plane; the last two are nodes."""
NODES = ("real-3", "real-4")
IMAGE = "127.0.0.1:5000/web:1"
GRACE = 30.0
"""Seconds after which the cluster regards a silent node as lost."""
_START = 60.0


@dataclass
class Servers:
    machines: list[RealMachine]
    agents: list[NodeAgent]

    def cluster(self, number: int, node: int = 0) -> RealCluster:
        """Return the cluster as the server of a machine shows it."""
        machine = self.machines[number]
        return RealCluster(machine, machine.directory / "server" / "admin.kubeconfig", self.agents[node])

    def lose(self, number: int) -> None:
        """End all processes of a machine at once."""
        machine = self.machines[number]
        while pids := machine.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.02)


def start_server(machine: RealMachine, *flags: str) -> None:
    log = machine.directory / "server.log"
    options = ["--data-dir", str(machine.directory / "server"), "--port", str(PORT), "--nodes", "0", "--quiet"]
    more = [f"--advertise-address={machine.address}", f"--node-monitor-grace-period={GRACE:g}s"]
    process = machine.spawn(setpoint("up", *options, *more, *flags), log)

    def started() -> bool:
        assert process.poll() is None, log.read_text()
        return " is ready at " in log.read_text()

    wait_until(started, _START, log.read_text)


def token(machine: RealMachine, kind: str) -> str:
    """Return the command that joins another machine."""
    return machine.run(*setpoint("token", "create", kind, "--data-dir", machine.directory / "server")).strip()


@pytest.fixture(scope="module")
def servers(no_stale_machines: None, pushed_images: Path) -> Iterator[Servers]:
    require_etcd()
    with ExitStack() as stack:
        machines = []
        for address in ADDRESSES:
            machines.append(RealMachine.create(address))
            stack.callback(machines[-1].destroy)
        lab = Lab(machines[0])
        for machine in machines:
            lab.connect(machine)
        stack.enter_context(machines[1].entered())
        for machine in machines[2:]:
            stack.enter_context(run_registry(machine, images=pushed_images))
        start_server(machines[0], "--etcd", "embedded")
        words = shlex.split(token(machines[0], "--control-plane"))
        for machine in machines[1:3]:
            start_server(machine, *words[words.index("--join") :])
        found = Servers(machines, [NodeAgent(machine, name) for name, machine in zip(NODES, machines[2:], strict=True)])

        def join(agent: NodeAgent) -> None:
            agent.join(token(machines[0], "--node"))
            agent.start()

        for agent in found.agents:
            stack.callback(agent.kill)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(join, found.agents))
        for name in NODES:
            found.cluster(0).wait_ready(name)
        yield found


def running(kubectl: Kubectl, *labels: str) -> dict[str, str]:
    """Return the nodes of the Pods that run, by name."""
    done = kubectl.run("get", "pods", *labels, "-o", "json")
    items = json.loads(done.out)["items"] if done.code == 0 else []
    return {
        each["metadata"]["name"]: each["spec"]["nodeName"]
        for each in items
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }


def ready_since(kubectl: Kubectl) -> dict[str, str]:
    """Return since when each node is ready, without interruption."""
    found = {each["metadata"]["name"]: each["status"]["conditions"] for each in kubectl.get("nodes")["items"]}
    return {
        name: each["lastTransitionTime"]
        for name, conditions in found.items()
        for each in conditions
        if (each["type"], each["status"]) == ("Ready", "True")
    }


def test_nodes_use_another_server_when_theirs_is_lost(servers: Servers, request: pytest.FixtureRequest) -> None:
    with pods_in_namespace(servers.cluster(1), request) as pods:
        kubectl = pods.kubectl
        for name in NODES:
            pods.run(pod(f"before-{name}", IMAGE, nodeName=name))
        since = ready_since(kubectl)
        assert set(since) == set(NODES)
        servers.lose(0)
        # The nodes run new Pods and report them.
        pods.apply(*(pod(f"after-{name}", IMAGE, nodeName=name) for name in NODES))
        expected = {f"{when}-{name}": name for when in ("before", "after") for name in NODES}
        wait_until(lambda: running(kubectl) == expected, _START, lambda: kubectl("get", "pods", "-o", "wide"))
        # An agent that starts now knows the other servers from its file.
        agent = servers.agents[1]
        agent.kill()
        agent.start()
        pods.apply(pod("restarted", IMAGE, nodeName=agent.name))
        expected["restarted"] = agent.name
        wait_until(lambda: running(kubectl) == expected, _START, lambda: kubectl("get", "pods", "-o", "wide"))
        if THOROUGH:
            # Controllers and scheduler move too, after the Leases of the lost machine have expired.
            kubectl("create", "deployment", "web", f"--image={IMAGE}", "--replicas=4")
            wait_until(
                lambda: sorted(running(kubectl, "-l", "app=web").values()) == [NODES[0]] * 2 + [NODES[1]] * 2,
                _START,
                lambda: kubectl("get", "pods", "-o", "wide"),
            )
        assert ready_since(kubectl) == since
        items = kubectl.get("pods")["items"]
        assert not [each for each in items if each["status"]["containerStatuses"][0]["restartCount"]]
