"""The answer of a node, off the wire: HTTP/1.1, one answer to a connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

import httptools

_LONGEST_HEAD = 64 * 1024
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


@dataclass(slots=True)
class Head:
    status: int
    headers: list[tuple[str, str]]

    def value(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def without(self, names: Collection[str]) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.headers if key.lower() not in names]


class NotHttp(OSError):
    """The other end speaks something else."""


async def read_head(reader: asyncio.StreamReader, upgrade: bool) -> Head:
    """`upgrade`: whether one was asked for. Raises OSError."""
    while True:
        try:
            raw = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise NotHttp("the node closed the connection without an answer") from None
        if len(raw) > _LONGEST_HEAD:
            raise NotHttp("the node sent headers without end")
        head = _parsed(raw)
        if head.status == 101 and not upgrade:
            raise NotHttp("the node switched to another protocol without having been asked to")
        if head.status >= 200 or head.status == 101:
            return head


def _parsed(raw: bytes) -> Head:
    found: list[tuple[str, str]] = []

    class Reader:
        def on_header(self, name: bytes, value: bytes) -> None:
            found.append((name.decode("latin-1"), value.decode("utf-8", "replace")))

    parser = httptools.HttpResponseParser(Reader())
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise NotHttp(f"the node's answer is not HTTP: {error}") from None
    return Head(parser.get_status_code(), found)


async def body_of(head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Its pieces as they come. Raises OSError where it breaks off."""
    if head.status in (204, 304):
        return
    encoding = head.value("transfer-encoding").lower()
    if encoding == "chunked":
        async for piece in _chunks(reader):
            yield piece
        return
    length = head.value("content-length")
    if encoding or (length and not _LENGTH.fullmatch(length)):
        raise NotHttp("the node's answer has no length that could be understood")
    left = int(length) if length else None
    while left is None or left > 0:
        piece = await reader.read(64 * 1024 if left is None else min(left, 64 * 1024))
        if not piece:
            if left:
                raise NotHttp("the node's answer breaks off")
            return
        if left is not None:
            left -= len(piece)
        yield piece


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        while True:
            found = _CHUNK_SIZE.fullmatch(await reader.readuntil(b"\r\n"))
            if found is None:
                raise NotHttp("the node's answer breaks off")
            size = int(found[1], 16)
            if size == 0:
                return
            while size:
                piece = await reader.read(min(size, 64 * 1024))
                if not piece:
                    raise NotHttp("the node's answer breaks off")
                size -= len(piece)
                yield piece
            await reader.readexactly(2)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise NotHttp("the node's answer breaks off") from None
