"""Three machines and a client on one network: namespaces joined by a bridge, or addresses of the loopback interface.

The process that runs the suite is started again in namespaces of its own (`enter`): network, mounts and process ids.
When it ends, for whatever reason, the kernel ends all processes in them and removes everything else. So nothing is left
behind, and nothing outside can be reached.

In the namespaces, the client has the address 10.77.0.1, and each machine has a network namespace and an address. The
bridge has a namespace of its own. A link is cut at the bridge; a one-way drop is a policy route of the receiver.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

MACHINES = ("m1", "m2", "m3")
_INSIDE = "SETPOINT_ROBUSTNESS_NAMESPACES"
_SWITCH = "switch"
_NETWORK = "10.77.0"
_DROP_PRIORITY, _LOCAL_PRIORITY = "10", "100"


def dependent(command: Sequence[str]) -> list[str]:
    """Return a command line whose process ends with this one, even if this one is killed outside of namespaces."""
    return [*(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []), *command]


class Network(Protocol):
    isolated: bool
    """Whether links can be cut."""

    def address(self, machine: str) -> str: ...

    def command(self, machine: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on a machine, in the process that is started."""
        ...

    async def set_link(self, machine: str, *, up: bool) -> None: ...

    async def set_drop(self, sender: str, receiver: str, *, dropped: bool) -> None:
        """Drop what one machine sends to another one, or deliver it again. The opposite direction is not affected."""
        ...


def _unshare() -> list[str]:
    program = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return program if os.geteuid() == 0 else [*program, "--user", "--map-root-user"]


def can_isolate() -> bool:
    """Return whether this process may create network namespaces."""
    if _INSIDE in os.environ:
        return True
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        return False
    trial = "mount -t tmpfs none /run && ip netns add trial && ip link add trial type bridge"
    return subprocess.run([*_unshare(), "sh", "-c", trial], capture_output=True).returncode == 0


def enter(arguments: Sequence[str]) -> None:
    """Replace this process by one in new namespaces, unless it is in them already."""
    if _INSIDE not in os.environ:
        command = [*_unshare(), sys.executable, "-m", "tests.robustness", *arguments]
        os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


class Namespaces:
    """The network namespaces of the machines. This process is in that of the client."""

    isolated = True

    @classmethod
    async def create(cls) -> Namespaces:
        await _run("mount", "-t", "tmpfs", "none", "/run")
        await _run("ip", "link", "set", "lo", "up")
        for name in (_SWITCH, *MACHINES):
            await _run("ip", "netns", "add", name)
        await _ip(_SWITCH, "link", "add", "br0", "type", "bridge")
        await _ip(_SWITCH, "link", "set", "br0", "up")
        await _run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "client", "netns", _SWITCH)
        await _run("ip", "address", "add", f"{_NETWORK}.1/24", "dev", "eth0")
        await _run("ip", "link", "set", "eth0", "up")
        await _ip(_SWITCH, "link", "set", "client", "master", "br0", "up")
        network = cls()
        for machine in MACHINES:
            await _ip(machine, "link", "set", "lo", "up")
            await _ip(machine, "link", "add", "eth0", "type", "veth", "peer", "name", machine, "netns", _SWITCH)
            await _ip(machine, "address", "add", f"{network.address(machine)}/24", "dev", "eth0")
            await _ip(machine, "link", "set", "eth0", "up")
            await _ip(_SWITCH, "link", "set", machine, "master", "br0", "up")
            # Rules of the receiver apply before the local table, and also to established connections.
            await _ip(machine, "rule", "add", "priority", _LOCAL_PRIORITY, "lookup", "local")
            await _ip(machine, "rule", "del", "priority", "0")
            command = network.command(machine, ["sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_early_demux"])
            await _run(*command)
        return network

    def address(self, machine: str) -> str:
        return f"{_NETWORK}.{11 + MACHINES.index(machine)}"

    def command(self, machine: str, command: Sequence[str]) -> list[str]:
        named = f'hostname {machine} && exec "$0" "$@"'
        return ["nsenter", f"--net=/run/netns/{machine}", "unshare", "--uts", "sh", "-c", named, *command]

    async def set_link(self, machine: str, *, up: bool) -> None:
        await _ip(_SWITCH, "link", "set", machine, "up" if up else "down")

    async def set_drop(self, sender: str, receiver: str, *, dropped: bool) -> None:
        rule = ["priority", _DROP_PRIORITY, "from", self.address(sender), "blackhole"]
        await _ip(receiver, "rule", "add" if dropped else "del", *rule)


class Loopback:
    """Machines as addresses of the loopback interface: only processes can be disturbed."""

    isolated = False

    def address(self, machine: str) -> str:
        return f"127.0.77.{11 + MACHINES.index(machine)}"

    def command(self, machine: str, command: Sequence[str]) -> list[str]:
        return dependent(command)

    async def set_link(self, machine: str, *, up: bool) -> None:
        raise NotImplementedError

    async def set_drop(self, sender: str, receiver: str, *, dropped: bool) -> None:
        raise NotImplementedError


async def _ip(namespace: str, *arguments: str) -> None:
    await _run("ip", "-n", namespace, *arguments)


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, problem = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {problem.decode().strip()}")
