"""Three machines, one API server: Pods, Services, policies and commands across machines; a machine is lost, one leaves.

Two machines share a subnet, so that packets between their Pods are routed directly. The third one is behind a router: the
others reach its Pods by VXLAN. The tests run in the order of this file, and the last one removes a machine.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kubectl_runner import Kubectl, until
from network_lab import Lab, Namespace
from real_cluster import NodeAgent, RealCluster, machine_state, real_cluster, setpoint
from real_kubectl import PodClient, pod
from real_machine import RealMachine
from real_node import pods_in_namespace
from real_registry import registry as run_registry

from setpoint.node.host.network.load_balancers import elected

pytestmark = pytest.mark.real

NODES = ("real-1", "real-2", "real-3")
ADDRESSES = ("172.31.0.11", "172.31.0.12", "172.31.1.13")
NODE_PORT = 30080
BALANCER = "172.31.0.200"
"""The address of a load balancer, on the subnet of the first two machines."""
IMAGE = "127.0.0.1:5000/web:1"
GRACE = 20.0
"""Seconds after which the cluster regards a silent node as lost. Nodes report every ten seconds."""
FLAGS = (f"--node-monitor-grace-period={GRACE:g}s", f"--load-balancer-pool={BALANCER}/32")


@pytest.fixture(scope="module")
def machines(no_stale_machines: None) -> Iterator[list[RealMachine]]:
    """Three machines without a network between them; the main thread is in the first one."""
    made: list[RealMachine] = []
    try:
        for address in ADDRESSES:
            made.append(RealMachine.create(address))
        with made[0].entered():
            yield made
    finally:
        with ExitStack() as stack:
            for machine in made:
                stack.callback(machine.destroy)


@dataclass
class ThreeMachines:
    cluster: RealCluster
    agents: dict[str, NodeAgent]
    lan: Namespace
    """The router, which is outside of the cluster."""
    ports: dict[str, str]
    """The ports of the machines on the router."""
    before: dict[str, dict[str, Any]]
    """The state of the machines before they joined."""

    def join(self, name: str) -> None:
        """Make a machine a node with a new token."""
        first = self.cluster.machine
        command = first.run(*setpoint("token", "create", "--node", "--data-dir", first.directory / "server"))
        self.agents[name].join(command.strip())
        self.agents[name].start()

    def plug(self, node: str, state: str) -> None:
        """Set the link of a machine `up` or `down`, at the other end of its cable."""
        self.lan.run("ip", "link", "set", self.ports[node], state)


@pytest.fixture(scope="module")
def three(machines: list[RealMachine], pushed_images: Path) -> Iterator[ThreeMachines]:
    lab = Lab(machines[0])
    ports = {name: lab.connect(machine) for name, machine in zip(NODES, machines, strict=True)}
    agents = {name: NodeAgent(machine, name) for name, machine in zip(NODES, machines, strict=True)}
    with ExitStack() as stack:
        for machine in machines:
            stack.enter_context(run_registry(machine, images=pushed_images))
        cluster = stack.enter_context(real_cluster(machines[0], *FLAGS))
        before = {name: machine_state(agents[name].machine) for name in NODES[1:]}
        made = ThreeMachines(cluster, agents, lab.lan, ports, before)
        for name in NODES[1:]:
            stack.callback(agents[name].kill)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(made.join, NODES[1:]))
        for name in NODES[1:]:
            cluster.wait_ready(name)
        yield made


@pytest.fixture(scope="module")
def web(three: ThreeMachines, request: pytest.FixtureRequest) -> Iterator[Web]:
    """A Deployment with a Pod on each machine, and its Service."""
    with pods_in_namespace(three.cluster, request) as pods:
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": IMAGE, "readinessProbe": probe}],
                "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": {"app": "web"}}}],
            },
        }
        pods.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web"},
                "spec": {
                    "type": "NodePort",
                    "selector": {"app": "web"},
                    "ports": [{"port": 80, "targetPort": 8080, "nodePort": NODE_PORT}],
                },
            },
        )
        pods.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        yield Web(pods)


class Web:
    """The Pods of the Deployment."""

    def __init__(self, pods: PodClient) -> None:
        self.pods = pods
        self.kubectl: Kubectl = pods.kubectl
        items = self.kubectl.get("pods", "-l", "app=web")["items"]
        self.names = {each["spec"]["nodeName"]: each["metadata"]["name"] for each in items}
        """The name of the Pod on each node."""
        self.addresses = {each["spec"]["nodeName"]: each["status"]["podIP"] for each in items}

    def fetch(self, node: str, *urls: str) -> list[str]:
        """Return what the Pod of a node gets from each of the URLs; `failed` where it gets nothing."""
        script = "; ".join(f"timeout 2 wget -q -O - {url} 2>/dev/null || echo failed" for url in urls)
        return self.pods.execute(self.names[node], script).splitlines()

    def endpoints(self) -> set[str]:
        """Return the nodes whose Pods get connections of the Service."""
        slices = self.kubectl.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
        found = [each for one in slices for each in one.get("endpoints") or ()]
        return {each["nodeName"] for each in found if each["conditions"].get("ready")}


def reaches_all(pods: set[str], fetch: Callable[[], list[str]]) -> None:
    """Check that connections of a Service reach these Pods and no others. Which one gets a connection is random."""
    seen: set[str] = set()

    def all_seen() -> bool:
        answers = fetch()
        assert answers and set(answers) <= pods, answers
        seen.update(answers)
        return seen == pods

    until(all_seen, 30)


def _lines(run: Callable[..., str], *command: str) -> list[str]:
    return run(*command).splitlines()


def test_pods_of_all_machines_reach_each_other(three: ThreeMachines, web: Web) -> None:
    assert set(web.names) == set(NODES), "they are spread"
    subnets = {address.rpartition(".")[0] for address in web.addresses.values()}
    assert len(subnets) == len(NODES), web.addresses
    routes = three.agents["real-1"].machine.run("ip", "route", "show", "proto", "77")
    assert f"via {ADDRESSES[1]} dev eth0" in routes
    assert "dev setpoint-vx" in routes, "the third machine is in another subnet"
    urls = [f"http://{web.addresses[node]}:8080/cgi-bin/echo" for node in NODES]
    big = [f"http://{web.addresses[node]}:8080/big" for node in NODES]
    for node in NODES:
        web.pods.execute(web.names[node], "head -c 4194304 /dev/zero > /www/big")
    for source in NODES:
        found = [line.rpartition(" ")[2].strip("[]").removeprefix("::ffff:") for line in web.fetch(source, *urls)]
        assert found == [web.addresses[source]] * len(NODES), "without NAT"
        # Packets of full size, by both ways.
        copied = web.pods.execute(web.names[source], f"for url in {' '.join(big)}; do wget -q -O - $url | wc -c; done")
        assert copied.split() == [str(4 << 20)] * len(NODES)


def test_nodes_and_pods_of_all_machines_reach_each_other(three: ThreeMachines, web: Web) -> None:
    for source in NODES:
        urls = [f"http://{web.addresses[node]}:8080/hostname" for node in NODES]
        found = three.agents[source].machine.run("curl", "-sS", "-m", "5", *urls).split()
        assert found == [web.names[node] for node in NODES]
        targets = [*((address, 10250) for address in ADDRESSES), ("kubernetes.default", 443)]
        script = "; ".join(f"nc -w 3 {host} {port} < /dev/null && echo {host}" for host, port in targets)
        assert web.pods.execute(web.names[source], script).split() == [host for host, _ in targets], source


def test_services_reach_pods_of_all_machines(three: ThreeMachines, web: Web) -> None:
    pods = set(web.names.values())
    for source in NODES:
        url = f"http://web.{web.kubectl.namespace}.svc.cluster.local/hostname"
        reaches_all(pods, partial(web.fetch, source, *[url] * 8, *["http://web/hostname"] * 2))
    for address in ADDRESSES:
        curl = ("curl", "-sS", "-m", "5", *[f"http://{address}:{NODE_PORT}/hostname"] * 10)
        for run in (three.lan.run, three.agents["real-1"].machine.run):
            reaches_all(pods, partial(_lines, run, *curl))


def test_local_traffic_policy_keeps_the_address_of_the_client(three: ThreeMachines, web: Web) -> None:
    def answers(address: str) -> list[str]:
        urls = [f"http://{address}:{NODE_PORT}/{path}" for path in ("hostname", "cgi-bin/echo") for _ in range(3)]
        return three.lan.run("curl", "-sS", "-m", "5", *urls).splitlines()

    def is_local(node: str, address: str) -> bool:
        return set(answers(address)[:3]) == {web.names[node]}

    def policy(value: str) -> None:
        web.kubectl("patch", "service", "web", "-p", json.dumps({"spec": {"externalTrafficPolicy": value}}))

    policy("Local")
    try:
        for node, address in zip(NODES, ADDRESSES, strict=True):
            router = three.agents[node].machine.router
            until(partial(is_local, node, address))
            assert all(router in line for line in answers(address)[3:]), answers(address)
    finally:
        policy("Cluster")


def announcer(three: ThreeMachines) -> str:
    """Return the node that the router sends packets for the load balancer to; empty if it knows none."""
    (link,) = json.loads(three.lan.run("ip", "-json", "neighbour", "show", "to", BALANCER)) or [{}]
    for name, agent in three.agents.items():
        if link.get("lladdr") and link["lladdr"] in agent.machine.run("ip", "link", "show", "eth0"):
            return name
    return ""


def balanced(three: ThreeMachines, count: int = 10, port: int = 80, timeout: int = 5) -> list[str]:
    """Return the answers that a client outside of the cluster gets from the load balancer."""
    urls = " ".join([f"http://{BALANCER}:{port}/hostname"] * count)
    return three.lan.run("sh", "-c", f"curl -sS -m {timeout} {urls} 2>&1 || true").splitlines()


@pytest.fixture(scope="module")
def balancer(three: ThreeMachines, web: Web) -> str:
    """The name of a Service with a load balancer, whose address the second machine announces."""
    # The third machine is on another subnet. The choice between the other two depends on the name of the Service.
    names = (f"balanced-{i}" for i in range(100))
    name = next(each for each in names if elected(f"{web.kubectl.namespace}/{each}", NODES[:2]) == "real-2")
    flags = (f"--name={name}", "--type=LoadBalancer", "--port=80", "--target-port=8080")
    web.kubectl("expose", "deployment", "web", *flags)
    until(lambda: balanced(three, 1)[0] in web.names.values())
    return name


def test_one_node_announces_the_address_of_a_load_balancer(three: ThreeMachines, web: Web, balancer: str) -> None:
    pods, kubectl, name = set(web.names.values()), web.kubectl, balancer
    assert kubectl("get", "service", name).split()[9] == BALANCER
    reaches_all(pods, lambda: balanced(three))
    assert announcer(three) == "real-2"
    assert "Couldn't connect" in balanced(three, 1, port=22)[0], "it has only the ports of the Service"

    def change(**spec: Any) -> None:
        kubectl("patch", "service", name, "-p", json.dumps({"spec": spec}))

    change(externalTrafficPolicy="Local")
    until(lambda: set(balanced(three)) == {web.names["real-2"]})
    change(externalTrafficPolicy="Cluster", loadBalancerSourceRanges=["192.0.2.0/24"])
    until(lambda: "timed out" in balanced(three, 1, timeout=1)[0])
    change(loadBalancerSourceRanges=None)
    until(lambda: balanced(three, 1)[0] in pods)


def test_commands_reach_pods_of_all_machines(three: ThreeMachines, web: Web) -> None:
    """The API server connects to the kubelet API of the machine, whose certificate the cluster has signed."""
    for i, node in enumerate(NODES):
        name = web.names[node]
        assert web.pods.execute(name, "hostname").strip() == name
        assert "serving on port 8080" in web.kubectl("logs", name)
        port = 18080 + i
        with web.pods.session("port-forward", name, f"{port}:8080") as session:
            assert session.stdout is not None
            assert f"127.0.0.1:{port} -> 8080" in session.stdout.readline()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/hostname", timeout=10) as answer:
                assert answer.read().decode().strip() == name
    for node, address in zip(NODES, ADDRESSES, strict=True):
        files = three.agents[node].directories.pki
        until((files / "kubelet-server-current.pem").exists, 30)
        trusted = ssl.create_default_context(cafile=str(files / "ca.crt"))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"https://{address}:10250/pods", context=trusted, timeout=10)


def test_policies_hold_between_machines(web: Web) -> None:
    web.kubectl("label", "pod", web.names["real-2"], "role=friend")
    web.kubectl("label", "pod", web.names["real-3"], "role=server")
    web.pods.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "friends"},
            "spec": {
                "podSelector": {"matchLabels": {"role": "server"}},
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}]}],
            },
        }
    )
    url, name = f"http://{web.addresses['real-3']}:8080/hostname", web.names["real-3"]
    until(lambda: web.fetch("real-1", url) == ["failed"])
    assert web.fetch("real-2", url) == [name]
    assert web.fetch("real-3", f"http://{web.addresses['real-1']}:8080/hostname") == [web.names["real-1"]]
    by_service = ["http://web/hostname"] * 10
    reaches_all(set(web.names.values()), partial(web.fetch, "real-2", *by_service))
    web.kubectl("delete", "networkpolicy", "friends")
    until(lambda: web.fetch("real-1", url) == [name])


def test_pods_of_lost_machines_get_no_connections(three: ThreeMachines, web: Web, balancer: str) -> None:
    """The agent of one machine is stopped, the link of another one is down; then both are back."""
    agent = three.agents["real-2"]
    os.kill(agent.pid, signal.SIGSTOP)
    three.plug("real-3", "down")
    try:
        until(lambda: web.endpoints() == {"real-1"}, GRACE + 20)
        nodes = web.kubectl("get", "nodes")
        assert nodes.count("NotReady") == 2, nodes
        own = web.names["real-1"]
        until(lambda: set(web.fetch("real-1", *["http://web/hostname"] * 10)) == {own})
        # Requests first: what the router knows of neighbours that it does not use, it does not verify.
        until(lambda: set(balanced(three)) == {own} and announcer(three) == "real-1")
    finally:
        os.kill(agent.pid, signal.SIGCONT)
        three.plug("real-3", "up")
    for name in NODES:
        three.cluster.wait_ready(name)
    until(lambda: web.endpoints() == set(NODES), 60)
    until(lambda: balanced(three, 1)[0] in web.names.values() and announcer(three) == "real-2", 60)
    until(lambda: "failed" not in web.fetch("real-1", *["http://web/hostname"] * 10))
    reaches_all(set(web.names.values()), partial(web.fetch, "real-1", *["http://web/hostname"] * 10))
    items = web.kubectl.get("pods", "-l", "app=web")["items"]
    assert all(not each["status"]["containerStatuses"][0]["restartCount"] for each in items), "they went on"
    assert {each["metadata"]["name"] for each in items} == set(web.names.values())


def test_a_node_that_was_deleted_is_a_node_again(three: ThreeMachines, web: Web) -> None:
    """The agent of a machine has ended, and its Node and Pod are deleted. When it starts again, the Pod ends."""
    name, agent, kubectl = "real-2", three.agents["real-2"], web.kubectl
    node, old = kubectl.get("node", name), web.pods.get(web.names[name])
    agent.kill()
    kubectl("delete", "node", name)
    web.pods.delete(web.names[name], "--force")
    assert agent.sandboxes() == [old["metadata"]["uid"]]
    agent.start()
    three.cluster.wait_ready(name)
    assert kubectl.get("node", name)["metadata"]["uid"] != node["metadata"]["uid"]
    until(lambda: not agent.sandboxes())
    web.pods.run(pod("again", IMAGE, nodeName=name))
    url = f"http://{web.pods.get('again')['status']['podIP']}:8080/hostname"
    for source in ("real-1", "real-3"):
        assert web.fetch(source, url) == ["again"]
    web.pods.delete("again")


def _has_no_tunnel(machine: RealMachine) -> bool:
    return "setpoint-vx" not in machine.run("ip", "link")


def test_a_machine_leaves_and_is_replaced(three: ThreeMachines, web: Web) -> None:
    name, agent, kubectl = "real-3", three.agents["real-3"], web.kubectl
    kubectl("drain", name, "--ignore-daemonsets", "--timeout=60s")
    kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    until(lambda: web.endpoints() == set(NODES[:2]))
    agent.leave()
    after = machine_state(agent.machine)
    after["files"].remove("agent.log")
    assert after == three.before[name]
    kubectl("delete", "node", name)
    for machine in (three.agents[each].machine for each in NODES[:2]):
        until(partial(_has_no_tunnel, machine))
        assert web.addresses[name].rpartition(".")[0] not in machine.run("ip", "route")
    left = {each["metadata"]["name"] for each in kubectl.get("pods", "-l", "app=web")["items"]}
    reaches_all(left, partial(web.fetch, "real-1", *["http://web/hostname"] * 10))

    three.join(name)
    three.cluster.wait_ready(name)
    kubectl("scale", "deployment/web", "--replicas=4")
    kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    now = Web(web.pods)
    assert set(now.names) == set(NODES)
    urls = [f"http://{now.addresses[node]}:8080/hostname" for node in NODES]
    assert now.fetch(name, *urls) == now.fetch("real-1", *urls) == [now.names[node] for node in NODES]
