"""A webhook over HTTPS that answers as each test says."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson

from setpoint.cluster.certificates import CertificateFiles, server_context

Answer = Callable[[dict[str, Any]], Any]
JSON_PATCH = "JSONPatch"


def allow(review: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": True}


def deny(**status: Any) -> Answer:
    return lambda review: {"allowed": False, **({"status": status} if status else {})}


def patch(*operations: Any) -> Answer:
    sent = b64encode(orjson.dumps(list(operations))).decode()
    return lambda review: {"allowed": True, "patch": sent, "patchType": JSON_PATCH}


class WebhookServer:
    """By path: what to answer. `asked` holds the path and the request of every review, in the order they came."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self.answers: dict[str, Answer] = {}
        self.raw: dict[str, bytes] = {}
        """Whole HTTP answers, for those that are none; empty: never answers."""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.queries: list[str] = []
        self.port = 0
        self.together: asyncio.Barrier | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        context = server_context(self._files)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    def client(self, path: str) -> dict[str, Any]:
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.authority}

    @property
    def authority(self) -> str:
        return b64encode(self._files.ca.read_bytes()).decode()

    def requests(self, path: str) -> list[dict[str, Any]]:
        return [request for at, request in self.asked if at == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path, _, query = head.split(" ")[1].partition("?")
        length = next(
            int(line.split(":")[1]) for line in head.lower().splitlines() if line.startswith("content-length")
        )
        review = orjson.loads(await reader.readexactly(length))
        self.asked.append((path, review["request"]))
        self.queries.append(query)
        if self.together is not None:
            await self.together.wait()
        if path in self.raw:
            if not self.raw[path]:
                await reader.read()
            writer.write(self.raw[path])
        else:
            answer_review: Answer = self.answers.get(path, allow)
            answer = answer_review(review["request"])
            if "response" not in answer:
                response = {"uid": review["request"]["uid"], **answer}
                answer = {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}
            body = orjson.dumps(answer)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(body)
        writer.close()
