"""`/exec` and `/attach`: connects a client to a command in a running container, or to the container's main program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.node.kubelet_api.interface import (
    KubeletApiError,
    NodeHost,
    NodeRequest,
    NodeResponse,
    StreamOptions,
    StreamSession,
    UpgradedResponse,
)
from setpoint.node.kubelet_api.logs import container_id_of, require_pod
from setpoint.node.kubelet_api.remote_streams import (
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    SpdyStreams,
    WebSocketStreams,
    negotiate_spdy,
    negotiate_websocket,
)
from setpoint.node.runtime.interface import NoSuchContainer
from setpoint.wire.message import RawConnection
from setpoint.wire.spdy import SpdyConnection, is_spdy
from setpoint.wire.websocket import WebSocket, is_websocket

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_WEBSOCKET_SETUP_SECONDS = 0.1
"""The time between the handshake of a WebSocket and the first message to the client.

kubectl up to 1.33 reads messages before it has set up the streams they belong to, and discards the ones that come too
early ("Unknown stream id 1, discarding message"). A container runtime takes about this long to start a process, a
simulated command less than a millisecond.
"""


def parse_stream_options(request: NodeRequest) -> StreamOptions:
    """Parse the query of a request. Raise KubeletApiError."""
    tty = request.flag("tty")
    stderr = request.flag("error") and not tty
    options = StreamOptions(request.flag("input"), request.flag("output"), stderr, tty)
    if not (options.stdin or options.stdout or options.stderr):
        raise KubeletApiError(400, "you must specify at least 1 of stdin, stdout, stderr")
    return options


def _channels(options: StreamOptions) -> list[int]:
    """Return the channels that a client which opens its streams one by one will open."""
    requested = ((STDIN, options.stdin), (STDOUT, options.stdout), (STDERR, options.stderr), (STATUS, True))
    return [channel for channel, opened in requested if opened]


async def exec_in_container(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    namespace, name, container = parts
    pod, options = require_pod(host, namespace, name), parse_stream_options(request)
    argv = list(request.query.get("command", ()))
    _require_running(pod, container)
    return _upgrade(request, options, clock, await host.exec(pod, container, argv, options))


async def attach_to_container(request: NodeRequest, host: NodeHost, clock: Clock, parts: list[str]) -> NodeResponse:
    """Stream what the main program writes from now on and, if the container has a standard input, send it the client's
    input."""
    namespace, name, container = parts
    pod, options = require_pod(host, namespace, name), parse_stream_options(request)
    _require_running(pod, container)
    try:
        session = await host.attach(pod, container, container_id_of(pod, container, previous=False), options)
    except NoSuchContainer:
        raise KubeletApiError(500, f"container {container} not found in pod {name}_{namespace}") from None
    return _upgrade(request, options, clock, session)


def _require_running(pod: Pod, container: str) -> None:
    fields = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
    status: ObjView = pod.get("status") or {}
    for field in fields:
        for each in status.get(field) or ():
            if each["name"] == container and "running" in (each.get("state") or {}):
                return
    raise KubeletApiError(500, f'unable to upgrade connection: container not found ("{container}")')


def _upgrade(request: NodeRequest, options: StreamOptions, clock: Clock, session: StreamSession) -> NodeResponse:
    if is_websocket(request.headers):
        protocol, headers = negotiate_websocket(request.headers)
        return UpgradedResponse(headers, _over_websocket(protocol, options, clock, session))
    if is_spdy(request.headers):
        protocol, headers = negotiate_spdy(request.header_values("x-stream-protocol-version"))
        return UpgradedResponse(headers, _over_spdy(protocol, options, session))
    raise KubeletApiError(400, f"neither WebSocket nor SPDY/3.1: {request.headers.get('upgrade', 'nothing')}")


def _over_websocket(
    protocol: str, options: StreamOptions, clock: Clock, session: StreamSession
) -> Callable[[RawConnection], Awaitable[None]]:
    async def serve(connection: RawConnection) -> None:
        streams = WebSocketStreams(WebSocket(connection), protocol)
        await clock.sleep(_WEBSOCKET_SETUP_SECONDS)
        # An empty message signals to the client that the streams are set up.
        streams.write(STDOUT if options.stdout else STDERR if options.stderr else STATUS, b"")
        await session(streams)
        with suppress(OSError):
            await streams.drained()

    return serve


def _over_spdy(
    protocol: str, options: StreamOptions, session: StreamSession
) -> Callable[[RawConnection], Awaitable[None]]:
    async def serve(connection: RawConnection) -> None:
        streams = SpdyStreams(SpdyConnection(connection), protocol)
        if not await streams.open(_channels(options)):
            return
        await session(streams)
        with suppress(OSError):
            await streams.drained()
            # The client closes the connection after it has read everything; closing it here could discard unread data.
            while await streams.receive() is not None:
                pass

    return serve
