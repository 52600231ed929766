"""The API server as the components of its own process see it: the real pipeline, without a socket."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import orjson

from setpoint.apiserver.http.encoding import unframed
from setpoint.apiserver.http.message import (
    Handler,
    ObjectRequest,
    ObjectResponse,
    Peer,
    Request,
    StreamResponse,
    UpgradeResponse,
)
from setpoint.client.inprocess import InProcessAnswer, InProcessServer
from setpoint.client.transport import Headers, Unreachable
from setpoint.meta.tracebacks import drop_traceback

log = logging.getLogger("setpoint.cluster")

WRITES_AT_ONCE = 40
"""Of one component. The server refuses to work on more than some two hundred at once, and who is refused waits for a
second; with its turn in sight none waits that long, and none is in the way of the others."""

Obj = dict[str, Any]
Event = tuple[str, Obj]
T = TypeVar("T")
P = TypeVar("P", "_BytePipe", "_EventPipe")


class InProcess:
    """Hands requests to `handle`. The streams it has open run in a task group of its own and end with it:

    async with InProcess(api.handle) as server:
        client = Client(InProcessTransport(server, token), clock)
    """

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._peer = Peer("127.0.0.1")
        self._tasks = asyncio.TaskGroup()
        self._pipes: dict[_Pipe[Any], None] = {}

    async def __aenter__(self) -> InProcess:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in tuple(self._pipes):
            pipe.close()
        await self._tasks.__aexit__(kind, error, trace)

    def for_peer(self, peer: Peer) -> InProcessServer:
        """The same server, as this peer sees it."""
        return _Entrance(self, peer)

    async def __call__(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> InProcessAnswer:
        return await self.serve(Request(method, path, query, {}, body, self._peer), headers)

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> InProcessAnswer:
        return await self.serve(ObjectRequest(method, path, query, {}, value, self._peer), headers)

    async def serve(self, request: Request, headers: Headers) -> InProcessAnswer:
        request.headers = together = dict(headers)
        if len(together) != len(headers):
            _join_repeated(request, headers)
        answer = await self._handle(request)
        if isinstance(answer, ObjectResponse):
            sent = [(name.lower(), value) for name, value in answer.headers] if answer.headers else ()
            return InProcessAnswer(answer.status, sent, value=answer.value)
        if isinstance(answer, UpgradeResponse):
            raise Unreachable("connections that leave HTTP need a socket: they cannot be had within the process")
        sent = [(name.lower(), value) for name, value in answer.headers]
        if isinstance(answer, StreamResponse):
            if isinstance(request, ObjectRequest):
                return InProcessAnswer(answer.status, sent, events=self._open(answer, _EventPipe()))
            return InProcessAnswer(answer.status, sent, chunks=self._open(answer, _BytePipe()))
        return InProcessAnswer(answer.status, sent, answer.whole_body)

    def _open(self, answer: StreamResponse, pipe: P) -> P:
        self._pipes[pipe] = None
        task = self._tasks.create_task(self._run(answer, pipe))
        pipe.cancel = task.cancel

        def over(_: asyncio.Task[None]) -> None:
            self._pipes.pop(pipe, None)
            pipe.end()

        task.add_done_callback(over)
        return pipe

    async def _run(self, answer: StreamResponse, pipe: P) -> None:
        try:
            await answer.run(pipe)
        except Exception as error:  # one stream must not take the others along
            log.exception("a stream failed")
            pipe.failure = str(error)
        except asyncio.CancelledError as cancelled:
            drop_traceback(cancelled)
            raise


class _Entrance:
    """An InProcessServer for one peer."""

    __slots__ = ("_peer", "_serve", "_waiting", "_writing")

    def __init__(self, server: InProcess, peer: Peer) -> None:
        self._serve = server.serve
        self._peer = peer
        self._writing = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """For the place of one who writes, in the order in which they came."""

    async def __call__(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> InProcessAnswer:
        return await self._in_turn(Request(method, path, query, {}, body, self._peer), headers)

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> InProcessAnswer:
        return await self._in_turn(ObjectRequest(method, path, query, {}, value, self._peer), headers)

    async def _in_turn(self, request: Request, headers: Headers) -> InProcessAnswer:
        # Who renews a Lease does not wait: it could run out meanwhile.
        if request.method == "GET" or "/leases/" in request.path:
            return await self._serve(request, headers)
        if self._writing < WRITES_AT_ONCE:
            self._writing += 1
        else:
            await self._turn()
        try:
            return await self._serve(request, headers)
        finally:
            self._leave()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # it had come, in the very moment
            raise

    def _leave(self) -> None:
        """Whoever waits takes the place."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._writing -= 1


def _join_repeated(request: Request, headers: Headers) -> None:
    """As the wire does it."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    for name, given in values.items():
        if len(given) > 1:
            request.headers[name] = ", ".join(given)
            request.repeated[name] = given


def _nothing() -> None:
    pass


class _Pipe(Generic[T]):
    """A StreamWriter at the server's end, what was written at the client's. The server looks at `buffered` and gives
    up on a reader who does not read, just as with a socket; what is in the pipe then still reaches the reader, in
    order."""

    __slots__ = ("_closed", "_drain", "_ended", "_reader", "_waiting", "buffered", "cancel", "failure")

    def __init__(self) -> None:
        self._waiting: deque[tuple[T, int]] = deque()
        """What was written, and what of `buffered` it is."""
        self._closed = asyncio.Event()
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._drain: asyncio.Event | None = None
        self.buffered = 0
        self.cancel: Callable[[], object] = _nothing
        self.failure: str | None = None
        """Why the server's end failed, if it did."""

    # The server's end.

    def put(self, item: T, size: int) -> None:
        if not self._ended:
            self._waiting.append((item, size))
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

    # The client's end.

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._waiting:
            if self._ended:
                if self.failure is not None:
                    raise ConnectionResetError(self.failure)
                raise StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        item, size = self._waiting.popleft()
        self.buffered -= size
        if self._drain is not None and not self._waiting:
            self._drain.set()
        return item

    def close(self) -> None:
        self._waiting.clear()
        self.buffered = 0
        self._ended = True
        self._closed.set()
        self._wake()
        if self._drain is not None:
            self._drain.set()
        self.cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class _BytePipe(_Pipe[bytes]):
    __slots__ = ()

    def write(self, data: bytes) -> None:
        if data:
            self.put(data, len(data))

    def write_frames(self, frames: bytes) -> None:
        self.write(unframed(frames))


class _EventPipe(_Pipe[Event]):
    """An EventWriter. What a stream writes as bytes nevertheless is lines, each an event."""

    __slots__ = ()

    def event(self, kind: str, obj: Obj, size: int) -> None:
        self.put((kind, obj), size)

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            event = orjson.loads(line)
            self.put((event["type"], event["object"]), len(line))

    def write_frames(self, frames: bytes) -> None:
        self.write(unframed(frames))
