"""WebSocket (RFC 6455) on an upgraded connection: the handshake and the messages, for clients and servers.

No extensions are negotiated.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha1
from typing import Final

from setpoint.wire.message import RawConnection

_MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_NORMAL, _PROTOCOL_ERROR, _TOO_BIG = 1000, 1002, 1009
_MAX_CONTROL: Final = 125
"""Bytes of the payload of a control frame."""


class HandshakeError(ValueError):
    """A request is not a valid WebSocket handshake; `status` is that of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def is_websocket(headers: Mapping[str, str]) -> bool:
    """Return whether a request, given its headers by lower-case name, offers WebSocket."""
    return headers.get("upgrade", "").strip().lower() == "websocket"


def accept_handshake(headers: Mapping[str, str], known: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the subprotocol (the first of the client's that is known, empty for none) and the response headers.

    Raise HandshakeError.
    """
    key = headers.get("sec-websocket-key", "").strip()
    try:
        nonce = b64decode(key, validate=True)
    except NotBase64:
        nonce = b""
    if headers.get("sec-websocket-version", "").strip() != "13" or len(nonce) != 16:
        raise HandshakeError(400, "this is no WebSocket handshake of version 13")
    offered = [each.strip() for each in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((each for each in offered if each in known), None)
    if chosen is None:
        text = f"requested protocol(s) are not supported: [{' '.join(offered)}]; supports [{' '.join(known)}]"
        raise HandshakeError(403, text)
    answer = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", accept_value(key)),
    ]
    if chosen:
        answer.append(("Sec-WebSocket-Protocol", chosen))
    return chosen, answer


def offer_handshake(protocols: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return a client's key and the request headers. The server must answer with `accept_value` of the key."""
    key = b64encode(os.urandom(16)).decode()
    return key, [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-key", key),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", ", ".join(protocols)),
    ]


def accept_value(key: str) -> str:
    """Return the Sec-WebSocket-Accept value for a client's key."""
    return b64encode(sha1((key + _MAGIC).encode()).digest()).decode()


class WebSocket:
    """Sends and receives whole messages, in order. One task may send while another receives."""

    def __init__(
        self,
        connection: RawConnection,
        *,
        is_client: bool = False,
        protocol: str = "",
        max_message: int = 4 * 1024 * 1024,
        pace: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`protocol` is the negotiated subprotocol, `max_message` the size of the longest accepted message in bytes.
        `pace` returns when the frame after one that completes no message may be handled; None means in the next
        iteration of the event loop."""
        self.protocol = protocol
        self.failure = ""
        """Why `receive` returned None; empty if the peer closed the WebSocket in order."""
        self.received_text = False
        """Whether the last message that `receive` returned was a text message, not a binary one."""
        self._connection = connection
        self._is_client = is_client
        self._max_message = max_message
        self._pace = pace
        self._received = bytearray()
        self._closed = False

    def send(self, data: bytes, *, text: bool = False) -> None:
        if not self._closed:
            self._write(_TEXT if text else _BINARY, data)

    def ping(self) -> None:
        """Send a ping, which the peer answers."""
        if not self._closed:
            self._write(_PING, b"")

    async def drained(self) -> None:
        """Return when everything is sent. Raise OSError if the peer is gone."""
        await self._connection.drained()

    def close(self, code: int = _NORMAL) -> None:
        """Send a close frame, once; nothing is sent after it."""
        if not self._closed:
            self._write(_CLOSE, code.to_bytes(2, "big"))
            self._closed = True

    async def receive(self) -> bytes | None:
        """Return the next message; None if the peer has closed the WebSocket or the connection, or violated the
        protocol."""
        message = bytearray()
        fragmented = False
        while (frame := await self._next()) is not None:
            is_final, code, payload = frame
            if code == _CLOSE:
                self.close()
                return None
            if code == _PING:
                self._write(_PONG, payload)
            elif code != _PONG:
                if (code == _CONTINUATION) != fragmented or code > _BINARY:
                    self._fail(_PROTOCOL_ERROR)
                    return None
                if not fragmented:
                    self.received_text = code == _TEXT
                fragmented = True
                message += payload
                if len(message) > self._max_message:
                    self._fail(_TOO_BIG)
                    return None
                if is_final:
                    return bytes(message)
            # Thousands of frames may have been received already: let other tasks run.
            await (asyncio.sleep(0) if self._pace is None else self._pace())
        self.failure = self.failure or "the connection was closed in the middle of the session"
        self.close()
        return None

    async def _next(self) -> tuple[bool, int, bytes] | None:
        """Return whether it is the last of its message, opcode and payload of the next frame; None if there is none."""
        if not await self._fill(2):
            return None
        first, second = self._received[0], self._received[1]
        code, size = first & 0x0F, second & 0x7F
        is_masked, is_control = bool(second & 0x80), code >= _CLOSE
        is_invalid = is_masked == self._is_client or first & 0x70
        if is_invalid or (is_control and (size > _MAX_CONTROL or not first & 0x80)):
            self._fail(_PROTOCOL_ERROR)
            return None
        at = 2
        if size > 125:
            width = 2 if size == 126 else 8
            if not await self._fill(at + width):
                return None
            size = int.from_bytes(self._received[at : at + width], "big")
            at += width
        if size > self._max_message:
            self._fail(_TOO_BIG)
            return None
        start = at + 4 if is_masked else at
        if not await self._fill(start + size):
            return None
        payload = bytes(self._received[start : start + size])
        if is_masked:
            payload = apply_mask(payload, bytes(self._received[at:start]))
        del self._received[: start + size]
        return bool(first & 0x80), code, payload

    async def _fill(self, size: int) -> bool:
        """Receive until there are so many bytes; return False if the connection ends before."""
        while len(self._received) < size:
            piece = await self._connection.read()
            if not piece:
                return False
            self._received += piece
        return True

    def _fail(self, code: int) -> None:
        self.failure = "the peer sent a message that is too long" if code == _TOO_BIG else "the peer violated WebSocket"
        self.close(code)

    def _write(self, code: int, payload: bytes) -> None:
        mask = os.urandom(4) if self._is_client else b""
        self._connection.write(encode_frame(code, payload, mask))


def encode_frame(code: int, payload: bytes, mask: bytes = b"") -> bytes:
    """Return a whole message as one frame; `mask` has four bytes in messages of a client, and none in a server's."""
    size, mask_bit = len(payload), 0x80 if mask else 0
    if size < 126:
        head = bytes((0x80 | code, mask_bit | size))
    elif size < 1 << 16:
        head = bytes((0x80 | code, mask_bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | code, mask_bit | 127)) + size.to_bytes(8, "big")
    return head + mask + apply_mask(payload, mask) if mask else head + payload


def apply_mask(data: bytes, mask: bytes) -> bytes:
    """Apply a client's mask to the data; applying it again removes it."""
    if not data:
        return b""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
