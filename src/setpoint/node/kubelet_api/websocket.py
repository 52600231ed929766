"""The server's side of a WebSocket (RFC 6455) on a connection that has left HTTP."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from hashlib import sha1
from typing import Final

from setpoint.node.kubelet_api.messages import Duplex, Headers, Refused

_MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, TEXT, BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_LONGEST_MESSAGE: Final = 4 * 1024 * 1024
_LONGEST_CONTROL: Final = 125
NORMAL, _PROTOCOL_ERROR, _TOO_BIG = 1000, 1002, 1009


def is_websocket(headers: Mapping[str, str]) -> bool:
    return headers.get("upgrade", "").strip().lower() == "websocket"


def accepted(headers: Mapping[str, str], known: tuple[str, ...]) -> tuple[str, Headers]:
    """The subprotocol to speak (the first of the client's that is known) and the headers of the answer.
    Raises Refused."""
    key = headers.get("sec-websocket-key", "").strip()
    try:
        nonce = b64decode(key, validate=True)
    except NotBase64:
        nonce = b""
    if headers.get("sec-websocket-version", "").strip() != "13" or len(nonce) != 16:
        raise Refused(400, "this is no WebSocket handshake of version 13")
    offered = [each.strip() for each in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((each for each in offered if each in known), None)
    if chosen is None:
        raise Refused(
            403, f"requested protocol(s) are not supported: [{' '.join(offered)}]; supports [{' '.join(known)}]"
        )
    answer = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", b64encode(sha1((key + _MAGIC).encode()).digest()).decode()),
    ]
    if chosen:
        answer.append(("Sec-WebSocket-Protocol", chosen))
    return chosen, answer


class WebSocket:
    def __init__(self, connection: Duplex) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._closed = False

    def send(self, data: bytes, *, text: bool = False) -> None:
        if not self._closed:
            self._connection.write(_frame(TEXT if text else BINARY, data))

    async def drained(self) -> None:
        await self._connection.drained()

    def close(self, code: int = NORMAL) -> None:
        if not self._closed:
            self._connection.write(_frame(_CLOSE, code.to_bytes(2, "big")))
            self._closed = True

    async def receive(self) -> bytes | None:
        """The next message; None when the peer has no more, or has broken the rules."""
        message = bytearray()
        open_message = False
        while (frame := await self._next()) is not None:
            final, code, payload = frame
            if code == _CLOSE:
                break
            if code == _PING:
                self._connection.write(_frame(_PONG, payload))
                continue
            if code == _PONG:
                continue
            if (code == _CONTINUATION) != open_message or code > BINARY:
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
        masked = bool(second & 0x80)
        control = code >= _CLOSE
        if not masked or first & 0x70 or (control and (size > _LONGEST_CONTROL or not first & 0x80)):
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
        payload = _masked(bytes(self._buffer[at + 4 : at + 4 + size]), mask)
        del self._buffer[: at + 4 + size]
        return bool(first & 0x80), code, payload

    async def _filled(self, size: int) -> bool:
        while len(self._buffer) < size:
            piece = await self._connection.read()
            if not piece:
                return False
            self._buffer += piece
        return True


def _frame(code: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | code, size))
    elif size < 1 << 16:
        head = bytes((0x80 | code, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | code, 127)) + size.to_bytes(8, "big")
    return head + payload


def _masked(data: bytes, mask: bytes) -> bytes:
    if not data:
        return b""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
