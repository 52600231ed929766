"""A page server without sockets: requests are passed to its handler, and tabs use connections in memory."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from stopped_clock import StoppedClock, settle

from setpoint.client import Client
from setpoint.client.transport import Transport
from setpoint.tasks import TaskRegistry
from setpoint.web.feed import RunConversation, RunFeed
from setpoint.web.server import PageExtensions, PageOptions, PageServer
from setpoint.web.sessions import PageUser, SessionFile, Sessions
from setpoint.web.tab_user import TabUser
from setpoint.wire.memory_connection import MemoryConnection, connected_pair
from setpoint.wire.message import Peer, Request, Response, UpgradeResponse
from setpoint.wire.websocket import WebSocket

HOST = "127.0.0.1:6444"
ORIGIN = f"http://{HOST}"
ADMIN = PageUser("kubernetes-admin", ("system:masters",))


class CountingEntropy:
    """Bytes that are all different, and the same in every run."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")


class TabClient:
    """The browser's side of a tab."""

    def __init__(self, connection: MemoryConnection) -> None:
        self.connection = connection
        self.socket = WebSocket(connection, is_client=True, max_message=1 << 30)

    def send_at_once(self, channel: int, op: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"id": channel, "op": op, **fields}).encode(), text=True)

    async def send(self, channel: int, op: str, **fields: Any) -> None:
        """Send a message; the server has handled it when this returns, unless it has to wait."""
        self.send_at_once(channel, op, **fields)
        await settle()

    async def open(self, channel: int, feed: str, credit: int = 100, **fields: Any) -> None:
        await self.send(channel, "open", feed=feed, **{"cluster": "", "args": {}, **fields})
        if credit:
            await self.send(channel, "credit", n=credit)

    async def receive(self) -> dict[str, Any]:
        """The next text message."""
        async with asyncio.timeout(5):
            data = await self.socket.receive()
        assert data is not None, "the server closed the WebSocket"
        found: dict[str, Any] = json.loads(data)
        return found

    async def receive_bytes(self) -> bytes | None:
        async with asyncio.timeout(5):
            return await self.socket.receive()

    async def is_silent(self) -> bool:
        await settle()
        return not self.connection._received

    async def close_code(self) -> int:
        """Read until the server closes the WebSocket, and return its code."""
        received = bytearray()
        async with asyncio.timeout(5):
            while piece := await self.connection.read():
                received += piece
        assert received[-4:-2] == b"\x88\x02", received[-4:]
        return int.from_bytes(received[-2:], "big")


class PageHarness:
    def __init__(
        self,
        client: Callable[[PageUser, str], Client] | None = None,
        *,
        files: Path = Path("/nonexistent"),
        feeds: Mapping[str, RunFeed] | None = None,
        conversations: Mapping[str, RunConversation] | None = None,
        session_file: SessionFile | None = None,
        hosts: tuple[str, ...] = (HOST, "localhost:6444", "[::1]:6444"),
        tls: bool = False,
        can_see_as: bool = True,
    ) -> None:
        self.clock = StoppedClock()
        self.entropy = CountingEntropy()
        self.sessions = Sessions(self.clock, self.entropy, session_file)
        extensions = PageExtensions(feeds=feeds or {}, conversations=conversations or {})
        options = PageOptions(
            clock=self.clock,
            entropy=self.entropy,
            client=client or _no_client,
            hosts=hosts,
            tls=tls,
            files=files,
            extensions=extensions,
            can_see_as=can_see_as,
        )
        self.page = PageServer(options, self.sessions)
        if client is None:
            self.page._server_features = _no_features  # type: ignore[method-assign]
            unused = Client(cast(Transport, None), self.clock)
            self.page.client = lambda *_: unused  # type: ignore[method-assign]
        self._tasks = TaskRegistry()

    async def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Response:
        sent = {"host": HOST, **(headers or {})}
        answer = await self.page.handle(Request(method, path, "", sent, body, Peer()))
        assert isinstance(answer, Response), answer
        return answer

    async def advance(self, seconds: float) -> None:
        """Advance the clock when all messages are handled that may be, and return when those of then are, too."""
        await self._caught_up()
        await self.clock.advance(seconds)
        await self._caught_up()

    async def _caught_up(self) -> None:
        quiet = 0
        while quiet < 20:
            quiet = 0 if self.page.pacer.is_busy else quiet + 1
            await asyncio.sleep(0)

    async def enter(self, user: PageUser = ADMIN) -> str:
        """A new session: its key."""
        body = json.dumps({"code": self.sessions.new_code(user)}).encode()
        answer = await self.request("POST", "/page/v1/session", {"origin": ORIGIN}, body)
        assert answer.status == 201, answer
        return str(json.loads(answer.whole_body)["key"])

    async def upgrade(self, key: str, query: str = "", **headers: str) -> Response | UpgradeResponse:
        sent = {
            "host": HOST,
            "origin": ORIGIN,
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-version": "13",
            "sec-websocket-key": b64encode(bytes(16)).decode(),
            "sec-websocket-protocol": f"setpoint.page.v1, key.{key}",
            **headers,
        }
        answer = await self.page.handle(Request("GET", "/page/v1/socket", query, sent, b"", Peer()))
        assert isinstance(answer, Response | UpgradeResponse)
        return answer

    async def open_tab(self, key: str, query: str = "") -> TabClient:
        """A tab that was not greeted yet. `query` is that of its WebSocket."""
        answer = await self.upgrade(key, query)
        assert isinstance(answer, UpgradeResponse), answer
        client, server = connected_pair()
        self._tasks.start(_served(answer.run(server), server))
        await settle()
        return TabClient(client)

    @asynccontextmanager
    async def tab(self, key: str = "") -> AsyncIterator[TabClient]:
        """A tab that was greeted."""
        tab = await self.open_tab(key or await self.enter())
        assert (await tab.receive())["type"] == "hello"
        try:
            yield tab
        finally:
            tab.connection.close()
            await settle()

    async def stop(self) -> None:
        await self._tasks.stop()
        await self.page.stop()


async def _served(work: Awaitable[None], connection: MemoryConnection) -> None:
    try:
        await work
    finally:
        connection.close()


async def _no_features(user: TabUser) -> list[str]:
    return []


def _no_client(user: PageUser, cluster: str) -> Client:
    raise AssertionError("this test has no client")
