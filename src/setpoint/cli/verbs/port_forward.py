"""`port-forward`: forward local ports to a Pod."""

from __future__ import annotations

import asyncio
import os
import signal
from ipaddress import ip_address
from typing import Any, NamedTuple

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed
from setpoint.cli.flags import texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, pod_running_timeout, pods_behind
from setpoint.cli.resources import choose, fetch
from setpoint.client.resources import path_of
from setpoint.client.websocket import V4, Channels, open_channels
from setpoint.meta.errors import ApiError
from setpoint.meta.goformat import quote
from setpoint.meta.objects import Obj
from setpoint.tasks import TaskRegistry, child_tasks, first_completed

_MAX = 65535


class Pair(NamedTuple):
    local: int
    """The local port; 0 means any free port."""
    remote: int


def pairs(words: list[str], owner: Obj, pod: Obj) -> list[Pair]:
    """Return the port pairs; `owner` is the named Service or Pod. Raise Failed."""
    service = owner if owner.get("kind") == "Service" else None
    return [_pair(_resolved(word, service, pod)) for word in words]


def addresses(given: list[str]) -> list[tuple[str, bool]]:
    """Return each address with whether it is required; of the addresses of `localhost` one is enough."""
    found: dict[str, bool] = {}
    for word in given:
        if word == "localhost":
            for one in ("127.0.0.1", "::1"):
                found.setdefault(one, False)
            continue
        try:
            ip_address(word)
        except ValueError:
            raise Failed(f"{word} is not a valid IP") from None
        found[word] = True
    if not found:
        raise Failed("you must specify at least 1 address")
    return sorted(found.items())


def _split(word: str) -> tuple[str, str]:
    local, colon, remote = word.partition(":")
    if ":" in remote:
        raise Failed(f"invalid port format '{word}'")
    return (local, remote) if colon else (local, local)


def _resolved(word: str, service: Obj | None, pod: Obj) -> str:
    local, remote = _split(word)
    if service is None:
        if not remote:
            raise Failed("remote port cannot be empty")
        wanted = _number(remote)
        if wanted is None:
            wanted = _of_pod(pod, remote)
        found = str(wanted) if _number(remote) is None else remote
        declared = [p for c in pod["spec"]["containers"] for p in c.get("ports") or ()]
        _no_udp([(p["containerPort"], p.get("protocol", "TCP")) for p in declared], wanted, remote)
        return f"{local}:{found}" if local != remote else found
    name = service["metadata"]["name"]
    declared = (service.get("spec") or {}).get("ports") or []
    wanted = _number(remote)
    if wanted is None:
        wanted = next((p["port"] for p in declared if p.get("name") == remote), None)
        if wanted is None:
            raise Failed(f"Service '{name}' does not have a named port '{remote}'")
        if local == remote:
            local = str(wanted)
    _no_udp([(p["port"], p.get("protocol", "TCP")) for p in declared], wanted, remote)
    port = next((p for p in declared if p["port"] == wanted), None)
    if port is None:
        raise Failed(f"Service {name} does not have a service port {wanted}")
    target = port.get("targetPort") or wanted
    if service["spec"].get("clusterIP") == "None":
        target = wanted
    found = str(target if isinstance(target, int) else _of_pod(pod, target))
    return f"{local}:{found}" if local != found else found


def _no_udp(declared: list[tuple[int, str]], wanted: int, word: str) -> None:
    protocols = {protocol for port, protocol in declared if port == wanted}
    if protocols == {"UDP"}:
        raise Failed(f"UDP protocol is not supported for {word}")


def _of_pod(pod: Obj, name: str) -> int:
    for part in ("containers", "initContainers"):
        for container in pod["spec"].get(part) or ():
            for port in container.get("ports") or ():
                if port.get("name") == name:
                    return int(port["containerPort"])
    raise Failed(f"Pod '{pod['metadata']['name']}' does not have a named port '{name}'")


def _number(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _pair(word: str) -> Pair:
    local, remote = _split(word)
    pair = Pair(_unsigned(local or "0", "local"), _unsigned(remote, "remote"))
    if not pair.remote:
        raise Failed("remote port must be > 0")
    return pair


def _unsigned(text: str, which: str) -> int:
    problem = ""
    if not (text.isascii() and text.isdigit()):
        problem = "invalid syntax"
    elif len(text) > 20 or int(text) > _MAX:
        problem = "value out of range"
    if problem:
        raise Failed(f"error parsing {which} port '{text}': strconv.ParseUint: parsing {quote(text)}: {problem}")
    return int(text)


_DATA, _ERROR = 0, 1
_PIECE = 32 * 1024
_POLL_INTERVAL = 2.0
_LINGER = 1.0
_PREFIX = "error forwarding port"


async def run(invocation: Invocation) -> None:
    if len(invocation.args) < 2:
        invocation.usage("TYPE/NAME and list of ports are required for port-forward")
    word, *ports = invocation.args
    (target,) = await fetch(invocation, await choose(invocation, [word] if "/" in word else ["pods", word]))
    pod = (await pods_behind(invocation, target, "attach to", invocation.flags.pod_running_timeout))[0]
    assert target.obj is not None
    owner = {**target.obj, "kind": target.resource.kind}
    wanted = pairs(ports, owner, pod)
    where = addresses(invocation.flags.address)
    phase = (pod.get("status") or {}).get("phase", "")
    if phase != "Running":
        raise Failed(f"unable to forward port because pod is not running. Current status={phase}")
    await _Forwarding(invocation, pod).run(wanted, where)


class _Forwarding:
    def __init__(self, invocation: Invocation, pod: Obj) -> None:
        self._invocation = invocation
        self._meta = pod["metadata"]
        self._listeners: list[asyncio.Server] = []
        self._connections = TaskRegistry()

    async def run(self, wanted: list[Pair], where: list[tuple[str, bool]]) -> None:
        # Checked now, so that a node without port forwarding is reported before the first connection.
        try:
            (await self._dial(wanted[0].remote)).close()
        except ApiError as error:
            raise Failed(f"error upgrading connection: {error.message}") from None
        try:
            listening = [await self._listen(pair, where) for pair in wanted]
            if not any(listening):
                shown = " ".join(f"{{{pair.local} {pair.remote}}}" for pair in wanted)
                raise Failed(f"unable to listen on any of the requested ports: [{shown}]")
            await self._until_over()
        finally:
            for listener in self._listeners:
                listener.close()
            await self._connections.stop()

    async def _until_over(self) -> None:
        """Wait for Ctrl-C, the regular end, or for the end of the Pod."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGINT, stop.set)
        try:
            await first_completed(self._until_gone(), stop.wait())
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if not stop.is_set():
            raise Failed("lost connection to pod")

    async def _until_gone(self) -> None:
        while True:
            watch = self._invocation.client.watch(
                PODS, self._meta["namespace"], field_selector=f"metadata.name={self._meta['name']}"
            )
            try:
                async for kind, pod in watch:
                    phase = (pod.get("status") or {}).get("phase")
                    if kind == "DELETED" or pod["metadata"].get("uid") != self._meta["uid"] or phase != "Running":
                        return
            except EXPECTED:
                pass  # forward even if the user may not watch, or the watch fails
            finally:
                watch.close()
            await self._invocation.io.clock.sleep(_POLL_INTERVAL)

    async def _dial(self, port: int) -> Channels:
        path = path_of(PODS, self._meta["namespace"], self._meta["name"], "portforward")
        return await open_channels(self._invocation.client.sender, path, f"ports={port}", (V4,))

    async def _listen(self, pair: Pair, where: list[tuple[str, bool]]) -> bool:
        problems, required, ready, local = [], False, 0, pair.local
        for address, must in where:
            try:
                server = await asyncio.start_server(self._handler(pair.remote), address, local)
            except OSError as error:
                shown = f"[{address}]" if ":" in address else address
                why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
                kind = "tcp6" if ":" in address else "tcp4"
                problems.append(f"unable to create listener: Error listen {kind} {shown}:{local}: bind: {why}")
                required = required or must
                continue
            ready += 1
            self._listeners.append(server)
            local = server.sockets[0].getsockname()[1]
            shown = f"[{address}]" if ":" in address else address
            self._invocation.print(f"Forwarding from {shown}:{local} -> {pair.remote}")
            self._invocation.flush()
        if required or not ready:
            message = f"Listeners failed to create with the following errors: [{' '.join(problems)}]"
            self._invocation.print_err(f"Unable to listen on port {pair.local}: {message}")
            return False
        return True

    def _handler(self, remote: int) -> Any:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections.start(self._handle(remote, reader, writer))

        return connected

    async def _handle(self, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        local = writer.get_extra_info("sockname")[1]
        self._invocation.print(f"Handling connection for {local}")
        self._invocation.flush()
        try:
            await self._carry(reader, writer, await self._dial(remote))
        except ConnectionError:
            pass  # the local client has disconnected
        except EXPECTED as error:
            message = error.message if isinstance(error, ApiError) else str(error)
            if not message.startswith(_PREFIX):
                message = f"{_PREFIX} {remote} to pod {self._meta['name']}: {message}"
            self._invocation.print_err(message)
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channels: Channels) -> None:
        """Forward data both ways until the Pod ends the connection.

        A client that has sent everything may still receive: the protocol cannot signal a half-close to the Pod, so the
        connection ends when no data has arrived for a while.
        """
        received = asyncio.Event()
        try:
            async with child_tasks(_to_pod(reader, channels), _from_pod(writer, channels, received)) as (there, back):
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
                while not back.done():
                    received.clear()
                    await asyncio.wait((back,), timeout=_LINGER)
                    if not received.is_set():
                        return
                back.result()
        finally:
            channels.close()


async def _to_pod(reader: asyncio.StreamReader, channels: Channels) -> None:
    while piece := await reader.read(_PIECE):
        await channels.send(_DATA, piece)


async def _from_pod(writer: asyncio.StreamWriter, channels: Channels, received: asyncio.Event) -> None:
    """Forward data from the Pod; each stream begins with its port number in two bytes."""
    skip, problem = {_DATA: 2, _ERROR: 2}, b""
    while (message := await channels.receive()) is not None:
        received.set()
        channel, data = message
        skipped = min(skip.get(channel, 0), len(data))
        if skipped:
            skip[channel] -= skipped
            data = data[skipped:]
        if channel == _ERROR:
            problem += data[: 4096 - len(problem)]
        elif data:
            writer.write(data)
            await writer.drain()
        if problem:
            raise Failed(problem.decode("utf-8", "replace").strip())


COMMAND = Command(
    "Forward one or more local ports to a pod",
    run,
    (
        texts("address", default=("localhost",), help="Addresses to listen on: IP addresses, or localhost for both."),
        *pod_running_timeout(60.0),
    ),
    usage="TYPE/NAME [options] [LOCAL_PORT:]REMOTE_PORT [...[LOCAL_PORT_N:]REMOTE_PORT_N]",
    about="Until Ctrl-C, or until the Pod is gone. Of several Pods behind an object, one is chosen.",
    examples="""
    # localhost:8080 is port 80 of the Pod
    setpoint port-forward pod/web 8080:80

    # Any free port; the Service's port called https
    setpoint port-forward service/web :https

    # For other machines too
    setpoint port-forward --address 0.0.0.0 deploy/web 8080:80 8443:443
    """,
)
