"""Header blocks of HTTP/2 (HPACK, RFC 7541), without a dynamic table.

What is sent uses neither the dynamic table nor Huffman coding, and the peer is allowed no dynamic table. Every header
block can therefore be decoded alone, and equal blocks (nearly all of a server's) are decoded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.wire.http2_frames import MalformedFrame

_MAX_BLOCK = 64 << 10
_CACHED_BLOCKS = 256


def literal(name: str, value: str) -> bytes:
    """Return a header field as a literal without indexing and without Huffman coding (RFC 7541, section 6.2.2)."""
    return b"\x00" + _string(name.encode("ascii")) + _string(value.encode("ascii"))


def _string(text: bytes) -> bytes:
    length = len(text)
    if length < 127:
        return bytes([length]) + text
    encoded, rest = bytearray([127]), length - 127
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded) + text


class HeaderDecoder:
    """Decodes the header blocks of a peer."""

    def __init__(self) -> None:
        # An optional dependency: only gRPC needs it.
        from hpack import Decoder

        self._decoder_type: Any = Decoder
        self._decoded: dict[bytes, Mapping[str, str]] = {}

    def check_size(self, block: bytes) -> None:
        """Raise MalformedFrame if a block, of which more may follow, is too long."""
        if len(block) > _MAX_BLOCK:
            raise MalformedFrame("a header block that is too long")

    def decode(self, block: bytes) -> Mapping[str, str]:
        """Return the headers of a complete block. Raises MalformedFrame."""
        if (known := self._decoded.get(block)) is not None:
            return known
        decoder = self._decoder_type(_MAX_BLOCK)
        decoder.max_allowed_table_size = decoder.header_table_size = 0
        try:
            headers = {str(name): str(value) for name, value in decoder.decode(block)}
        except Exception as error:  # hpack raises more than its own errors for some malformed blocks
            raise MalformedFrame(f"a header block that cannot be decoded: {error}") from None
        if len(self._decoded) < _CACHED_BLOCKS:
            self._decoded[block] = headers
        return headers
