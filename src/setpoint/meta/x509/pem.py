"""PEM blocks as Go reads them, skipping malformed blocks, and the certificates that a TLS peer sent."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

_BEGIN, _END, _DASHES = b"-----BEGIN ", b"\n-----END ", b"-----"


class Block(NamedTuple):
    type: str
    headers: dict[str, str]
    data: bytes


def blocks(text: bytes) -> Iterator[Block]:
    """Yield the blocks of a text in time that is linear in its length.

    Each END line is tried with the last BEGIN line before it, so no part of the text is looked at twice."""
    position = 0
    while (end := text.find(_END, position)) >= 0:
        begin = text.rfind(_BEGIN, position, end)
        following = end + len(_END)
        if begin >= 0 and (begin == position or text[begin - 1 : begin] == b"\n"):
            block = _read(text, begin + len(_BEGIN), end)
            if block is not None:
                following = _line(text, following)[1]
                yield block
        position = following


def encode(type: str, data: bytes) -> str:
    """Return a block as text, in lines of 64 characters."""
    body = b64encode(data).decode("ascii")
    lines = "".join(f"{body[at : at + 64]}\n" for at in range(0, len(body), 64))
    return f"-----BEGIN {type}-----\n{lines}-----END {type}-----\n"


def _read(text: bytes, start: int, end: int) -> Block | None:
    """Return the block whose type begins at `start` and whose END line begins after `end`."""
    title, start = _line(text, start)
    closing, _ = _line(text, end + len(_END))
    if not title.endswith(_DASHES) or closing != title:
        return None
    headers: dict[str, str] = {}
    while start <= end:
        line, following = _line(text, start)
        name, colon, value = line.partition(b":")
        if not colon:
            break
        headers[name.strip().decode(errors="replace")] = value.strip().decode(errors="replace")
        start = following
    if start > end and (headers or b":" in closing):
        return None  # The END line has the form of a header.
    try:
        data = b64decode(text[start:end].translate(None, b" \t\r\n"), validate=True)
    except binascii.Error:
        return None
    return Block(title.removesuffix(_DASHES).decode(errors="replace"), headers, data)


def _line(text: bytes, start: int) -> tuple[bytes, int]:
    """Return the line from `start` on, without spaces at its end, and where the next one begins."""
    end = text.find(b"\n", start)
    if end < 0:
        return text[start:].rstrip(b" \t"), len(text)
    return text[start:end].removesuffix(b"\r").rstrip(b" \t"), end + 1


def peer_chain(connection: Any) -> list[bytes]:
    """Return the certificates that the peer sent, as DER, its own first; `connection` is an `ssl.SSLObject`.

    Python has a public method for this only since 3.13."""
    get_chain = getattr(getattr(connection, "_sslobj", None), "get_unverified_chain", None)
    chain = (get_chain() if get_chain is not None else None) or ()
    return [b64decode(certificate.public_bytes().split("-----")[2]) for certificate in chain]
