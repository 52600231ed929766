"""The server's side of SPDY/3.1, as far as clients of a cluster use it: streams that the client opens, with names.

The framing of data is that of the last draft (draft-mbelshe-httpbis-spdy-00, with 3.1's window updates, which these
clients neither send nor heed).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from struct import Struct, pack
from typing import Final, NamedTuple

from setpoint.node.kubelet_api.messages import Duplex

_VERSION: Final = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN: Final = 1
_HEAD: Final = Struct(">II")
_LONGEST_FRAME: Final = 4 * 1024 * 1024
_LONGEST_HEADERS: Final = 64 * 1024
_MOST_STREAMS: Final = 64
_REFUSED_STREAM: Final = 3
_BY_CLIENT, _BY_US = 1, 2

_COMMON: Final = (
    "options", "head", "post", "put", "delete", "trace", "accept", "accept-charset", "accept-encoding",
    "accept-language", "accept-ranges", "age", "allow", "authorization", "cache-control", "connection",
    "content-base", "content-encoding", "content-language", "content-length", "content-location", "content-md5",
    "content-range", "content-type", "date", "etag", "expect", "expires", "from", "host", "if-match",
    "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified", "location",
    "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range", "referer", "retry-after",
    "server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "warning",
    "www-authenticate", "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie",
    "keep-alive", "origin",
)  # fmt: skip
_CODES: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = b"".join(pack(">I", len(word)) + word.encode() for word in _COMMON) + _CODES.encode()
"""What both ends take as said before the first header: part of the protocol."""


class Opened(NamedTuple):
    stream: int
    headers: Mapping[str, str]


class Data(NamedTuple):
    stream: int
    data: bytes
    last: bool


class Ended(NamedTuple):
    """The client has given up on this stream."""

    stream: int


class SpdyError(Exception):
    """The other end breaks the rules: there is no going on."""


class SpdyConnection:
    def __init__(self, connection: Duplex) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._unpacking = zlib.decompressobj(zdict=DICTIONARY)
        self._packing = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, int] = {}
        """The open streams, and which ends have closed them."""
        self._newest = 0
        self._over = False

    async def receive(self) -> Opened | Data | Ended | None:
        """What the client does next; None when it is gone. Streams that it opens are accepted. Raises SpdyError."""
        while (frame := await self._frame()) is not None:
            first, flags, payload = frame
            if not first & 0x80000000:
                if flags & _FIN:
                    self._closed(first, _BY_CLIENT)
                return Data(first, payload, bool(flags & _FIN))
            kind = first & 0xFFFF
            if (first >> 16) & 0x7FFF != _VERSION:
                raise SpdyError(f"version {(first >> 16) & 0x7FFF} is not spoken here")
            if kind == _SYN_STREAM:
                return self._opened(payload, flags)
            if kind == _RST_STREAM and len(payload) == 8:
                stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
                self._streams.pop(stream, None)
                return Ended(stream)
            if kind == _PING and len(payload) == 4 and int.from_bytes(payload, "big") % 2 == 1:
                self._control(_PING, payload)
            elif kind == _GOAWAY:
                return None
        return None

    def _opened(self, payload: bytes, flags: int) -> Opened:
        if len(payload) < 10:
            raise SpdyError("a stream without an id")
        stream = int.from_bytes(payload[:4], "big") & 0x7FFFFFFF
        headers = self._headers(payload[10:])
        if stream % 2 == 0 or stream <= self._newest or len(self._streams) >= _MOST_STREAMS:
            raise SpdyError(f"stream {stream} cannot be opened")
        self._newest = stream
        self._streams[stream] = _BY_CLIENT if flags & _FIN else 0
        packed = self._packing.compress(pack(">I", 0)) + self._packing.flush(zlib.Z_SYNC_FLUSH)
        self._control(_SYN_REPLY, pack(">I", stream) + packed)
        return Opened(stream, headers)

    def _headers(self, packed: bytes) -> dict[str, str]:
        try:
            raw = self._unpacking.decompress(packed, _LONGEST_HEADERS)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be read: {error}") from None
        if self._unpacking.unconsumed_tail:
            raise SpdyError("headers without end")
        at, found, words = 4, {}, []
        count = int.from_bytes(raw[:4], "big")
        for _ in range(2 * min(count, 1000)):
            size = int.from_bytes(raw[at : at + 4], "big")
            if at + 4 + size > len(raw):
                raise SpdyError("headers break off")
            words.append(raw[at + 4 : at + 4 + size].decode("utf-8", "replace"))
            at += 4 + size
        for name, value in zip(words[::2], words[1::2], strict=True):
            found[name.lower()] = value.partition("\0")[0]
        return found

    def write(self, stream: int, data: bytes, *, last: bool = False) -> None:
        if not self._over and stream in self._streams and (data or last):
            self._connection.write(_HEAD.pack(stream, (_FIN if last else 0) << 24 | len(data)) + data)
            if last:
                self._closed(stream, _BY_US)

    def reset(self, stream: int) -> None:
        """Refuse a stream that the client has opened."""
        if self._streams.pop(stream, None) is not None:
            self._control(_RST_STREAM, pack(">II", stream, _REFUSED_STREAM))

    def _closed(self, stream: int, end: int) -> None:
        """A stream that both ends have closed is no more: others may be opened in its place."""
        if stream in self._streams:
            self._streams[stream] |= end
            if self._streams[stream] == _BY_CLIENT | _BY_US:
                del self._streams[stream]

    def close(self, last_stream: int) -> None:
        """Says that there is no more to come."""
        if not self._over:
            self._control(_GOAWAY, pack(">II", last_stream, 0))
            self._over = True

    async def drained(self) -> None:
        await self._connection.drained()

    def _control(self, kind: int, payload: bytes) -> None:
        if not self._over:
            self._connection.write(_HEAD.pack(0x80000000 | _VERSION << 16 | kind, len(payload)) + payload)

    async def _frame(self) -> tuple[int, int, bytes] | None:
        if not await self._filled(8):
            return None
        first, second = _HEAD.unpack_from(self._buffer)
        flags, size = second >> 24, second & 0xFFFFFF
        if size > _LONGEST_FRAME:
            raise SpdyError("a frame without end")
        if not await self._filled(8 + size):
            return None
        payload = bytes(self._buffer[8 : 8 + size])
        del self._buffer[: 8 + size]
        return first, flags, payload

    async def _filled(self, size: int) -> bool:
        while len(self._buffer) < size:
            piece = await self._connection.read()
            if not piece:
                return False
            self._buffer += piece
        return True
