"""Calls to a container runtime over the Container Runtime Interface (CRI), version v1."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from setpoint.meta.clock import Clock
from setpoint.tasks import within
from setpoint.wire.grpc import Channel, Code, GrpcError

if TYPE_CHECKING:
    from setpoint.node.cri.messages import Method

DEFAULT_TIMEOUT = 120.0
"""Seconds after which a call fails, as by the kubelet's option `runtimeRequestTimeout`."""
CONNECT_WAIT = 5.0
"""Seconds that a call waits for a runtime that is not there, before it fails with UNAVAILABLE."""
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 1.0
"""Seconds between two attempts to connect. The pause doubles."""
_CONNECT_TIMEOUT = 5.0
KEEPALIVE, KEEPALIVE_TIMEOUT = 600.0, 60.0
"""Seconds between pings, and that a ping may remain unanswered. gRPC servers written in Go close a connection on which
pings arrive more often than every five minutes."""

_GO_NAMES = {Code.CANCELLED: "Canceled", Code.OK: "OK"}
_READS = {"Version", "Status", "RuntimeConfig", "PodSandboxStatus", "ContainerStatus", "ImageStatus", "ImageFsInfo"}
_READS |= {"ListPodSandbox", "ListContainers", "ListImages", "ListContainerStats", "ListPodSandboxStats"}
_READS |= {"ContainerStats", "PodSandboxStats"}
"""Methods without an effect, which are repeated if the connection is lost."""
_TIMED_OUT = "was not answered within"
"""The part of the message with which `Channel` ends a call that has reached its deadline."""


class CriError(Exception):
    """A call failed: by the runtime's status, or because the runtime did not answer.

    The text has the form of errors in Go's gRPC library, because the kubelet shows them in events and statuses."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"rpc error: code = {go_name(code)} desc = {message}")
        self.code = code
        self.message = message


class MissingDependency(Exception):
    """A package that the client needs is not installed."""


class CriClient:
    """A connection to a container runtime that is established by the first call and again whenever it is lost.

    If the connection is lost, calls that only read and calls that the runtime certainly did not receive are repeated on
    the next one. All others are sent at most once, and fail with UNAVAILABLE: they may have had an effect or not."""

    def __init__(self, endpoint: str, clock: Clock) -> None:
        """`endpoint` is `unix:///path/of/the/socket`. Raise ValueError if it is not, and MissingDependency."""
        self.endpoint = check_endpoint(endpoint)
        check_dependencies()
        # The messages need an optional dependency.
        from setpoint.node.cri.messages import METHODS

        self._methods: Mapping[str, Method] = METHODS
        self._clock = clock
        self._channel: Channel | None = None
        self._connecting = asyncio.Lock()
        self._pause = 0.0
        self._next_attempt = 0.0
        """When the next attempt to connect may be made, in monotonic seconds."""
        self._problem = ""
        """Why the last attempt to connect failed; empty if it succeeded."""
        self._lacking: set[str] = set()
        """Methods that the runtime answered with UNIMPLEMENTED since the connection was established."""
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether the connection is established, as far as it is known without a call."""
        return self._channel is not None and self._channel.failure is None

    def lacks(self, method: str) -> bool:
        """Return whether the runtime has answered that it does not implement a method. A runtime that was restarted,
        perhaps in another version, is asked again."""
        return method in self._lacking

    async def call(
        self, method: str, request: Mapping[str, Any] | None = None, *, timeout: float = DEFAULT_TIMEOUT
    ) -> Any:
        """Call a method of RuntimeService or ImageService by its name and return the response. Raise CriError.

        `request` has the fields of the request in snake case; fields that are None are omitted. A call that is
        cancelled or not answered within `timeout` seconds is cancelled at the runtime too. While the runtime is not
        there, a call waits for it for CONNECT_WAIT seconds or `timeout`, whichever is shorter."""
        called = self._methods[method]
        try:
            data = called.request(**(request or {})).SerializeToString()
        except (TypeError, ValueError) as error:
            raise CriError(Code.INVALID_ARGUMENT, f"the request of {method} is malformed: {error}") from None
        deadline = self._clock.monotonic() + min(timeout, CONNECT_WAIT)
        while True:
            channel = self._channel
            if channel is None or channel.failure is not None:
                channel = await self._connected(deadline)
            started = self._clock.monotonic()
            try:
                answer = await channel.unary(called.path, data, timeout=timeout)
                break
            except GrpcError as error:
                now = self._clock.monotonic()
                repeatable = method in _READS or not error.may_be_processed
                if error.code is Code.UNAVAILABLE and repeatable and channel.failure is not None and now < deadline:
                    continue
                raise self._translated(method, error, timed_out=now - started >= timeout) from None
        try:
            return called.decode(answer)
        except ValueError as error:
            raise CriError(Code.INTERNAL, f"the response of {method} is malformed: {error}") from None

    def close(self) -> None:
        """Close the connection; calls in progress and later ones fail with UNAVAILABLE."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()

    def _translated(self, method: str, error: GrpcError, timed_out: bool) -> CriError:
        if error.code is Code.UNIMPLEMENTED:
            self._lacking.add(method)
        # A runtime that has noticed the deadline too may answer with any code.
        if timed_out or (error.code is Code.DEADLINE_EXCEEDED and _TIMED_OUT in error.message):
            return CriError(Code.DEADLINE_EXCEEDED, "context deadline exceeded")
        return CriError(error.code, error.message)

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _connected(self, deadline: float) -> Channel:
        """Return a working connection, established now if there is none. Raise CriError UNAVAILABLE at the deadline."""
        remaining = deadline - self._clock.monotonic()
        try:
            return await within(self._clock, max(remaining, 0.0), self._connect())
        except TimeoutError:
            reason = self._problem or f"cannot connect to {self.endpoint}"
            raise CriError(Code.UNAVAILABLE, f"the container runtime is not available: {reason}") from None

    async def _connect(self) -> Channel:
        """Connect, and again with growing pauses until it succeeds. One caller does this for all."""
        async with self._connecting:
            while True:
                if self._closed:
                    raise CriError(Code.UNAVAILABLE, "the client of the container runtime is closed")
                if self._channel is not None and self._channel.failure is None:
                    return self._channel
                if (pause := self._next_attempt - self._clock.monotonic()) > 0:
                    await self._clock.sleep(pause)
                    continue
                self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _MAX_PAUSE)
                self._next_attempt = self._clock.monotonic() + self._pause
                try:
                    self._channel = await open_channel(self.endpoint)
                except GrpcError as error:
                    self._problem = error.message
                    continue
                self._pause, self._problem = 0.0, ""
                self._lacking.clear()
                if self._closed:
                    self._channel.close()


async def open_channel(endpoint: str) -> Channel:
    """Connect to a runtime once. Raise GrpcError UNAVAILABLE."""
    return await Channel.connect(
        endpoint, timeout=_CONNECT_TIMEOUT, keepalive=KEEPALIVE, keepalive_timeout=KEEPALIVE_TIMEOUT
    )


def check_endpoint(endpoint: str) -> str:
    """Return the endpoint. Raise ValueError if it is not the address of a unix socket."""
    if not endpoint.startswith("unix:///"):
        raise ValueError(f"the endpoint of the container runtime must be unix:///path, not {endpoint!r}")
    return endpoint


def check_dependencies() -> None:
    """Raise MissingDependency if a package that CRI needs is not installed."""
    try:
        for package in ("hpack", "google.protobuf"):
            import_module(package)
    except ModuleNotFoundError as error:
        text = (
            f"a real node needs the extra [node], of which {error.name} is not installed: pip install 'setpoint[node]'"
        )
        raise MissingDependency(text) from None


def go_name(code: Code) -> str:
    """Return the name of a status code in Go."""
    return _GO_NAMES.get(code) or code.name.title().replace("_", "")
