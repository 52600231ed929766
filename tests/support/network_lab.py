"""Network namespaces that are nodes and Pods: nodes on a network, with Pods that the CNI plugin `ptp` connects.

Sockets belong to the namespace in which they were created, wherever they are used: so one process probes and answers in
the names of all Pods.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_machine import RealMachine

from setpoint.node.host.cni_config import cni_config
from setpoint.node.host.network.link_commands import LinkCommands
from setpoint.node.host.network.nft import NftTable
from setpoint.system import SystemClock

_CLONE_NEWNET = 0x40000000
_CNI_PLUGINS = "/usr/lib/cni"


@dataclass
class Namespace:
    name: str
    path: Path

    @classmethod
    def create(cls, machine: RealMachine, name: str) -> Namespace:
        path = machine.directory / f"net-{name}"
        path.touch()
        _run("unshare", f"--net={path}", "true")
        found = cls(name, path)
        # Addresses are unique: nothing has to wait until the kernel knows it.
        found.run("sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad; ip link set lo up")
        return found

    def command(self, *command: str) -> list[str]:
        return ["nsenter", f"--net={self.path}", *command]

    def run(self, *command: str, text: str = "") -> str:
        return _run(*self.command(*command), text=text)

    def ip(self, lines: str) -> None:
        """Run the lines of a batch."""
        self.run("ip", "-batch", "-", text="\n".join(line.strip() for line in lines.strip().splitlines()) + "\n")

    @contextmanager
    def entered(self) -> Iterator[None]:
        with open("/proc/thread-self/ns/net") as outside, open(self.path) as inside:
            _set_namespace(inside.fileno())
            try:
                yield
            finally:
                _set_namespace(outside.fileno())

    def socket(self, family: int, kind: int) -> socket.socket:
        with self.entered():
            found = socket.socket(family, kind)
        found.setblocking(False)
        return found

    def delete(self) -> None:
        _run("umount", str(self.path))
        self.path.unlink()

    def state(self) -> dict[str, list[str]]:
        """Return links, addresses, routes, neighbours, forwarding entries and packet rules, for comparisons."""
        listings = {
            "links": "ip -details link",
            "addresses": "ip address",
            "routes": "ip route show table all",
            "routes6": "ip -6 route show table all",
            "neighbours": "ip neighbour show nud permanent",
            "forwarding": "bridge fdb show",
            "rules": "nft list ruleset",
        }
        return {name: sorted(_steady(self.run(*command.split()))) for name, command in listings.items()}


@dataclass
class LabNode(Namespace):
    addresses: list[str] = field(default_factory=list)
    """The addresses of the node on the network."""
    pod_cidrs: list[str] = field(default_factory=list)
    pods: dict[str, LabPod] = field(default_factory=dict)

    def commands(self) -> LinkCommands:
        return LinkCommands(SystemClock(), self.command())

    def table(self, name: str = "setpoint") -> NftTable:
        # A program that runs nft here, wherever the process is.
        program = self.path.with_name(f"nft-{self.name}")
        program.write_text(f'#!/bin/sh\nexec nsenter --net={self.path} nft "$@"\n')
        program.chmod(0o755)
        return NftTable(name, SystemClock(), program=str(program), generation=lambda: None)

    def node(self) -> dict[str, Any]:
        """Return the Node."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name},
            "spec": {"podCIDR": self.pod_cidrs[0], "podCIDRs": self.pod_cidrs},
            "status": {"addresses": [{"type": "InternalIP", "address": each} for each in self.addresses]},
        }

    def add_pod(self, machine: RealMachine, name: str, mtu: int | None = None) -> LabPod:
        """Start a Pod: a namespace that the plugin connects."""
        space = Namespace.create(machine, f"{self.name}-{name}")
        result = json.loads(self._plugin("ADD", space, mtu))
        addresses = [each["address"].partition("/")[0] for each in result["ips"]]
        (link,) = [each["name"] for each in result["interfaces"] if not each.get("sandbox")]
        found = self.pods[name] = LabPod(space.name, space.path, addresses, link)
        return found

    def remove_pod(self, name: str) -> None:
        pod = self.pods.pop(name)
        self._plugin("DEL", pod, None)
        pod.delete()

    def _plugin(self, verb: str, space: Namespace, mtu: int | None) -> str:
        config = cni_config(self.pod_cidrs, self.path.with_name(f"addresses-{self.name}"), mtu)
        text = json.dumps({"cniVersion": config["cniVersion"], "name": config["name"], **config["plugins"][0]})
        environment = {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": space.name,
            "CNI_NETNS": str(space.path),
            "CNI_IFNAME": "eth0",
            "CNI_PATH": _CNI_PLUGINS,
        }
        return _run(*self.command(f"{_CNI_PLUGINS}/ptp"), text=text, **environment)


@dataclass
class LabPod(Namespace):
    addresses: list[str]
    link: str
    """The name of the interface on the node."""


class Lab:
    """A network with nodes. `machine.destroy` removes all namespaces."""

    def __init__(self, machine: RealMachine, name: str = "lan") -> None:
        self._machine = machine
        self.lan = Namespace.create(machine, name)
        """The network: a router with a bridge for each subnet."""
        self.nodes: dict[str, LabNode] = {}
        self._subnets: set[int] = set()

    def add_node(self, name: str, number: int, subnet: int = 0, *, dual: bool = True) -> LabNode:
        """Add a node with the addresses 172.31.SUBNET.NUMBER and fd31:SUBNET::NUMBER, and the Pods 10.244.NUMBER.0/24."""
        self._add_subnet(subnet)
        space = Namespace.create(self._machine, name)
        addresses = [f"172.31.{subnet}.{number}", f"fd31:{subnet}::{number}"][: 2 if dual else 1]
        cidrs = [f"10.244.{number}.0/24", f"fd00:10:244:{number}::/64"][: 2 if dual else 1]
        node = self.nodes[name] = LabNode(name, space.path, addresses, cidrs)
        self.lan.run(
            "ip", "link", "add", f"port-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(node.path)
        )
        self.lan.run("ip", "link", "set", f"port-{name}", "master", f"br{subnet}", "up")
        node.ip(f"""
            address add 172.31.{subnet}.{number}/24 dev eth0
            link set eth0 up
            route add default via 172.31.{subnet}.1""")
        if dual:
            node.ip(f"""
                address add fd31:{subnet}::{number}/64 dev eth0 nodad
                route add default via fd31:{subnet}::1""")
        node.run("sh", "-c", _ROUTER)
        return node

    def connect(self, machine: RealMachine) -> str:
        """Connect a machine to the network of its address, and return the name of its port on the router."""
        subnet, number = machine.address.split(".")[2:]
        self._add_subnet(int(subnet))
        port = f"port-{subnet}-{number}"
        machine.run("ip", "link", "set", "uplink", "name", port, "netns", self.lan.path)
        self.lan.run("ip", "link", "set", port, "master", f"br{subnet}", "up")
        return port

    def _add_subnet(self, subnet: int) -> None:
        if subnet not in self._subnets:
            self._subnets.add(subnet)
            self.lan.ip(f"""
                link add br{subnet} type bridge
                address add 172.31.{subnet}.1/24 dev br{subnet}
                address add fd31:{subnet}::1/64 dev br{subnet} nodad
                link set br{subnet} up""")
            self.lan.run("sh", "-c", _ROUTER)


_ROUTER = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"


def _steady(text: str) -> Iterator[str]:
    """Yield the lines without counters and states that change with time."""
    for line in text.splitlines():
        if line.strip():
            words = line.split()
            yield " ".join(word for word in words if word not in ("tentative", "LOWER_UP"))


def _set_namespace(descriptor: int) -> None:
    # os.setns is there from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str, text: str = "", **environment: str) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}\n{text}"
    return done.stdout
