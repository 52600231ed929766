"""The API server of the same process, as programs in simulated Pods reach it: with their tokens, or as anonymous."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from setpoint.apiserver.http.message import Handler, Peer, Request, Response
from setpoint.node.runtime.network import Failure, Pending
from setpoint.node.runtime.web_messages import TEXT, WebAnswer, WebRequest

_AT_ONCE = 100
"""Requests of Pods that may be under way; more find the server not answering."""


class ApiFromPods:
    """Sends requests of simulated Pods to the API server; each answer is delivered through the `Pending` that `ask`
    returned."""

    def __init__(self, handle: Handler, tasks: asyncio.TaskGroup) -> None:
        self._handle = handle
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()

    def ask(self, address: str, request: WebRequest) -> Pending:
        """Send a request from the Pod at `address`."""
        pending = Pending()
        if not request.tls:
            pending.answer = WebAnswer(400, "Client sent an HTTP request to an HTTPS server.\n")
        elif len(self._running) >= _AT_ONCE:
            pending.answer = Failure.LOST
        else:
            task = self._tasks.create_task(self._serve(address, request, pending))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return pending

    async def _serve(self, address: str, request: WebRequest, pending: Pending) -> None:
        headers = {"host": "kubernetes.default.svc", "user-agent": "curl", **dict(request.headers)}
        asked = Request(request.method, request.path, request.query, headers, request.body, Peer(address))
        answer = await self._handle(asked)
        if not isinstance(answer, Response):
            pending.answer = Failure.CLOSED  # watches and upgraded connections lead nowhere
            return
        kinds = [value for name, value in answer.headers if name.lower() == "content-type"]
        body = answer.whole_body.decode("utf-8", "surrogateescape")
        pending.answer = WebAnswer(answer.status, body, kinds[0] if kinds else TEXT)

    def end(self) -> None:
        for task in self._running:
            task.cancel()


@asynccontextmanager
async def api_from_pods(handle: Handler) -> AsyncIterator[ApiFromPods]:
    async with asyncio.TaskGroup() as tasks:
        server = ApiFromPods(handle, tasks)
        try:
            yield server
        finally:
            server.end()
