"""In-process access of components to the API server: the complete request pipeline, without a socket."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import orjson

from setpoint.client.current_run import current_run
from setpoint.client.inprocess import InProcessAnswer, InProcessServer
from setpoint.client.transport import Headers
from setpoint.meta.objects import Obj
from setpoint.meta.tracebacks import drop_traceback
from setpoint.tasks import Flag
from setpoint.wire.encoding import decode_chunks
from setpoint.wire.memory_connection import MemoryConnection, connected_pair
from setpoint.wire.message import (
    Handler,
    ObjectRequest,
    ObjectResponse,
    Peer,
    Request,
    StreamResponse,
    StreamWriter,
    UpgradeResponse,
)

log = logging.getLogger("setpoint.cluster")

MAX_CONCURRENT_WRITES = 40
"""Concurrent writes of one component. The server rejects more than about two hundred at once, and a rejected client
waits for a second; queueing here is faster, and no component blocks the others."""

Event = tuple[str, Obj]
T = TypeVar("T")
P = TypeVar("P", "_BytePipe", "_EventPipe")


class InProcess:
    """Passes requests to `handle`. Its open streams run in its own task group and end with it:

    async with InProcess(api.handle) as server:
        client = Client(InProcessTransport(server, token), clock)
    """

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._peer = Peer("127.0.0.1")
        self._tasks = asyncio.TaskGroup()
        self._pipes: dict[_Pipe[Any], asyncio.Task[None]] = {}
        """The pipes of open streams, with the tasks that serve them."""
        self._upgraded: dict[MemoryConnection, asyncio.Task[None]] = {}
        """The server's ends of upgraded connections, with the tasks that serve them."""

    async def __aenter__(self) -> InProcess:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in tuple(self._pipes):
            pipe.close()
        for connection, task in tuple(self._upgraded.items()):
            connection.close()
            task.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    def for_peer(self, peer: Peer) -> InProcessServer:
        """Return the server for requests of this peer."""
        return _PeerServer(self, peer)

    async def __call__(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> InProcessAnswer:
        return await self.serve(Request(method, path, query, {}, body, self._peer), headers)

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> InProcessAnswer:
        request = ObjectRequest(method, path, query, {}, value, self._peer, _claim(method))
        return await self.serve(request, headers)

    async def serve(self, request: Request, headers: Headers) -> InProcessAnswer:
        request.headers = joined = dict(headers)
        if len(joined) != len(headers):
            _join_repeated(request, headers)
        answer = await self._handle(request)
        if isinstance(answer, ObjectResponse):
            sent = [(name.lower(), value) for name, value in answer.headers] if answer.headers else ()
            return InProcessAnswer(answer.status, sent, value=answer.value)
        if isinstance(answer, UpgradeResponse):
            sent = [(name.lower(), value) for name, value in answer.headers]
            return InProcessAnswer(101, sent, connection=self._upgrade(answer))
        sent = [(name.lower(), value) for name, value in answer.headers]
        if isinstance(answer, StreamResponse):
            if isinstance(request, ObjectRequest):
                return InProcessAnswer(answer.status, sent, events=self._open(answer, _EventPipe()))
            return InProcessAnswer(answer.status, sent, chunks=self._open(answer, _BytePipe()))
        return InProcessAnswer(answer.status, sent, answer.whole_body)

    def _upgrade(self, answer: UpgradeResponse) -> MemoryConnection:
        """Return the client's end of an upgraded connection."""
        client, server = connected_pair()

        async def run() -> None:
            try:
                await answer.run(server)
            except Exception:  # a failed connection must not end the others
                log.exception("an upgraded connection failed")
            finally:
                server.close()
                self._upgraded.pop(server, None)

        self._upgraded[server] = self._tasks.create_task(run())
        return client

    def _open(self, answer: StreamResponse, pipe: P) -> P:
        self._pipes[pipe] = self._tasks.create_task(self._run(answer.run, pipe))
        pipe.on_close = self._cancel
        return pipe

    def _cancel(self, pipe: _Pipe[Any]) -> None:
        task = self._pipes.pop(pipe, None)
        if task is not None:
            task.cancel()

    async def _run(self, run: Callable[[StreamWriter], Awaitable[None]], pipe: P) -> None:
        try:
            await run(pipe)
        except Exception as error:  # a failed stream must not end the others
            log.exception("a stream failed")
            pipe.failure = str(error)
        except asyncio.CancelledError as cancelled:
            drop_traceback(cancelled)
            raise
        finally:
            self._pipes.pop(pipe, None)
            pipe.end()


class _PeerServer:
    """An InProcessServer for one peer, with a limit on concurrent writes."""

    __slots__ = ("_peer", "_serve", "_waiting", "_writing")

    def __init__(self, server: InProcess, peer: Peer) -> None:
        self._serve = server.serve
        self._peer = peer
        self._writing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Writes that wait for a free slot, in order of arrival."""

    async def __call__(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> InProcessAnswer:
        return await self._serve_limited(Request(method, path, query, {}, body, self._peer), headers)

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> InProcessAnswer:
        return await self._serve_limited(
            ObjectRequest(method, path, query, {}, value, self._peer, _claim(method)), headers
        )

    async def _serve_limited(self, request: Request, headers: Headers) -> InProcessAnswer:
        # The renewal of a Lease does not wait, because the Lease could expire.
        if request.method == "GET" or "/leases/" in request.path:
            return await self._serve(request, headers)
        if self._writing < MAX_CONCURRENT_WRITES:
            self._writing += 1
        else:
            await self._wait_for_slot()
        try:
            return await self._serve(request, headers)
        finally:
            self._release_slot()

    async def _wait_for_slot(self) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._release_slot()  # it was assigned at the moment of the cancellation
            raise

    def _release_slot(self) -> None:
        """Pass the slot to the first write that waits, if there is one."""
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
        self._writing -= 1


def _claim(method: str) -> tuple[Any, ...]:
    """Return the claim of the run that sends a request; empty if it is a read, or belongs to no run."""
    if method == "GET":
        return ()
    run = current_run.get()
    return () if run is None else run.claim_write_in_process()


def _join_repeated(request: Request, headers: Headers) -> None:
    """Join repeated headers as the HTTP server does."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    for name, given in values.items():
        if len(given) > 1:
            request.headers[name] = ", ".join(given)
            request.repeated[name] = given


def _nothing(_: _Pipe[Any]) -> None:
    pass


class _Pipe(Generic[T]):
    """A StreamWriter for the server and an async iterator for the client. As with a socket, the server closes a stream
    whose client is too far behind according to `buffered`; the client still receives the buffered items in order."""

    __slots__ = ("_closed", "_drain", "_ended", "_items", "_reader", "buffered", "failure", "on_close")

    def __init__(self) -> None:
        self._items: deque[tuple[T, int]] | None = None
        """Items that the client has not read, each with its size; None if there are none, because an empty deque takes
        as much memory as one with 64 items."""
        self._closed = Flag()
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._drain: asyncio.Event | None = None
        self.buffered = 0
        self.on_close: Callable[[_Pipe[Any]], None] = _nothing
        """Called with the pipe when the client closes it."""
        self.failure: str | None = None
        """The error of the server's side; None if there was none."""

    # For the server.

    def put(self, item: T, size: int) -> None:
        if not self._ended:
            if self._items is None:
                self._items = deque()
            self._items.append((item, size))
            self.buffered += size
            if self._reader is not None:
                self._wake()

    async def drained(self) -> None:
        while self.buffered and not self._ended:
            if self._drain is None:
                self._drain = asyncio.Event()
            self._drain.clear()
            await self._drain.wait()

    async def closed(self) -> None:
        await self._closed.wait()

    def end(self) -> None:
        self._ended = True
        self._wake()

    # For the client.

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._ended:
                if self.failure is not None:
                    raise ConnectionResetError(self.failure)
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        item, size = self._items.popleft()
        self.buffered -= size
        if not self._items:
            self._items = None
            if self._drain is not None:
                self._drain.set()
        return item

    def close(self) -> None:
        self._items = None
        self.buffered = 0
        self._ended = True
        self._closed.set()
        self._wake()
        if self._drain is not None:
            self._drain.set()
        self.on_close(self)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _BytePipe(_Pipe[bytes]):
    __slots__ = ()

    def write(self, data: bytes) -> None:
        if data:
            self.put(data, len(data))

    def write_chunks(self, chunks: bytes) -> None:
        self.write(decode_chunks(chunks))


class _EventPipe(_Pipe[Event]):
    """An EventWriter. Bytes that a stream writes are lines, each of which is an event."""

    __slots__ = ()

    def event(self, kind: str, obj: Obj, size: int) -> None:
        self.put((kind, obj), size)

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            event = orjson.loads(line)
            self.put((event["type"], event["object"]), len(line))

    def write_chunks(self, chunks: bytes) -> None:
        self.write(decode_chunks(chunks))
