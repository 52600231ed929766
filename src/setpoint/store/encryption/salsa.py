"""XSalsa20-Poly1305, which is NaCl's secretbox: neither OpenSSL nor the standard library has Salsa20.

All blocks of a message are computed at once: a Python integer holds the same word of every block, each in a lane of 64
bits, of which the upper half catches carries and what rotates out. Additions, shifts and exclusive ors then work on
all lanes in one operation, at the speed of C.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.poly1305 import Poly1305

KEY, NONCE, TAG = 32, 24, 16
_BLOCK = 64
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
_BATCH = 1024
"""Blocks that are computed together: 64 KiB. More would not fit into the processor's caches."""


def seal(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Return the authentication tag followed by the ciphertext."""
    mask, stream = _stream(key, nonce, len(message))
    sealed = _xor(message, stream)
    return Poly1305.generate_tag(mask, sealed) + sealed


def open_(key: bytes, nonce: bytes, sealed_message: bytes) -> bytes | None:
    """Return the message, or None if it was not sealed with this key or was modified."""
    tag, sealed = sealed_message[:TAG], sealed_message[TAG:]
    mask, stream = _stream(key, nonce, len(sealed))
    try:
        Poly1305.verify_tag(mask, sealed, tag)
    except InvalidSignature:
        return None
    return _xor(sealed, stream)


def _stream(key: bytes, nonce: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the Poly1305 key and `size` bytes of key stream."""
    subkey = hsalsa20(key, nonce[:16])
    stream = salsa20(subkey, nonce[16:], 32 + size)
    return stream[:32], stream[32:]


def _xor(data: bytes, stream: bytes) -> bytes:
    size = len(data)
    return (int.from_bytes(data, "little") ^ int.from_bytes(stream[:size], "little")).to_bytes(size, "little")


def hsalsa20(key: bytes, nonce: bytes) -> bytes:
    k, n = struct.unpack("<8I", key), struct.unpack("<4I", nonce)
    words = [_SIGMA[0], *k[:4], _SIGMA[1], *n, _SIGMA[2], *k[4:], _SIGMA[3]]
    mixed = _twenty_rounds(words, 0xFFFFFFFF)
    return struct.pack("<8I", *(mixed[at] for at in (0, 5, 10, 15, 6, 7, 8, 9)))


def salsa20(key: bytes, nonce: bytes, size: int) -> bytes:
    blocks = (size + _BLOCK - 1) // _BLOCK
    pieces = [_blocks(key, nonce, first, min(_BATCH, blocks - first)) for first in range(0, blocks, _BATCH)]
    return b"".join(pieces)[:size]


def _blocks(key: bytes, nonce: bytes, first: int, count: int) -> bytes:
    k, n = struct.unpack("<8I", key), struct.unpack("<2I", nonce)
    ones = int.from_bytes(b"\x01\0\0\0\0\0\0\0" * count, "little")
    mask = ones * 0xFFFFFFFF
    counter = int.from_bytes(struct.pack(f"<{count}Q", *range(first, first + count)), "little")
    begin = [_SIGMA[0] * ones, *(word * ones for word in k[:4]), _SIGMA[1] * ones]
    begin += [n[0] * ones, n[1] * ones, counter, 0, _SIGMA[2] * ones]
    begin += [*(word * ones for word in k[4:]), _SIGMA[3] * ones]
    mixed = _twenty_rounds(begin, mask)
    lanes = [
        ((after + before) & mask).to_bytes(8 * count, "little") for after, before in zip(mixed, begin, strict=True)
    ]
    # Transpose the same word of every block into the words of each block.
    columns = [struct.unpack(f"<{count}Q", lane) for lane in lanes]
    return b"".join([struct.pack("<16I", *block) for block in zip(*columns, strict=True)])


def _twenty_rounds(words: Sequence[int], mask: int) -> tuple[int, ...]:
    """Return the words after twenty rounds. The words are named a to p, with q for l."""
    a, b, c, d, e, f, g, h, i, j, k, q, m, n, o, p = words
    for _ in range(10):
        t = (a + m) & mask
        e ^= (t << 7 | t >> 25) & mask
        t = (e + a) & mask
        i ^= (t << 9 | t >> 23) & mask
        t = (i + e) & mask
        m ^= (t << 13 | t >> 19) & mask
        t = (m + i) & mask
        a ^= (t << 18 | t >> 14) & mask
        t = (f + b) & mask
        j ^= (t << 7 | t >> 25) & mask
        t = (j + f) & mask
        n ^= (t << 9 | t >> 23) & mask
        t = (n + j) & mask
        b ^= (t << 13 | t >> 19) & mask
        t = (b + n) & mask
        f ^= (t << 18 | t >> 14) & mask
        t = (k + g) & mask
        o ^= (t << 7 | t >> 25) & mask
        t = (o + k) & mask
        c ^= (t << 9 | t >> 23) & mask
        t = (c + o) & mask
        g ^= (t << 13 | t >> 19) & mask
        t = (g + c) & mask
        k ^= (t << 18 | t >> 14) & mask
        t = (p + q) & mask
        d ^= (t << 7 | t >> 25) & mask
        t = (d + p) & mask
        h ^= (t << 9 | t >> 23) & mask
        t = (h + d) & mask
        q ^= (t << 13 | t >> 19) & mask
        t = (q + h) & mask
        p ^= (t << 18 | t >> 14) & mask
        t = (a + d) & mask
        b ^= (t << 7 | t >> 25) & mask
        t = (b + a) & mask
        c ^= (t << 9 | t >> 23) & mask
        t = (c + b) & mask
        d ^= (t << 13 | t >> 19) & mask
        t = (d + c) & mask
        a ^= (t << 18 | t >> 14) & mask
        t = (f + e) & mask
        g ^= (t << 7 | t >> 25) & mask
        t = (g + f) & mask
        h ^= (t << 9 | t >> 23) & mask
        t = (h + g) & mask
        e ^= (t << 13 | t >> 19) & mask
        t = (e + h) & mask
        f ^= (t << 18 | t >> 14) & mask
        t = (k + j) & mask
        q ^= (t << 7 | t >> 25) & mask
        t = (q + k) & mask
        i ^= (t << 9 | t >> 23) & mask
        t = (i + q) & mask
        j ^= (t << 13 | t >> 19) & mask
        t = (j + i) & mask
        k ^= (t << 18 | t >> 14) & mask
        t = (p + o) & mask
        m ^= (t << 7 | t >> 25) & mask
        t = (m + p) & mask
        n ^= (t << 9 | t >> 23) & mask
        t = (n + m) & mask
        o ^= (t << 13 | t >> 19) & mask
        t = (o + n) & mask
        p ^= (t << 18 | t >> 14) & mask
    return a, b, c, d, e, f, g, h, i, j, k, q, m, n, o, p
