"""Reads the streams of a Setpoint API server: lines of JSON, each an object."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import orjson

from setpoint.client import Client, Unreachable
from setpoint.client.failures import failure
from setpoint.client.transport import Reply

_MAX_LINE: Final = 4 * 1024 * 1024
_MAX_ERROR: Final = 64 * 1024


async def json_lines(client: Client, path: str, query: str) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the lines of a stream until it ends. Raises ApiError if the server refuses it, and Unreachable if it sends
    something else."""
    stream = await client.sender.stream("GET", path, query)
    try:
        if stream.status != 200:
            body = b""
            async for chunk in stream:
                body += chunk
                if len(body) > _MAX_ERROR:
                    break
            raise failure(Reply(stream.status, stream.headers, body))
        partial = b""
        async for chunk in stream:
            *lines, partial = (partial + chunk).split(b"\n")
            for line in lines:
                yield _decoded(line)
            if len(partial) > _MAX_LINE:
                raise Unreachable(f"the server sent a line that is too long, in answer to {path}")
    finally:
        stream.close()


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Unreachable("the server sent a line that is not a JSON object")
    return found
