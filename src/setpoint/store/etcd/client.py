"""Calls to a cluster of etcd members: connections that fail over between endpoints, and errors in the store's terms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from setpoint.store.etcd import messages
from setpoint.store.interface import NotProcessed, StoreError, TooLarge, Unavailable
from setpoint.wire.grpc import Call, Channel, Code, GrpcError
from setpoint.wire.tls import TlsClient

CALL_TIMEOUT = 5.0
"""Seconds after which a call fails. etcd elects a new leader within two to three seconds."""
_CONNECT_TIMEOUT = 3.0
_KEEPALIVE, _KEEPALIVE_TIMEOUT = 5.0, 1.0
"""The server allows a ping every five seconds. A member that owes an answer is given up after two seconds,
before the clients of this server give up."""
_FIRST_PAUSE, _MAX_PAUSE = 0.05, 1.0
_METADATA = {service: {"hasleader": "true"} for service in ("etcdserverpb.KV", "etcdserverpb.Watch")}
"""Makes a member that has lost its leader refuse reads and writes and end watches instead of letting them wait."""

_TXN, _RANGE, _COMPACT = (f"/etcdserverpb.KV/{name}" for name in ("Txn", "Range", "Compact"))
_WATCH, _STATUS = "/etcdserverpb.Watch/Watch", "/etcdserverpb.Maintenance/Status"
_REVISION_QUERY: bytes = messages.RangeRequest(key=b"\0", keys_only=True, limit=1).SerializeToString()
"""Reads a key that does not exist; the answer has the revision in its header."""
_REPEATED = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNKNOWN, Code.CANCELLED, Code.ABORTED)
"""Codes that may be others if the call is repeated."""
_REFUSED = (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.ALREADY_EXISTS, Code.FAILED_PRECONDITION, Code.OUT_OF_RANGE)
_OF_THIS_MEMBER = ("no leader", "rpc not supported for learner", "request timed out", "server stopped")
"""Errors that another member may not have."""
_BUSY = "too many requests"
_NOT_PROCESSED = ("no leader", "rpc not supported for learner", _BUSY)
"""Errors of calls that certainly had no effect."""
NO_SPACE = (
    "etcd accepts no writes because its database has reached its quota (alarm NOSPACE): "
    "compact its history, defragment every member, then disarm the alarm"
)
CORRUPT = (
    "etcd refuses requests because its members have different data (alarm CORRUPT): "
    "replace the corrupt member, then disarm the alarm"
)
_QUORUM = "; more than half of its members must run and reach each other"
_HINTS = {
    "unknown authority": "check the authority of etcd's certificates, --etcd-cafile",
    "did not accept the client certificate": "check the client certificate, --etcd-certfile and --etcd-keyfile",
}
"""Advice about a failed connection, by a part of the reason."""


class EtcdCompacted(StoreError):
    """The requested revision has been compacted."""


class EtcdClient:
    """One connection for calls and one for the watch: large reads on a shared connection would delay events.

    A call that etcd certainly did not process is repeated, on the next endpoint if its connection failed, until
    CALL_TIMEOUT has passed. The first endpoint is preferred, which is usually the member on the same machine: so the
    failure of another machine does not affect this client. `return_to_first` uses it again after a failure."""

    def __init__(self, endpoints: Sequence[str], tls: TlsClient | None = None) -> None:
        if not endpoints:
            raise ValueError("no etcd endpoint is given")
        self._first = endpoints[0]
        """The endpoint to return to after a failure."""
        self._endpoints = [*endpoints]
        """The endpoints in the order in which the next connection tries them."""
        self._tls = tls
        self._calls: Channel | None = None
        self._events: Channel | None = None
        self._connecting = asyncio.Lock()
        self._refusals = ""
        """Why the endpoints could not be connected to, the last time that one could not."""
        self._loop = asyncio.get_running_loop()

    def set_endpoints(self, endpoints: Sequence[str]) -> None:
        """Use these endpoints for new connections, in this order; connections that work are kept."""
        if endpoints:
            self._first = endpoints[0]
        if endpoints and {*endpoints} != {*self._endpoints}:
            self._endpoints = [*endpoints]

    # -- calls --------------------------------------------------------------------------------------------------------

    def txn(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Commit a transaction. Raises NotProcessed; Unavailable if it is unknown whether it happened; StoreError."""
        return self.call(_TXN, request, messages.TxnResponse, repeatable=False)

    def deadline(self) -> float:
        """Return the time of the event loop at which a call that begins now fails."""
        return self._loop.time() + CALL_TIMEOUT

    def query_revision(self, on_answer: Callable[[int | StoreError | None], None]) -> None:
        """Ask for etcd's revision once, on the present connection, and return. `on_answer` receives it, or the error,
        or None if there is no connection."""
        channel = self._calls
        if channel is None or channel.failure is not None:
            return on_answer(None)

        def received(answer: bytes | GrpcError) -> None:
            if not isinstance(answer, GrpcError):
                return on_answer(int(messages.RangeResponse.FromString(answer).header.revision))
            if channel is self._calls:
                self._reconsider(channel, answer)
            return on_answer(_translated(answer))

        try:
            return channel.call(_RANGE, _REVISION_QUERY, CALL_TIMEOUT, received)
        except GrpcError:
            return on_answer(None)

    async def revision(self, deadline: float | None = None) -> int:
        """Return etcd's revision, as of a moment after the call. Raises Unavailable, StoreError."""
        answer = await self.call(_RANGE, _REVISION_QUERY, messages.RangeResponse, deadline=deadline)
        return int(answer.header.revision)

    def range(self, request: Any) -> Coroutine[Any, Any, Any]:
        """Read keys. Raises EtcdCompacted, Unavailable, StoreError."""
        return self.call(_RANGE, request, messages.RangeResponse)

    async def compact(self, revision: int) -> None:
        """Compact the history; that it is compacted already is not an error."""
        request = messages.CompactionRequest(revision=revision)
        with suppress(EtcdCompacted):
            await self.call(_COMPACT, request, messages.CompactionResponse)

    async def status(self) -> Any:
        return await self.call(_STATUS, messages.StatusRequest(), messages.StatusResponse)

    async def call(
        self, method: str, request: Any, answer: Any, *, repeatable: bool = True, deadline: float | None = None
    ) -> Any:
        """Call a method, and again while etcd certainly has not processed it or if it is `repeatable`, until `deadline`
        or for CALL_TIMEOUT. Raises NotProcessed, Unavailable, StoreError."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        remaining, pause = CALL_TIMEOUT, _FIRST_PAUSE
        if deadline is None:
            deadline = self.deadline()
        else:
            remaining = max(_FIRST_PAUSE, deadline - self._loop.time())
        while True:
            channel = self._calls
            try:
                if channel is None or channel.failure is not None:
                    channel = await self._channel(deadline)
                return answer.FromString(await channel.unary(method, data, timeout=remaining))
            except GrpcError as error:
                problem = _translated(error)
                if channel is not None and channel is self._calls:
                    self._reconsider(channel, error)
                uncertain = not isinstance(problem, NotProcessed)
                final = error.code not in _REPEATED and not error.message.endswith(_BUSY)
                if final or (uncertain and not repeatable):
                    raise problem from None
            remaining = deadline - self._loop.time() - pause
            if remaining <= 0:
                raise problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE)

    async def _channel(self, deadline: float) -> Channel:
        """Return the connection for calls. Raises GrpcError."""
        try:
            async with asyncio.timeout_at(deadline), self._connecting:  # one attempt for all callers
                if self._calls is None or self._calls.failure is not None:
                    self._calls = await self._connect()
                return self._calls
        except TimeoutError:
            reason = self._refusals or f"no endpoint answered within {CALL_TIMEOUT:g} s"
            raise GrpcError(Code.UNAVAILABLE, reason, may_be_processed=False) from None

    def _reconsider(self, channel: Channel, error: GrpcError) -> None:
        """Use another endpoint from now on if a call failed because of its member, for the watch too if it hangs."""
        hangs = error.code == Code.DEADLINE_EXCEEDED or channel.unresponsive
        if hangs or channel.failure is not None or error.message.endswith(_OF_THIS_MEMBER):
            channel.retire(error.message)
            self._calls = None
            self._prefer(channel.target, False)
        if hangs and self._events is not None and self._events.target == channel.target:
            self.drop_watch()

    # -- the watch ----------------------------------------------------------------------------------------------------

    async def watch(
        self, start: int, on_response: Callable[[Any], None], on_end: Callable[[str], None]
    ) -> Callable[[], None]:
        """Watch all keys from the revision `start` on; return a function that ends the watch.

        `on_end` receives the reason when the watch ends otherwise. Raises Unavailable."""
        try:
            if self._events is None or self._events.failure is not None:
                self._events = await self._connect()
            request = messages.WatchRequest()
            create = request.create_request
            create.key = create.range_end = b"\0"  # from the first key to the last
            create.start_revision, create.fragment = start, True

            def ended(error: GrpcError | None) -> None:
                on_end(str(_translated(error)) if error is not None else "etcd ended the watch")

            def received(data: bytes) -> None:
                on_response(messages.WatchResponse.FromString(data))

            call: Call = self._events.stream(_WATCH, received, ended)
            call.send(request.SerializeToString())
            return call.cancel
        except GrpcError as error:
            raise _translated(error) from None

    def drop_watch(self) -> None:
        """Close the connection of the watch, so that the next one uses another endpoint."""
        if self._events is not None:
            events, self._events = self._events, None
            self._prefer(events.target, False)
            events.close()

    # -- connections --------------------------------------------------------------------------------------------------

    async def _connect(self) -> Channel:
        """Connect to the first endpoint that answers. Raises GrpcError with the reasons of all."""
        reasons: list[str] = []
        for endpoint in [*self._endpoints]:
            self._prefer(endpoint, False)
            try:
                channel = await self._connect_to(endpoint)
            except GrpcError as error:
                reasons.append(error.message)
                self._refusals = "; ".join(reasons)
            else:
                self._prefer(endpoint, True)
                return channel
        raise GrpcError(Code.UNAVAILABLE, self._refusals, may_be_processed=False)

    async def _connect_to(self, endpoint: str) -> Channel:
        """Connect to one endpoint. Raises GrpcError."""
        return await Channel.connect(
            endpoint,
            tls=self._tls,
            timeout=_CONNECT_TIMEOUT,
            keepalive=_KEEPALIVE,
            keepalive_timeout=_KEEPALIVE_TIMEOUT,
            metadata=_METADATA,
        )

    @property
    def uses_first(self) -> bool:
        """Return whether the connections for calls and for the watch are those of the first endpoint."""
        return all(each is not None and each.target == self._first for each in (self._calls, self._events))

    async def return_to_first(self) -> bool:
        """Use the first endpoint again for calls, if they use another one and its member answers.

        Return whether the watch is still at another one, and should start again."""
        calls, first = self._calls, self._first
        if calls is not None and calls.failure is None and calls.target != first:
            channel = None
            try:
                channel = await self._connect_to(first)
                # This read is answered only if the member belongs to the quorum.
                await channel.unary(_RANGE, _REVISION_QUERY, timeout=_CONNECT_TIMEOUT)
            except GrpcError:
                if channel is not None:
                    channel.close()
                return False
            if self._calls is not calls:  # a call has failed meanwhile, and chosen another endpoint
                channel.close()
                return False
            self._calls = channel
            calls.retire(f"{first} is used again")
        if self._calls is None or self._calls.target != first:
            return False
        self._prefer(first, True)
        return self._events is not None and self._events.target != first

    def _prefer(self, endpoint: str, preferred: bool) -> None:
        """Try this endpoint before or after all others from now on."""
        if endpoint in self._endpoints:  # it may have been removed meanwhile
            self._endpoints.remove(endpoint)
            self._endpoints.insert(0 if preferred else len(self._endpoints), endpoint)

    def close(self) -> None:
        for channel in (self._calls, self._events):
            if channel is not None:
                channel.close()


def _translated(error: GrpcError) -> StoreError:
    message = error.message.removeprefix("etcdserver: ").removeprefix("mvcc: ")
    if "has been compacted" in message:
        return EtcdCompacted(message)
    if "database space exceeded" in message:
        return NotProcessed(NO_SPACE)
    if "corrupt cluster" in message:
        return NotProcessed(CORRUPT)
    if error.code in (Code.PERMISSION_DENIED, Code.UNAUTHENTICATED) or "user name is empty" in message:
        return NotProcessed(
            f"etcd does not authorize this server ({message}): check its client certificate, "
            "and the roles of the user that the certificate names"
        )
    if error.code == Code.UNIMPLEMENTED:
        return StoreError(f"the endpoint is not an etcd of version 3: {message}")
    if "request is too large" in message or "larger than max" in message:
        return TooLarge("etcdserver: request is too large")
    if "too many operations" in message:
        return TooLarge("etcdserver: too many operations in txn request")
    if error.code in _REFUSED:
        return StoreError(f"etcd refused the request: {message}")
    if not error.may_be_processed:
        hint = next((f"; {hint}" for part, hint in _HINTS.items() if part in message), "")
        return NotProcessed(f"etcd cannot be reached: {message}{hint}")
    if message.endswith(_NOT_PROCESSED):
        hint = _QUORUM if message.endswith("no leader") else ""
        return NotProcessed(f"etcd refused the request for now: {message}{hint}")
    if error.code == Code.DEADLINE_EXCEEDED:
        return Unavailable(f"etcd did not answer within {CALL_TIMEOUT:g} s")
    return Unavailable(f"etcd did not complete the request: {message}")
