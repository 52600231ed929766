"""Connections to ports of real Pods, from within the network namespace of the Pod."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from setpoint.meta.clock import Clock
from setpoint.node.cri.client import CriError
from setpoint.node.cri.enums import NamespaceMode, SandboxState
from setpoint.node.host.runtime_labels import POD_UID
from setpoint.tasks import child_tasks, within
from setpoint.wire.message import RawConnection

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_CLONE_NEWNET: Final = 0x40000000
_CONNECT_TIMEOUT: Final = 30.0
_PIECE: Final = 64 * 1024


class Runtime(Protocol):
    """Calls methods of the Container Runtime Interface."""

    async def call(self, method: str, request: Mapping[str, Any] | None = None, *, timeout: float = ...) -> Any: ...


class Sandbox(NamedTuple):
    """The sandbox of a Pod."""

    id: str
    network_namespace: str
    """The path of its network namespace; empty if it uses that of the machine."""


class ConnectError(Exception):
    """No connection to the Pod could be established; the message is the runtime's."""


class NetworkNamespaces:
    """Creates sockets in other network namespaces, in a thread of its own.

    The namespace is a property of a thread. A thread whose own namespace cannot be restored is not used again."""

    def __init__(self) -> None:
        self._thread = self._new_thread()

    @staticmethod
    def _new_thread() -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="setpoint-netns")

    async def socket(self, path: str, family: socket.AddressFamily) -> socket.socket:
        """Return a TCP socket in the namespace at `path`, which does not block; an empty path means the machine's.
        Raise OSError."""
        if not path:
            return _tcp_socket(family)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, _socket_in, path, family)
        except _NotRestored as failure:
            self._thread.shutdown(wait=False)
            self._thread = self._new_thread()
            raise OSError(failure.code, os.strerror(failure.code), path) from None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class _NotRestored(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _tcp_socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


def _socket_in(path: str, family: socket.AddressFamily) -> socket.socket:
    """Create a socket in another network namespace and return to the present one."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        other = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if code := _set_namespace(other):
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(other)
        try:
            return _tcp_socket(family)
        finally:
            if code := _set_namespace(own):
                raise _NotRestored(code)
    finally:
        os.close(own)


def _set_namespace(descriptor: int) -> int:
    """Move the calling thread to a network namespace; return 0 or the error number."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ctypes.get_errno() or errno.EINVAL if libc.setns(descriptor, _CLONE_NEWNET) else 0


class PodConnections:
    """Connects clients to servers in Pods."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock
        self._namespaces = NetworkNamespaces()

    async def run(self, pod: Pod, port: int, client: RawConnection) -> str:
        """Connect a client to a TCP port of the Pod until either side ends. Return the error that prevented it or ended
        it; empty if there was none."""
        try:
            server = await self._connect(pod, port)
        except ConnectError as error:
            return str(error)
        with server:
            return await _exchange(client, server)

    def close(self) -> None:
        self._namespaces.close()

    async def _connect(self, pod: Pod, port: int) -> socket.socket:
        sandbox = await self._sandbox(pod)
        failures: list[str] = []
        for family, version, host in ((socket.AF_INET, 4, "127.0.0.1"), (socket.AF_INET6, 6, "::1")):
            shown = f"[{host}]" if version == 6 else host
            try:
                made = await self._namespaces.socket(sandbox.network_namespace, family)
            except OSError as error:
                raise ConnectError(_in_namespace(sandbox, f"failed to open netns: {error.strerror}")) from None
            try:
                await within(self._clock, _CONNECT_TIMEOUT, _establish(made, host, port))
                return made
            except OSError as error:  # includes TimeoutError
                made.close()
                why = "i/o timeout" if isinstance(error, TimeoutError) else f"connect: {_text(error)}"
                failures.append(f"IPv{version}: dial tcp{version} {shown}:{port}: {why}")
            except BaseException:
                made.close()
                raise
        inside = f'failed to connect to localhost:{port} inside namespace "{sandbox.id}", {" ".join(failures)}'
        raise ConnectError(_in_namespace(sandbox, inside))

    async def _sandbox(self, pod: Pod) -> Sandbox:
        """Return the sandbox of a running Pod. Raise ConnectError."""
        meta = pod["metadata"]
        try:
            wanted = {"label_selector": {POD_UID: meta["uid"]}, "state": {"state": SandboxState.READY}}
            found = (await self._runtime.call("ListPodSandbox", {"filter": wanted})).items
            if not found:
                raise ConnectError(f"sandbox for pod {meta['name']}_{meta['namespace']} is not running")
            newest = max(found, key=lambda each: each.created_at).id
            status = await self._runtime.call("PodSandboxStatus", {"pod_sandbox_id": newest, "verbose": True})
        except CriError as error:
            raise ConnectError(str(error)) from None
        if status.status.linux.namespaces.options.network == NamespaceMode.NODE:
            return Sandbox(newest, "")
        path = namespace_path(dict(status.info))
        if not path:
            raise ConnectError(f'the network namespace of sandbox "{newest}" is not known')
        return Sandbox(newest, path)


def namespace_path(info: Mapping[str, str]) -> str:
    """Return the path of a sandbox's network namespace, given what the runtime says about it; empty if it does not."""
    try:
        details = json.loads(info.get("info") or "{}")
        spec = (details.get("runtimeSpec") or {}).get("linux") or {}
        for each in spec.get("namespaces") or ():
            if each.get("type") == "network" and each.get("path"):
                return str(each["path"])
        pid = int(details.get("pid") or 0)
    except (ValueError, TypeError, AttributeError):
        return ""
    return f"/proc/{pid}/ns/net" if pid > 0 else ""


async def _establish(made: socket.socket, host: str, port: int) -> None:
    await asyncio.get_running_loop().sock_connect(made, (host, port))


def _text(error: OSError) -> str:
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


def _in_namespace(sandbox: Sandbox, why: str) -> str:
    if not sandbox.network_namespace:
        return f"failed to execute portforward for host network: {why}"
    return f'failed to execute portforward in network namespace "{sandbox.network_namespace}": {why}'


async def _exchange(client: RawConnection, server: socket.socket) -> str:
    """Copy bytes both ways until the server ends its side. The end of the client's input ends only the server's
    input."""
    async with child_tasks(_to_client(server, client)) as (output,), child_tasks(_to_server(client, server)):
        await asyncio.wait((output,))
        return output.result()


async def _to_client(server: socket.socket, client: RawConnection) -> str:
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = await loop.sock_recv(server, _PIECE)
        except OSError as error:
            return f"read: {_text(error)}"
        if not data:
            return ""
        client.write(data)
        try:
            await client.drained()
        except OSError:
            return ""  # the client is gone


async def _to_server(client: RawConnection, server: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # the server closes the connection: its last output is still being forwarded
        while data := await client.read():
            await loop.sock_sendall(server, data)
        server.shutdown(socket.SHUT_WR)
