"""SPDY/3.1 on an upgraded connection, for clients and servers, as far as Kubernetes uses it.

The client opens streams with headers; both sides send data on them. Frames are those of the last draft
(draft-mbelshe-httpbis-spdy-00). Kubernetes' implementations ignore the flow control of 3.1: they send no window
updates, so that a peer that waited for them would stop after 64 KiB. `drained` is the backpressure instead: it waits
for the peer to read from the connection.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from struct import Struct, pack
from typing import Final, NamedTuple

from setpoint.wire.message import RawConnection

_VERSION: Final = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN: Final = 1
_HEAD: Final = Struct(">II")
_MAX_FRAME: Final = 4 * 1024 * 1024
_MAX_HEADERS: Final = 64 * 1024
_MAX_STREAMS: Final = 64
_REFUSED_STREAM: Final = 3
_BY_PEER, _BY_THIS = 1, 2

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


class StreamAccepted(NamedTuple):
    """The server has accepted a stream. It discards data that it receives before."""

    stream: int


class StreamData(NamedTuple):
    """The peer has sent data on a stream."""

    stream: int
    data: bytes
    last: bool
    """Whether the peer sends no more on this stream."""


class StreamReset(NamedTuple):
    """The peer has reset a stream."""

    stream: int


SpdyEvent = StreamOpened | StreamAccepted | StreamData | StreamReset


class SpdyError(Exception):
    """The peer violates the protocol, and the connection cannot continue."""


def is_spdy(headers: Mapping[str, str]) -> bool:
    """Return whether a request, given its headers by lower-case name, offers SPDY/3.1."""
    return headers.get("upgrade", "").strip().lower() == "spdy/3.1"


class SpdyConnection:
    """One side of a connection: a server by default."""

    def __init__(self, connection: RawConnection, *, is_client: bool = False) -> None:
        self._connection = connection
        self._is_client = is_client
        self._received = bytearray()
        self._decompressor = zlib.decompressobj(zdict=DICTIONARY)
        self._compressor = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, int] = {}
        """The open streams, with the flags of the sides that have closed them."""
        self._last_opened = -1 if is_client else 0
        self._closed = False

    async def receive(self) -> SpdyEvent | None:
        """Return what the peer does next; None if it is gone. Streams that a client opens are accepted. Raise
        SpdyError."""
        while (frame := await self._frame()) is not None:
            first, flags, payload = frame
            if not first & 0x80000000:
                if flags & _FIN:
                    self._side_closed(first, _BY_PEER)
                return StreamData(first, payload, bool(flags & _FIN))
            kind = first & 0xFFFF
            if (first >> 16) & 0x7FFF != _VERSION:
                raise SpdyError(f"version {(first >> 16) & 0x7FFF} of SPDY is not supported")
            if kind == _SYN_STREAM:
                return self._opened(payload, flags)
            if kind in (_SYN_REPLY, _HEADERS) and len(payload) >= 4:
                # All headers of a connection share one compression context, so that they are always decompressed.
                self._headers(payload[4:])
                stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
                if kind == _SYN_REPLY and self._is_client and stream in self._streams:
                    return StreamAccepted(stream)
            elif kind == _RST_STREAM and len(payload) == 8:
                stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
                self._streams.pop(stream, None)
                return StreamReset(stream)
            elif kind == _PING and len(payload) == 4 and int.from_bytes(payload, "big") % 2 == 1 - self._is_client:
                self._control(_PING, payload)
            elif kind == _GOAWAY:
                return None
        return None

    def open(self, headers: Mapping[str, str]) -> int:
        """Open a stream, as a client, and return its number. Nothing may be written to it before it is accepted."""
        assert self._is_client
        self._last_opened += 2
        stream = self._last_opened
        self._streams[stream] = 0
        block = pack(">I", len(headers))
        for name, value in headers.items():
            for word in (name.lower().encode(), value.encode()):
                block += pack(">I", len(word)) + word
        self._control(_SYN_STREAM, pack(">IIH", stream, 0, 0) + self._compressed(block))
        return stream

    def _opened(self, payload: bytes, flags: int) -> StreamOpened:
        if len(payload) < 10:
            raise SpdyError("a stream was opened without an id")
        stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        headers = self._headers(payload[10:])
        if self._is_client or stream % 2 == 0 or stream <= self._last_opened or len(self._streams) >= _MAX_STREAMS:
            raise SpdyError(f"stream {stream} cannot be opened")
        self._last_opened = stream
        self._streams[stream] = _BY_PEER if flags & _FIN else 0
        self._control(_SYN_REPLY, pack(">I", stream) + self._compressed(pack(">I", 0)))
        return StreamOpened(stream, headers)

    def _compressed(self, block: bytes) -> bytes:
        return self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

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
                self._side_closed(stream, _BY_THIS)

    def reset(self, stream: int) -> None:
        """Refuse a stream that the client has opened, or give it up."""
        if self._streams.pop(stream, None) is not None:
            self._control(_RST_STREAM, pack(">II", stream, _REFUSED_STREAM))

    def _side_closed(self, stream: int, side: int) -> None:
        """Record that a side has closed a stream. A stream that both have closed no longer counts against the limit."""
        if stream in self._streams:
            self._streams[stream] |= side
            if self._streams[stream] == _BY_PEER | _BY_THIS:
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
