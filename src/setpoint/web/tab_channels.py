"""The channels of a tab that are not feeds: conversations, and single requests to the API server."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from setpoint.client import Client, Unreachable
from setpoint.client.transport import Headers
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, BadRequest, RequestTooLarge, ServiceUnavailable, Timeout, TooManyRequests
from setpoint.tasks import within
from setpoint.web.credit import Credit

MAX_RESPONSE: Final = 4 * 1024 * 1024
"""Bytes of a response that is passed to a tab."""
_TIMEOUT: Final = 60.0
_MAX_UNREAD: Final = 256
"""Number of messages of a tab that a conversation has not read yet."""
_MAX_REVISION: Final = 2**63 - 1
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PATH = re.compile(r"/[!-~]{0,8191}")
_QUERY = re.compile(r"[!-~]{0,65535}")
_MEDIA_TYPE = re.compile(r"[ -~]{1,512}")
_CLUSTER = re.compile(
    r"(?:/seats/[a-z0-9][a-z0-9-]{0,62})?(?:/forks/[a-z0-9][a-z0-9-]{0,62})?"
    r"(?:/at/[A-Za-z0-9-][A-Za-z0-9:.+_-]{0,63})?"
)
_STREAMS = re.compile(r"(?:^|&)(?:watch|follow)=(?!(?:false|0|f)?(?:&|$))", re.IGNORECASE)
_PASSED_ON: Final = ("content-type", "warning", "retry-after", "setpoint-at", "audit-id")
"""Headers of a response that the tab receives."""


class TabConversation:
    """A Conversation with one tab. `write` sends a message and returns when the connection can take more."""

    def __init__(self, channel: int, write: Callable[[bytes, bool], Awaitable[None]]) -> None:
        """`write` takes a message and whether it is text."""
        self._channel = channel
        self._write = write
        self._credit = Credit()
        self._granted = asyncio.Event()
        self._unread: deque[Any] = deque()
        self._arrived = asyncio.Event()

    async def send(self, data: Any) -> None:
        await self._send(b'{"id":%d,"type":"message","data":%b}' % (self._channel, orjson.dumps(data)), True)

    async def send_bytes(self, data: bytes) -> None:
        await self._send(self._channel.to_bytes(4, "big") + data, False)

    async def receive(self) -> Any:
        while not self._unread:
            self._arrived.clear()
            await self._arrived.wait()
        return self._unread.popleft()

    # Called by the tab.

    def grant(self, messages: int, size: int | None = None) -> None:
        self._credit.grant(messages, size)
        self._granted.set()

    def deliver(self, data: Any) -> None:
        """Pass on what the tab has sent. Raises TooManyRequests if the conversation does not read."""
        if len(self._unread) >= _MAX_UNREAD:
            raise TooManyRequests.of("messages arrive faster than they are processed", 0)
        self._unread.append(data)
        self._arrived.set()

    async def _send(self, message: bytes, text: bool) -> None:
        if len(message) > MAX_RESPONSE:
            raise RequestTooLarge(f"a message to a tab has at most {MAX_RESPONSE >> 20} MiB")
        while not self._credit:
            self._granted.clear()
            await self._granted.wait()
        self._credit.spend(len(message))
        await self._write(message, text)


def checked_cluster(message: Mapping[str, Any]) -> str:
    """Return the path prefix of the logical cluster that a message names. Raises BadRequest."""
    cluster = message.get("cluster", "")
    if not isinstance(cluster, str) or not _CLUSTER.fullmatch(cluster):
        raise BadRequest("cluster must be empty, or consist of /seats/<seat>, /forks/<name> and /at/<moment>")
    return cluster


async def request(client: Client, clock: Clock, message: Mapping[str, Any]) -> dict[str, Any]:
    """Send the request that a tab asks for, and return the response as a message without an id."""
    try:
        return await within(clock, _TIMEOUT, _request(client, message))
    except ApiError as error:
        refusal = error
    except TimeoutError:
        refusal = Timeout.of(f"the server did not answer within {_TIMEOUT:.0f} s")
    except Unreachable as error:
        refusal = ServiceUnavailable(str(error))
    return {"status": refusal.code, "headers": {}, "body": refusal.status()}


async def _request(client: Client, message: Mapping[str, Any]) -> dict[str, Any]:
    method, body = message.get("method", "GET"), message.get("body")
    if method not in _METHODS:
        raise BadRequest(f"method must be one of {', '.join(_METHODS)}")
    path = _checked(message, "path", _PATH, "")
    query = _checked(message, "query", _QUERY, "")
    if _STREAMS.search(query):
        raise BadRequest("a response that does not end needs a feed, not a request")
    accept = _checked(message, "accept", _MEDIA_TYPE, "application/json")
    content_type = _checked(message, "contentType", _MEDIA_TYPE, "application/json")
    sent = b"" if body is None else body.encode() if isinstance(body, str) else orjson.dumps(body)
    reply = await client.sender.stream(method, path, query, sent, accept=accept, content_type=content_type)
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in reply:
            pieces.append(piece)
            size += len(piece)
            if size > MAX_RESPONSE:
                raise RequestTooLarge(f"the response has more than {MAX_RESPONSE >> 20} MiB; ask for a part of it")
    finally:
        reply.close()
    headers = _joined(reply.headers)
    return {"status": reply.status, "headers": headers, "body": _decoded(b"".join(pieces), headers)}


def _checked(message: Mapping[str, Any], name: str, pattern: re.Pattern[str], default: str) -> str:
    value = message.get(name, default)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BadRequest(f"{name} is not valid")
    return value


def _joined(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if name in _PASSED_ON:
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _decoded(body: bytes, headers: Mapping[str, str]) -> Any:
    """Return a body as a JSON value or text."""
    if not body:
        return None
    if headers.get("content-type", "").partition(";")[0].strip() == "application/json":
        try:
            orjson.loads(body)
        except ValueError:  # a Pod behind a proxy may send anything
            pass
        else:
            return orjson.Fragment(body)
    return body.decode("utf-8", "replace")
