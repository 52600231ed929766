"""Sessions with commands in real containers: the runtime executes them, and this process forwards the streams.

A client never connects to the runtime's streaming server itself, and is never redirected there: its URLs need no
credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.node.cri.client import CriError
from setpoint.node.host.stream_client import RemoteProcess, StreamServerError, open_process
from setpoint.node.kubelet_api.interface import KubeletApiError, StreamOptions, StreamSession
from setpoint.node.kubelet_api.remote_streams import (
    RESIZE,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    RemoteStreams,
    internal_error,
)
from setpoint.tasks import child_tasks
from setpoint.wire.grpc import Code

_MAX_STATUS: Final = 64 * 1024
_HTTP_STATUSES: Final = {Code.NOT_FOUND: 404, Code.RESOURCE_EXHAUSTED: 429}
"""HTTP statuses of the runtime's errors, as the kubelet maps them; otherwise 500."""


class Runtime(Protocol):
    """Calls methods of the Container Runtime Interface."""

    async def call(self, method: str, request: Mapping[str, Any] | None = None, *, timeout: float = ...) -> Any: ...


class CriSessions:
    """Executes commands, and attaches to main programs."""

    def __init__(self, runtime: Runtime, clock: Clock) -> None:
        self._runtime = runtime
        self._clock = clock

    async def exec(self, container_id: str, argv: Sequence[str], options: StreamOptions) -> StreamSession:
        """Return a session that executes a command. Raise KubeletApiError."""
        request = {"container_id": container_id, "cmd": list(argv), **_streams(options)}
        return self._session(await self._url("Exec", request), options, "executing command in container")

    async def attach(self, container_id: str, options: StreamOptions, *, tty: bool) -> StreamSession:
        """Return a session with the main program, which has a terminal if `tty` is set. Raise KubeletApiError."""
        wanted = options._replace(tty=tty, stderr=options.stderr and not tty)
        request = {"container_id": container_id, **_streams(wanted)}
        return self._session(await self._url("Attach", request), wanted, "attaching to container")

    async def _url(self, method: str, request: Mapping[str, Any]) -> str:
        try:
            return str((await self._runtime.call(method, request)).url)
        except CriError as error:
            raise KubeletApiError(_HTTP_STATUSES.get(error.code, 500), str(error)) from None

    def _session(self, url: str, options: StreamOptions, action: str) -> StreamSession:
        async def run(streams: RemoteStreams) -> None:
            try:
                process = await open_process(url, options, self._clock)
            except (StreamServerError, OSError) as error:
                streams.finish(internal_error(f"error {action}: {error}"))
                return
            try:
                status = await connect(streams, process)
            finally:
                process.close()
            if status is not None:
                streams.finish(status)

        return run


def _streams(options: StreamOptions) -> Obj:
    return {"tty": options.tty, "stdin": options.stdin, "stdout": options.stdout, "stderr": options.stderr}


async def connect(streams: RemoteStreams, process: RemoteProcess) -> Obj | None:
    """Forward the streams of a client and a command until either side ends. Return how the command ended; None if the
    client disconnected first."""
    async with (
        child_tasks(_forward_output(process, streams)) as (output,),
        child_tasks(_forward_input(streams, process)) as (client,),
    ):
        await asyncio.wait((output, client), return_when=asyncio.FIRST_COMPLETED)
        if not output.done():
            return None
        try:
            return output.result()
        except OSError:
            return None  # the client is gone


async def _forward_output(process: RemoteProcess, streams: RemoteStreams) -> Obj:
    """Forward what the command writes, no faster than the client reads. Return the status that the runtime reports."""
    status = bytearray()
    while (received := await process.receive()) is not None:
        if received.channel == STATUS:
            if received.data is None:
                break
            status += received.data
            if len(status) > _MAX_STATUS:
                break
        elif received.data and received.channel in (STDOUT, STDERR):
            streams.write(received.channel, received.data)
            await streams.drained()
    return _parsed_status(bytes(status))


def _parsed_status(text: bytes) -> Obj:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and isinstance(found.get("status"), str):
        if found["status"] != "Success":
            found.setdefault("message", "")
        return found
    return internal_error("the container runtime closed the connection before it reported how the command ended")


async def _forward_input(streams: RemoteStreams, process: RemoteProcess) -> None:
    """Forward the client's input and the sizes of its terminal. Return when the client disconnects."""
    is_open = True
    while (received := await streams.receive()) is not None:
        if not is_open or received.channel not in (STDIN, RESIZE):
            continue
        if received.data is not None:
            process.write(received.channel, received.data)
        else:
            process.close_channel(received.channel)
        try:
            await process.drained()
        except OSError:
            is_open = False  # the command has ended; its last output is still being forwarded
