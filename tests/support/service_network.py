"""The network of a node for tests of Services, without containers: Pods and clients are network namespaces.

Sockets belong to the namespace of the thread that made them, so that one process has servers and clients in all of them.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from real_machine import RealMachine

_CLONE_NEWNET = 0x40000000
NODE, NODE6 = "172.31.0.11", "fd00:31::11"
CLIENT, CLIENT6 = "172.32.0.2", "fd00:32::2"
POD_CIDRS = ("10.244.1.0/24", "fd00:244:1::/64")
PORT = 8080
"""The port on which every Pod serves its name and the address of its client, over TCP and UDP."""


class Namespace:
    """A network namespace with one interface, which is connected to the node."""

    def __init__(
        self, machine: RealMachine, name: str, address: str, address6: str, gateway: str, gateway6: str
    ) -> None:
        self.name = name
        self.address, self.address6 = address, address6
        self._path = machine.directory / f"netns-{name}"
        self._path.touch()
        _run("unshare", f"--net={self._path}", "true")
        link = f"to-{name}"
        machine.run("ip", "link", "add", link, "type", "veth", "peer", "name", f"peer-{name}")
        machine.run("ip", "link", "set", f"peer-{name}", "netns", str(self._path))
        machine.run("ip", "address", "add", f"{gateway}/32", "dev", link)
        machine.run("ip", "address", "add", f"{gateway6}/128", "dev", link, "nodad")
        machine.run("ip", "link", "set", link, "up")
        machine.run("ip", "route", "add", f"{address}/32", "dev", link)
        machine.run("ip", "route", "add", f"{address6}/128", "dev", link)
        for command in (
            f"ip link set peer-{name} name eth0",
            f"ip address add {address}/32 dev eth0",
            f"ip address add {address6}/128 dev eth0 nodad",
            "ip link set lo up",
            "ip link set eth0 up",
            f"ip route add {gateway}/32 dev eth0",
            f"ip route add default via {gateway} dev eth0 onlink",
            f"ip route add {gateway6}/128 dev eth0",
            f"ip route add default via {gateway6} dev eth0 onlink",
        ):
            _run("nsenter", f"--net={self._path}", *command.split())

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move the calling thread into the namespace; nothing may be awaited in the block."""
        with open("/proc/thread-self/ns/net") as outside, open(self._path) as inside:
            _set_namespace(inside.fileno())
            try:
                yield
            finally:
                _set_namespace(outside.fileno())

    def socket(self, kind: socket.SocketKind, address: str) -> socket.socket:
        """Return a socket of this namespace, of the family of an address."""
        with self.entered():
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        made.setblocking(False)
        return made

    # -- clients ------------------------------------------------------------------------------------------------------

    async def ask(self, address: str, port: int, timeout: float = 2.0) -> str:
        """Connect by TCP, and return the name of the server and the address that it saw. Raises OSError or
        TimeoutError."""
        return await ask(self.socket(socket.SOCK_STREAM, address), address, port, timeout)

    async def ask_udp(self, address: str, port: int, timeout: float = 2.0) -> str:
        return await ask_udp(self.socket(socket.SOCK_DGRAM, address), address, port, timeout)


async def ask(client: socket.socket, address: str, port: int, timeout: float = 2.0) -> str:
    loop = asyncio.get_running_loop()
    with client:
        async with asyncio.timeout(timeout):
            await loop.sock_connect(client, (address, port))
            return (await loop.sock_recv(client, 1000)).decode()


async def ask_udp(client: socket.socket, address: str, port: int, timeout: float = 2.0, *, close: bool = True) -> str:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout):
            await loop.sock_connect(client, (address, port))
            await loop.sock_sendall(client, b"?")
            return (await loop.sock_recv(client, 1000)).decode()
    finally:
        if close:
            client.close()


class ServedPod:
    """A namespace with servers on `PORT`, for both families, TCP and UDP."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._servers: list[asyncio.Server] = []
        self._transports: list[asyncio.DatagramTransport] = []

    async def start(self) -> None:
        loop, name = asyncio.get_running_loop(), self.namespace.name

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(f"{name} {writer.get_extra_info('peername')[0]}".encode())
            with suppress(ConnectionError):
                await writer.drain()
            writer.close()

        for address in (self.namespace.address, self.namespace.address6):
            listening = self.namespace.socket(socket.SOCK_STREAM, address)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((address, PORT))
            self._servers.append(await asyncio.start_server(serve, sock=listening))
            datagrams = self.namespace.socket(socket.SOCK_DGRAM, address)
            datagrams.bind((address, PORT))
            transport, _ = await loop.create_datagram_endpoint(lambda: _Echo(name), sock=datagrams)
            self._transports.append(transport)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for transport in self._transports:
            transport.close()


class _Echo(asyncio.DatagramProtocol):
    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(f"{self._name} {addr[0]}".encode(), addr)


class ServiceNetwork:
    """A node with three Pods, and a client outside. The main thread is in the node's namespace."""

    def __init__(self, machine: RealMachine) -> None:
        machine.run("ip", "address", "add", f"{NODE6}/64", "dev", "eth0", "nodad")
        machine.run("ip", "route", "add", "default", "via", "fd00:31::1", "dev", "eth0")
        # A Pod that reaches itself through a Service leaves by the interface by which it came. Redirect messages about that
        # would use up the rate of messages to the Pod.
        settings = {
            "ipv6/conf/all/forwarding": 1,
            "ipv4/conf/all/send_redirects": 0,
            "ipv4/conf/default/send_redirects": 0,
        }
        machine.run("sh", "-c", "; ".join(f"echo {value} > /proc/sys/net/{name}" for name, value in settings.items()))
        self.pods = [
            Namespace(machine, f"pod{n}", f"10.244.1.{n}", f"fd00:244:1::{n}", "10.244.1.1", "fd00:244:1::1")
            for n in (2, 3, 4)
        ]
        self.client = Namespace(machine, "client", CLIENT, CLIENT6, "172.32.0.1", "fd00:32::1")
        self.machine = machine


def _set_namespace(descriptor: int) -> None:
    # os.setns is there from Python 3.12 on.
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
