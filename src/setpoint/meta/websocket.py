"""WebSocket (RFC 6455) without a connection: the handshake, and the frames of both sides."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from hashlib import sha1
from typing import Final

_MAGIC: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
NORMAL: Final = 1000


class HandshakeError(ValueError):
    """The request is not a valid WebSocket handshake; it has the status of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def is_websocket(headers: Mapping[str, str]) -> bool:
    return headers.get("upgrade", "").strip().lower() == "websocket"


def handshake(headers: Mapping[str, str], known: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the subprotocol (the first of the client's that is known, empty for none) and the response headers.

    Raises HandshakeError."""
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
        ("Sec-WebSocket-Accept", accepts(key)),
    ]
    if chosen:
        answer.append(("Sec-WebSocket-Protocol", chosen))
    return chosen, answer


def accepts(key: str) -> str:
    """Return the Sec-WebSocket-Accept value for a client's key."""
    return b64encode(sha1((key + _MAGIC).encode()).digest()).decode()


def frame(code: int, payload: bytes, mask: bytes = b"") -> bytes:
    """Return a whole message; one from a client has a mask."""
    size, marked = len(payload), 0x80 if mask else 0
    if size < 126:
        head = bytes((0x80 | code, marked | size))
    elif size < 1 << 16:
        head = bytes((0x80 | code, marked | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | code, marked | 127)) + size.to_bytes(8, "big")
    return head + mask + masked(payload, mask) if mask else head + payload


def goodbye(code: int = NORMAL) -> bytes:
    return frame(CLOSE, code.to_bytes(2, "big"))


def masked(data: bytes, mask: bytes) -> bytes:
    """Apply a client's mask to the data; applying it again removes it."""
    if not data:
        return b""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(data), "big")
