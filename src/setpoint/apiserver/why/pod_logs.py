"""Reads the ends of container logs for an answer: by ordinary requests for the subresource, with the asker's rights.

Authorization and the audit log treat them like those of `kubectl logs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import quote, urlencode

from setpoint.meta.clock import Clock
from setpoint.tasks import child_tasks, within
from setpoint.view.why.answer import ContainerLog
from setpoint.view.why.facts import LogBounds, LogEnd
from setpoint.wire.encoding import decode_chunks
from setpoint.wire.message import Handler, Request, Response, StreamResponse

_PASSED_ON = ("user-agent", "x-forwarded-for", "x-real-ip")
"""The headers that the audit log shows."""


async def read_ends(
    handle: Handler, clock: Clock, asked: Request, logs: Sequence[ContainerLog], bounds: LogBounds
) -> list[bytes | LogEnd]:
    """Return the end of each log, or why it is not known; `handle` answers requests with the rights of `asked`."""
    async with child_tasks(*(_in_time(handle, clock, asked, each, bounds) for each in logs)) as tasks:
        return [await each for each in tasks]


async def _in_time(
    handle: Handler, clock: Clock, asked: Request, log: ContainerLog, bounds: LogBounds
) -> bytes | LogEnd:
    try:
        return await within(clock, bounds.seconds, _read(handle, _request(asked, log, bounds), bounds))
    except TimeoutError:
        return LogEnd.LATE


def _request(asked: Request, log: ContainerLog, bounds: LogBounds) -> Request:
    query = {"container": log.container, "tailLines": bounds.lines, "limitBytes": bounds.size}
    if log.previous:
        query["previous"] = "true"
    path = f"/api/v1/namespaces/{quote(log.namespace, safe='')}/pods/{quote(log.pod, safe='')}/log"
    headers = {name: asked.headers[name] for name in _PASSED_ON if name in asked.headers}
    repeated = {name: values for name, values in asked.repeated.items() if name in headers}
    return Request("GET", path, urlencode(query), headers, b"", asked.peer, repeated)


async def _read(handle: Handler, request: Request, bounds: LogBounds) -> bytes | LogEnd:
    answer = await handle(request)
    if isinstance(answer, Response | StreamResponse) and answer.status == 403:
        return LogEnd.FORBIDDEN
    if isinstance(answer, Response) and answer.status == 200:
        return answer.whole_body[: bounds.size]
    if isinstance(answer, StreamResponse) and answer.status == 200:
        writer = _BoundedWriter(bounds.size)
        async with child_tasks(_run(answer, writer), writer.full()) as tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        return bytes(writer.data[: bounds.size])
    return LogEnd.UNKNOWN


async def _run(answer: StreamResponse, writer: _BoundedWriter) -> None:
    await answer.run(writer)


class _BoundedWriter:
    """A StreamWriter that collects so many bytes. A node may send more than it was asked for."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._full = asyncio.Event()
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        if not self._full.is_set():
            self.data += data[: self._size]
            if len(self.data) >= self._size:
                self._full.set()

    def write_chunks(self, chunks: bytes) -> None:
        self.write(decode_chunks(chunks))

    async def full(self) -> None:
        await self._full.wait()

    @property
    def buffered(self) -> int:
        return 0

    async def drained(self) -> None:
        return

    async def closed(self) -> None:
        await asyncio.Event().wait()
