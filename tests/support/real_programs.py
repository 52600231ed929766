"""A node by hand: `exec` runs programs of this machine, `attach` runs `cat`, `portforward` dials ports of this machine.

What the command line says to it goes through a real WebSocket on a real pair of sockets.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Coroutine
from contextlib import suppress
from urllib.parse import parse_qs

from local_server import TOKEN, LocalServer

from setpoint.client.inprocess import InProcessTransport
from setpoint.client.transport import Headers, Reply, Upgraded
from setpoint.node.kubelet_api.remote_streams import STDERR, STDIN, STDOUT, SUCCESS, WebSocketStreams, failure
from setpoint.wire.websocket import WebSocket, accept_handshake


class RealPrograms(InProcessTransport):
    """Everything else is the server's."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server.entrance, TOKEN)
        self.asked: list[str] = []
        """Paths and queries, as they came."""
        self.sizes: list[dict[str, int]] = []
        self.cut_after = 0
        """The next session breaks off after so many bytes of output."""
        self.refusal = b""
        self._tasks: set[asyncio.Future[None]] = set()

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        self.asked.append(f"{path.rpartition('/')[2]}?{query}")
        if self.refusal:
            return Reply(400, [], self.refusal)
        known = ("v4.channel.k8s.io",) if path.endswith("portforward") else ("v5.channel.k8s.io",)
        protocol, answer = accept_handshake(dict(headers), known)
        near, far = socket.socketpair()
        here = _Wire(*await asyncio.open_connection(sock=near))
        there = _Wire(*await asyncio.open_connection(sock=far))
        streams = WebSocketStreams(WebSocket(there), protocol)
        options = parse_qs(query, keep_blank_values=True)
        talk = self._forward if path.endswith("portforward") else self._run
        task = asyncio.ensure_future(self._talk(talk(streams, options, there), there))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Upgraded([(name.lower(), value) for name, value in answer], here)

    async def _talk(self, talk: Coroutine[None, None, None], wire: _Wire) -> None:
        """To its end, or until whoever asked has gone: then nobody is left who could be told anything."""
        try:
            with suppress(ConnectionError):
                await talk
        finally:
            wire.close()

    async def _run(self, streams: WebSocketStreams, options: dict[str, list[str]], _: _Wire) -> None:
        pipe = asyncio.subprocess.PIPE
        command = options.get("command", ["cat"])
        program = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert program.stdin and program.stdout and program.stderr
        listening = asyncio.ensure_future(self._listen(streams, program.stdin))
        if "stdin" not in options:
            program.stdin.close()
        try:
            for stream, channel in ((program.stdout, STDOUT), (program.stderr, STDERR)):
                while piece := await stream.read(16 * 1024):
                    if channel == STDOUT and self.cut_after:
                        streams.write(channel, piece[: self.cut_after])
                        await streams.drained()
                        self.cut_after = 0
                        return
                    streams.write(channel, piece)
                    await streams.drained()
            code = await program.wait()
            streams.finish(failure(code) if code else SUCCESS)
            await streams.drained()
        finally:
            listening.cancel()
            if program.returncode is None:
                program.kill()
                await program.wait()

    async def _listen(self, streams: WebSocketStreams, stdin: asyncio.StreamWriter) -> None:
        while (received := await streams.receive()) is not None:
            if received.channel == 4:
                self.sizes.append(json.loads(received.data or b"{}"))
            elif received.channel == STDIN and received.data is None:
                stdin.close()
            elif received.channel == STDIN:
                with suppress(OSError):
                    stdin.write(received.data or b"")
                    await stdin.drain()

    async def _forward(self, streams: WebSocketStreams, options: dict[str, list[str]], wire: _Wire) -> None:
        port = int(options["ports"][0])
        for channel in (0, 1):
            streams.write(channel, port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            streams.write(1, b"nothing listens there")
            await streams.drained()
            return

        async def there() -> None:
            while (received := await streams.receive()) is not None:
                writer.write(received.data or b"")
            writer.close()

        listening = asyncio.ensure_future(there())
        try:
            while piece := await reader.read(1024):
                streams.write(0, piece)
                await streams.drained()
            streams.close()
            await streams.drained()
        finally:
            listening.cancel()
            writer.close()


class _Wire:
    """A RawConnection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(64 * 1024)
        except ConnectionError:
            return b""  # whoever asked went without a word

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drained(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
