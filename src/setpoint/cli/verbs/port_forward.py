"""`port-forward`: forward local ports to a Pod."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from setpoint.cli.command import Command
from setpoint.cli.failures import EXPECTED, Failed
from setpoint.cli.flags import texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.pod_choice import PODS, pod_running_timeout, pods_behind
from setpoint.cli.ports import Pair, addresses, pairs
from setpoint.cli.resources import choose, fetch
from setpoint.client.paths import path_of
from setpoint.client.websocket import V4, Channels, open_socket
from setpoint.meta.errors import ApiError

Obj = dict[str, Any]
_DATA, _ERROR = 0, 1
_PIECE = 32 * 1024
_LOOK_EVERY = 2.0
_LINGER = 1.0
_PREFIX = "error forwarding port"


async def run(call: Invocation) -> None:
    if len(call.args) < 2:
        call.usage("TYPE/NAME and list of ports are required for port-forward")
    word, *ports = call.args
    (target,) = await fetch(call, await choose(call, [word] if "/" in word else ["pods", word]))
    pod = (await pods_behind(call, target, "attach to", call.flags.pod_running_timeout))[0]
    assert target.obj is not None
    owner = {**target.obj, "kind": target.resource.kind}
    wanted = pairs(ports, owner, pod)
    where = addresses(call.flags.address)
    phase = (pod.get("status") or {}).get("phase", "")
    if phase != "Running":
        raise Failed(f"unable to forward port because pod is not running. Current status={phase}")
    await _Forwarding(call, pod).run(wanted, where)


class _Forwarding:
    def __init__(self, call: Invocation, pod: Obj) -> None:
        self._call = call
        self._meta = pod["metadata"]
        self._listeners: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

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
            for connection in self._connections:
                connection.cancel()
            if self._connections:
                await asyncio.wait(self._connections)

    async def _until_over(self) -> None:
        """Wait for Ctrl-C, the regular end, or for the end of the Pod."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGINT, stop.set)
        watching = asyncio.ensure_future(self._until_gone())
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((watching, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                watching.result()
                raise Failed("lost connection to pod")
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            watching.cancel()
            stopped.cancel()
            await asyncio.wait((watching, stopped))

    async def _until_gone(self) -> None:
        while True:
            watch = self._call.client.watch(
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
            await self._call.io.clock.sleep(_LOOK_EVERY)

    async def _dial(self, port: int) -> Channels:
        path = path_of(PODS, self._meta["namespace"], self._meta["name"], "portforward")
        return Channels(await open_socket(self._call.client.sender, path, f"ports={port}", (V4,)))

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
            self._call.print(f"Forwarding from {shown}:{local} -> {pair.remote}")
            self._call.flush()
        if required or not ready:
            message = f"Listeners failed to create with the following errors: [{' '.join(problems)}]"
            self._call.print_err(f"Unable to listen on port {pair.local}: {message}")
            return False
        return True

    def _handler(self, remote: int) -> Any:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._handle(remote, reader, writer))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        return connected

    async def _handle(self, remote: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        local = writer.get_extra_info("sockname")[1]
        self._call.print(f"Handling connection for {local}")
        self._call.flush()
        try:
            await self._carry(reader, writer, await self._dial(remote))
        except ConnectionError:
            pass  # the local client has disconnected
        except EXPECTED as error:
            message = error.message if isinstance(error, ApiError) else str(error)
            if not message.startswith(_PREFIX):
                message = f"{_PREFIX} {remote} to pod {self._meta['name']}: {message}"
            self._call.print_err(message)
        finally:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channels: Channels) -> None:
        """Forward data both ways until the Pod ends the connection.

        A client that has sent everything may still receive: the protocol cannot signal a half-close to the Pod, so the
        connection ends when no data has arrived for a while.
        """
        there = asyncio.ensure_future(_to_pod(reader, channels))
        received = asyncio.Event()
        back = asyncio.ensure_future(_from_pod(writer, channels, received))
        try:
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            while not back.done():
                received.clear()
                await asyncio.wait((back,), timeout=_LINGER)
                if not received.is_set():
                    return
            back.result()
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.wait((there, back))
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
