"""An answer whose client wants it as the messages of a WebSocket: browsers can read no other stream."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping

from setpoint.apiserver.http.encoding import unframed
from setpoint.apiserver.http.message import RawConnection, Response, StreamResponse, UpgradeResponse
from setpoint.meta.errors import ApiError
from setpoint.meta.websocket import BINARY, TEXT, HandshakeError, frame, goodbye, handshake

_BASE64 = "base64.binary.k8s.io"
_PROTOCOLS = ("", "binary.k8s.io", _BASE64)


def over_websocket(headers: Mapping[str, str], answer: Response | StreamResponse) -> UpgradeResponse:
    """What comes is passed on, message by message, after an empty one; what the client says is not listened to."""
    try:
        protocol, accepted = handshake(headers, _PROTOCOLS)
    except HandshakeError as error:
        raise ApiError(error.text, code=error.status) from None

    async def run(connection: RawConnection) -> None:
        writer = _Messages(connection, text=protocol == _BASE64)
        writer.write(b"", even_empty=True)
        listening = asyncio.ensure_future(_until_gone(connection))
        sending = asyncio.ensure_future(_send(answer, writer))
        try:
            await asyncio.wait((listening, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (listening, sending):
                each.cancel()
            await asyncio.wait((listening, sending))
        connection.write(goodbye())

    return UpgradeResponse(accepted, run)


async def _until_gone(connection: RawConnection) -> None:
    while await connection.read():
        pass


async def _send(answer: Response | StreamResponse, writer: _Messages) -> None:
    if isinstance(answer, StreamResponse):
        await answer.run(writer)
    else:
        for piece in (answer.body,) if isinstance(answer.body, bytes) else answer.body:
            writer.write(piece)


class _Messages:
    """A StreamWriter."""

    def __init__(self, connection: RawConnection, *, text: bool) -> None:
        self._connection = connection
        self._text = text
        self.buffered = 0

    def write(self, data: bytes, *, even_empty: bool = False) -> None:
        if data or even_empty:
            message = frame(TEXT, b64encode(data)) if self._text else frame(BINARY, data)
            self._connection.write(message)

    def write_frames(self, frames: bytes) -> None:
        self.write(unframed(frames))

    async def drained(self) -> None:
        await self._connection.drained()

    async def closed(self) -> None:
        await asyncio.Event().wait()  # whoever runs this ends it
