"""The server's side of a WebSocket on a connection that has left HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from setpoint.meta.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NORMAL,
    PING,
    PONG,
    TEXT,
    HandshakeError,
    frame,
    goodbye,
    handshake,
    masked,
)
from setpoint.node.kubelet_api.messages import Duplex, Headers, Refused

_LONGEST_MESSAGE: Final = 4 * 1024 * 1024
_LONGEST_CONTROL: Final = 125
_PROTOCOL_ERROR, _TOO_BIG = 1002, 1009


def accepted(headers: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, Headers]:
    """The subprotocol to speak and the headers of the answer. Raises Refused."""
    try:
        return handshake(headers, known)
    except HandshakeError as error:
        raise Refused(error.status, error.text) from None


class WebSocket:
    def __init__(self, connection: Duplex) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._closed = False

    def send(self, data: bytes, *, text: bool = False) -> None:
        if not self._closed:
            self._connection.write(frame(TEXT if text else BINARY, data))

    async def drained(self) -> None:
        await self._connection.drained()

    def close(self, code: int = NORMAL) -> None:
        if not self._closed:
            self._connection.write(goodbye(code))
            self._closed = True

    async def receive(self) -> bytes | None:
        """The next message; None when the peer has no more, or has broken the rules."""
        message = bytearray()
        open_message = False
        while (found := await self._next()) is not None:
            final, code, payload = found
            if code == CLOSE:
                break
            if code == PING:
                self._connection.write(frame(PONG, payload))
                continue
            if code == PONG:
                continue
            if (code == CONTINUATION) != open_message or code > BINARY:
                self.close(_PROTOCOL_ERROR)
                return None
            open_message = True
            message += payload
            if len(message) > _LONGEST_MESSAGE:
                self.close(_TOO_BIG)
                return None
            if final:
                return bytes(message)
        self.close()
        return None

    async def _next(self) -> tuple[bool, int, bytes] | None:
        """Final, opcode, payload."""
        if not await self._filled(2):
            return None
        first, second = self._buffer[0], self._buffer[1]
        code, size = first & 0x0F, second & 0x7F
        is_masked = bool(second & 0x80)
        control = code >= CLOSE
        if not is_masked or first & 0x70 or (control and (size > _LONGEST_CONTROL or not first & 0x80)):
            self.close(_PROTOCOL_ERROR)
            return None
        at = 2
        if size > 125:
            wide = 2 if size == 126 else 8
            if not await self._filled(at + wide):
                return None
            size = int.from_bytes(self._buffer[at : at + wide], "big")
            at += wide
        if size > _LONGEST_MESSAGE:
            self.close(_TOO_BIG)
            return None
        if not await self._filled(at + 4 + size):
            return None
        mask = bytes(self._buffer[at : at + 4])
        payload = masked(bytes(self._buffer[at + 4 : at + 4 + size]), mask)
        del self._buffer[: at + 4 + size]
        return bool(first & 0x80), code, payload

    async def _filled(self, size: int) -> bool:
        while len(self._buffer) < size:
            piece = await self._connection.read()
            if not piece:
                return False
            self._buffer += piece
        return True
