"""SPDY/3.1 on an upgraded connection, the server's side, as far as Kubernetes clients use it.

The client opens streams with headers; both sides send data on them. Frames are those of the last draft
(draft-mbelshe-httpbis-spdy-00, with the window updates of 3.1, which these clients neither send nor respect).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from struct import Struct, pack
from typing import Final, NamedTuple

from setpoint.wire.message import RawConnection

_VERSION: Final = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN: Final = 1
_HEAD: Final = Struct(">II")
_MAX_FRAME: Final = 4 * 1024 * 1024
_MAX_HEADERS: Final = 64 * 1024
_MAX_STREAMS: Final = 64
_REFUSED_STREAM: Final = 3
_BY_CLIENT, _BY_SERVER = 1, 2

_COMMON: Final = (
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
)
_CODES: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = b"".join(pack(">I", len(word)) + word.encode() for word in _COMMON) + _CODES.encode()
"""The compression dictionary for headers, which is part of the protocol."""


class StreamOpened(NamedTuple):
    """The client has opened a stream."""

    stream: int
    headers: Mapping[str, str]
    """Values by lower-case name."""


class StreamData(NamedTuple):
    """The client has sent data on a stream."""

    stream: int
    data: bytes
    last: bool
    """Whether the client sends no more on this stream."""


class StreamReset(NamedTuple):
    """The client has reset a stream."""

    stream: int


class SpdyError(Exception):
    """The client violates the protocol, and the connection cannot continue."""


def is_spdy(headers: Mapping[str, str]) -> bool:
    """Return whether a request, given its headers by lower-case name, offers SPDY/3.1."""
    return headers.get("upgrade", "").strip().lower() == "spdy/3.1"


class SpdyConnection:
    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self._received = bytearray()
        self._decompressor = zlib.decompressobj(zdict=DICTIONARY)
        self._compressor = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, int] = {}
        """The open streams, with the flags of the sides that have closed them."""
        self._last_opened = 0
        self._closed = False

    async def receive(self) -> StreamOpened | StreamData | StreamReset | None:
        """Return what the client does next; None if it is gone. Streams that it opens are accepted. Raise SpdyError."""
        while (frame := await self._frame()) is not None:
            first, flags, payload = frame
            if not first & 0x80000000:
                if flags & _FIN:
                    self._side_closed(first, _BY_CLIENT)
                return StreamData(first, payload, bool(flags & _FIN))
            kind = first & 0xFFFF
            if (first >> 16) & 0x7FFF != _VERSION:
                raise SpdyError(f"version {(first >> 16) & 0x7FFF} of SPDY is not supported")
            if kind == _SYN_STREAM:
                return self._opened(payload, flags)
            if kind == _RST_STREAM and len(payload) == 8:
                stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
                self._streams.pop(stream, None)
                return StreamReset(stream)
            if kind == _PING and len(payload) == 4 and int.from_bytes(payload, "big") % 2 == 1:
                self._control(_PING, payload)
            elif kind == _GOAWAY:
                return None
        return None

    def _opened(self, payload: bytes, flags: int) -> StreamOpened:
        if len(payload) < 10:
            raise SpdyError("a stream was opened without an id")
        stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        headers = self._headers(payload[10:])
        if stream % 2 == 0 or stream <= self._last_opened or len(self._streams) >= _MAX_STREAMS:
            raise SpdyError(f"stream {stream} cannot be opened")
        self._last_opened = stream
        self._streams[stream] = _BY_CLIENT if flags & _FIN else 0
        compressed = self._compressor.compress(pack(">I", 0)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._control(_SYN_REPLY, pack(">I", stream) + compressed)
        return StreamOpened(stream, headers)

    def _headers(self, compressed: bytes) -> dict[str, str]:
        try:
            raw = self._decompressor.decompress(compressed, _MAX_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"the headers of a stream cannot be decompressed: {error}") from None
        if self._decompressor.unconsumed_tail:
            raise SpdyError("the headers of a stream are too long")
        at, found, words = 4, {}, []
        count = int.from_bytes(raw[:4], "big")
        for _ in range(2 * min(count, 1000)):
            size = int.from_bytes(raw[at : at + 4], "big")
            if at + 4 + size > len(raw):
                raise SpdyError("the headers of a stream are incomplete")
            words.append(raw[at + 4 : at + 4 + size].decode("utf-8", "replace"))
            at += 4 + size
        for name, value in zip(words[::2], words[1::2], strict=True):
            found[name.lower()] = value.partition("\0")[0]
        return found

    def write(self, stream: int, data: bytes, *, last: bool = False) -> None:
        if not self._closed and stream in self._streams and (data or last):
            self._connection.write(_HEAD.pack(stream, (_FIN if last else 0) << 24 | len(data)) + data)
            if last:
                self._side_closed(stream, _BY_SERVER)

    def reset(self, stream: int) -> None:
        """Refuse a stream that the client has opened."""
        if self._streams.pop(stream, None) is not None:
            self._control(_RST_STREAM, pack(">II", stream, _REFUSED_STREAM))

    def _side_closed(self, stream: int, side: int) -> None:
        """Record that a side has closed a stream. A stream that both have closed no longer counts against the limit."""
        if stream in self._streams:
            self._streams[stream] |= side
            if self._streams[stream] == _BY_CLIENT | _BY_SERVER:
                del self._streams[stream]

    def close(self, last_stream: int) -> None:
        """Send GOAWAY; nothing is sent after it."""
        if not self._closed:
            self._control(_GOAWAY, pack(">II", last_stream, 0))
            self._closed = True

    async def drained(self) -> None:
        await self._connection.drained()

    def _control(self, kind: int, payload: bytes) -> None:
        if not self._closed:
            self._connection.write(_HEAD.pack(0x80000000 | _VERSION << 16 | kind, len(payload)) + payload)

    async def _frame(self) -> tuple[int, int, bytes] | None:
        if not await self._fill(8):
            return None
        first, second = _HEAD.unpack_from(self._received)
        flags, size = second >> 24, second & 0xFFFFFF
        if size > _MAX_FRAME:
            raise SpdyError("a frame is too long")
        if not await self._fill(8 + size):
            return None
        payload = bytes(self._received[8 : 8 + size])
        del self._received[: 8 + size]
        return first, flags, payload

    async def _fill(self, size: int) -> bool:
        while len(self._received) < size:
            piece = await self._connection.read()
            if not piece:
                return False
            self._received += piece
        return True
