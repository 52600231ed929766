"""PEM blocks as Go reads them: what is not a well-formed block is skipped, not an error."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import NamedTuple

_BEGIN = re.compile(rb"(?:\A|\n)-----BEGIN ([^\r\n]*?)-----[ \t\r]*(?:\n|\Z)")


class Block(NamedTuple):
    type: str
    headers: dict[str, str]
    data: bytes


def blocks(text: bytes) -> Iterator[Block]:
    position = 0
    while True:
        begin = _BEGIN.search(text, position)
        if begin is None:
            return
        block, position = _read(text, begin)
        if block is not None:
            yield block


def _read(text: bytes, begin: re.Match[bytes]) -> tuple[Block | None, int]:
    """The block, if it is one, and where to look on."""
    headers: dict[str, str] = {}
    start = begin.end()
    while True:
        line_end = text.find(b"\n", start)
        line = text[start : line_end if line_end >= 0 else len(text)]
        name, colon, value = line.partition(b":")
        if not colon or line_end < 0:
            break
        headers[name.strip().decode(errors="replace")] = value.strip().decode(errors="replace")
        start = line_end + 1
    end = re.compile(rb"(?:\A|\n)-----END " + re.escape(begin[1]) + rb"-----[ \t\r]*(?:\n|\Z)")
    closing = end.search(text, max(start - 1, 0))
    if closing is None:
        return None, begin.end() - 1
    body = re.sub(rb"[\r\n \t]", b"", text[start : max(closing.start(), start)])
    try:
        data = b64decode(body, validate=True)
    except binascii.Error:
        return None, begin.end() - 1
    return Block(begin[1].decode(errors="replace"), headers, data), max(closing.end() - 1, begin.end())
