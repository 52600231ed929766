"""The example of three tiers on two machines, by the commands of its readme. A machine is lost and comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from kubectl_runner import until
from network_lab import Lab
from real_cluster import NodeAgent, RealCluster, real_cluster, setpoint
from real_examples import (
    BUILD,
    OPERATOR,
    ROOT,
    Database,
    commands,
    running_operator,
    served_images,
)
from real_machine import RealMachine

pytestmark = pytest.mark.real

ADDRESSES = {"real-1": "172.31.0.11", "real-2": "172.31.0.12"}
MANIFEST = "examples/three_tier/guestbook.yaml"
HELLO = ["hello from real-2", "hello from real-1", "hello"]
GRACE = 20
"""Seconds after which the cluster regards a silent node as lost. Nodes report every ten seconds."""


@pytest.fixture(scope="module")
def machines(no_stale_machines: None) -> Iterator[list[RealMachine]]:
    made: list[RealMachine] = []
    with ExitStack() as stack:
        for address in ADDRESSES.values():
            made.append(RealMachine.create(address))
            stack.callback(made[-1].destroy)
        stack.enter_context(made[0].entered())
        yield made


class Guestbook:
    """The application, as a client outside of the cluster sees it."""

    def __init__(self, cluster: RealCluster, lab: Lab, port: str) -> None:
        self.cluster = cluster
        self.kubectl = cluster.kubectl()
        self.database = Database(self.kubectl, "guestbook-db")
        self._lab = lab
        self._port = port
        """The port of the second machine on the router."""

    def run(self, *beginnings: str) -> str:
        """Run the commands of the readme that begin so, and return what they print."""
        script = [line for line in commands("three_tier") if line.startswith(beginnings)]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.cluster.kubeconfig)}
        done = subprocess.run(["sh", "-ec", "\n".join(script)], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr + self.kubectl.run("get", "pods", "-o", "wide").out
        return done.stdout

    def plug(self, state: str) -> None:
        """Set the link of the second machine `up` or `down`."""
        self._lab.lan.run("ip", "link", "set", self._port, state)

    def fetch(self, node: str, path: str, *options: str) -> str:
        url = f"http://{ADDRESSES[node]}:30080{path}"
        # It does not fail if there is no answer.
        return self._lab.lan.run("sh", "-c", 'curl -sS -m 5 "$@" 2>&1 || true', "sh", *options, url)

    def sign(self, node: str, text: str) -> bool:
        written = self.fetch(node, "/", "--data-urlencode", f"text={text}", "-o", "/dev/null", "-w", "%{http_code}")
        return written.endswith("303")

    def entries(self, node: str) -> list[str] | None:
        """Return the entries, newest first; None if there was no answer. One that was sent twice is returned once."""
        try:
            found: list[str] = json.loads(self.fetch(node, "/entries"))
        except ValueError:
            return None
        return list(dict.fromkeys(found))

    def place_primary(self, pod: str, other: str) -> bool:
        """Make an instance the primary; return false if that has to be repeated."""
        if self.database.primary != pod:
            self.kubectl("delete", "pod", other)
            with suppress(AssertionError):
                until(lambda: self.database.primary == pod, 20)
        return self.database.primary == pod


@pytest.fixture(scope="module")
def guestbook(machines: list[RealMachine], example_images: Path) -> Iterator[Guestbook]:
    given = commands("three_tier")
    assert {BUILD, OPERATOR, f"setpoint apply -f {MANIFEST}"} <= set(given)
    lab = Lab(machines[0])
    ports = [lab.connect(machine) for machine in machines]
    agent = NodeAgent(machines[1], "real-2")
    with ExitStack() as stack:
        for machine in machines:
            stack.enter_context(served_images(machine, example_images))
        cluster = stack.enter_context(real_cluster(machines[0], f"--node-monitor-grace-period={GRACE}s"))
        stack.callback(agent.kill)
        command = machines[0].run(
            *setpoint("token", "create", "--node", "--data-dir", machines[0].directory / "server")
        )
        agent.join(command.strip())
        agent.start()
        cluster.wait_ready("real-2")
        stack.enter_context(running_operator(cluster))
        cluster.kubectl()("apply", "-f", str(ROOT / MANIFEST))
        yield Guestbook(cluster, lab, ports[1])


def test_every_node_serves_the_application(guestbook: Guestbook) -> None:
    guestbook.run("setpoint wait", "setpoint rollout")
    assert '"hello"' in guestbook.run("NODE=", "curl")
    for node in ADDRESSES:
        until(partial(guestbook.sign, node, f"hello from {node}"), 30)
    for node in ADDRESSES:
        assert guestbook.entries(node) == HELLO
        assert "Served by guestbook-" in guestbook.fetch(node, "/")
    pods = guestbook.kubectl.get("pods")["items"]
    placed = {(each["metadata"]["labels"].get("app", "database"), each["spec"]["nodeName"]) for each in pods}
    assert len(placed) == len(pods) == 6, "each tier is on both nodes"


def stopped_at(machine: RealMachine, pod: str) -> str:
    """Return when an instance last stopped because it could not renew the Lease, from the log of its container."""
    logs = sorted(machine.directory.glob(f"pod-logs/default_{pod}_*/postgres/*.log"))
    lines = [line for log in logs for line in log.read_text().splitlines() if "the Lease was not renewed" in line]
    return max(line.split()[0] for line in lines)


def test_the_loss_of_a_node(guestbook: Guestbook, machines: list[RealMachine]) -> None:
    """The primary is on the machine that is lost: the replica takes its place."""
    database, kubectl = guestbook.database, guestbook.kubectl
    nodes = {f"guestbook-db-{i}": kubectl.get("pod", f"guestbook-db-{i}")["spec"]["nodeName"] for i in range(2)}
    (lost,) = (pod for pod, node in nodes.items() if node == "real-2")
    (other,) = (pod for pod, node in nodes.items() if node == "real-1")
    until(lambda: guestbook.place_primary(lost, other), 90)
    until(lambda: guestbook.sign("real-1", "before"), 30)
    before = ["before", *HELLO]
    until(lambda: database.read(other, "SELECT count(DISTINCT text) FROM entries") == "4", 60)
    guestbook.plug("down")
    try:
        until(lambda: database.primary == other, 60)
        acquired = kubectl.get("lease", "guestbook-db-primary")["spec"]["acquireTime"]
        assert stopped_at(machines[1], lost) < acquired, "the former primary has stopped before"
        until(lambda: guestbook.sign("real-1", "after"), 60)
        until(lambda: guestbook.entries("real-1") == ["after", *before], 30)
        # Until the node is regarded as lost, some connections go to its Pods.
        until(lambda: all(guestbook.entries("real-1") for _ in range(10)), GRACE + 30)
    finally:
        guestbook.plug("up")
    until(lambda: database.read(lost, "SELECT pg_is_in_recovery(), count(DISTINCT text) FROM entries") == "t|5", 60)
    until(lambda: guestbook.entries("real-2") == ["after", *before], 30)
