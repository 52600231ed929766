"""Requests and tabs for the front of a class, without sockets."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from page_harness import HOST, ORIGIN, TabClient

from setpoint.cluster.classroom.front import ClassFront
from setpoint.tasks import TaskRegistry
from setpoint.web.sessions import Sessions
from setpoint.wire.memory_connection import connected_pair
from setpoint.wire.message import Peer, Request, Response, StreamResponse, UpgradeResponse


class ClassClient:
    """The browsers of a class."""

    def __init__(self, front: ClassFront, sessions: Sessions) -> None:
        self.front = front
        self.sessions = sessions
        self._tasks = TaskRegistry()

    async def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        sent = {"host": HOST, "origin": ORIGIN, "content-type": "application/json", **(headers or {})}
        data = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        answer = await self.front.handle(Request(method, path, query, sent, data, Peer()))
        if isinstance(answer, StreamResponse):
            content = bytearray()

            class Writer:
                buffered = 0

                def write(self, data: bytes) -> None:
                    content.extend(data)

                def write_chunks(self, chunks: bytes) -> None: ...

                async def drained(self) -> None: ...

                async def closed(self) -> None:
                    await asyncio.Event().wait()

            await answer.run(Writer())
            return answer.status, json.loads(content) if content.startswith(b"{") else bytes(content)
        assert isinstance(answer, Response)
        content_of = answer.whole_body
        return answer.status, json.loads(content_of) if content_of.startswith(b"{") else content_of

    async def join(self, nickname: str, code: str | None = None) -> tuple[int, Any]:
        return await self.request("POST", "/class/v1/join", {"code": code or self.front.code, "nickname": nickname})

    async def tab(self, key: str, query: str = "") -> TabClient:
        """Open a tab. `query` is that of its WebSocket."""
        headers = {
            "host": HOST,
            "origin": ORIGIN,
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-version": "13",
            "sec-websocket-key": b64encode(bytes(16)).decode(),
            "sec-websocket-protocol": f"setpoint.page.v1, key.{key}",
        }
        answer = await self.front.handle(Request("GET", "/page/v1/socket", query, headers, b"", Peer()))
        if isinstance(answer, Response):
            raise PermissionError(json.loads(answer.whole_body)["message"])
        assert isinstance(answer, UpgradeResponse), answer
        ours, theirs = connected_pair()

        async def run() -> None:
            try:
                await answer.run(theirs)
            finally:
                theirs.close()

        self._tasks.start(run())
        return TabClient(ours)

    async def stop(self) -> None:
        await self._tasks.stop()
