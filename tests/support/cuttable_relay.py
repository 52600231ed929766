"""A TCP relay that breaks connections as networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit


class Cuttable:
    """A TCP relay to etcd whose directions can be cut, as a broken network does."""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.swallow_answers = False
        self.swallow_events = False
        """Swallow what comes back on connections with a watch."""
        self.refuse = False
        self._writers: list[asyncio.StreamWriter] = []
        self._relaying: set[asyncio.Task[Any]] = set()
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cuttable]:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self
            self.cut()
            if self._relaying:
                await asyncio.wait(self._relaying, timeout=10)

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        if (task := asyncio.current_task()) is not None:
            self._relaying.add(task)
            task.add_done_callback(self._relaying.discard)
        there, back = await asyncio.open_connection(self.target.hostname, self.target.port)
        self._writers += [writer, back]

        watches = False

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool) -> None:
            nonlocal watches
            try:
                while data := await source.read(65536):
                    watches = watches or (not answers and b"/etcdserverpb.Watch/Watch" in data)
                    if not (answers and (self.swallow_answers or (watches and self.swallow_events))):
                        target.write(data)
            except OSError:
                pass
            target.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(copy(reader, back, False))
            tasks.create_task(copy(there, writer, True))
