"""Requests with one user agent and user: headers, Retry-After, warnings, errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from setpoint.client.current_run import current_run
from setpoint.client.failures import failure, failure_of
from setpoint.client.kubeconfig import Impersonation
from setpoint.client.transport import (
    EventStream,
    Headers,
    ObjectReply,
    ObjectTransport,
    Reply,
    StreamReply,
    Transport,
    Unreachable,
    Upgraded,
    UpgradingTransport,
    header,
    takes_objects,
)
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.json_codec import decode_json, encode_json

if TYPE_CHECKING:
    from setpoint.meta.lease_term import Fence, Term

# Modules that only components, watches or writes need are imported where they are used: most commands do without.


def warning_texts(value: str) -> list[str]:
    """Return the texts of warnings, without those with control characters, which a terminal could execute."""
    # The patterns are compiled here, because most responses have no warnings.
    texts = (re.sub(r"\\(.)", r"\1", text) for text in re.findall(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"', value))
    return [text for text in texts if not re.search("[\x00-\x1f\x7f-\x9f]", text)]


JSON = "application/json"
_MAX_RETRIES = 10


class Sender:
    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        user_agent: str = "setpoint",
        impersonate: Impersonation | None = None,
        on_warning: Callable[[str], None] | None = None,
        fence: Fence | None = None,
    ) -> None:
        """Create a sender; `fence` is checked before every write, and again before each retry."""
        self.transport = transport
        self.clock = clock
        self.user_agent = user_agent
        self.impersonate = impersonate
        self.on_warning = on_warning
        self.fence = fence
        self._objects = transport if takes_objects(transport) else None
        self._known: dict[tuple[str, str, Term | None], list[tuple[str, str]]] = {}
        self._who: list[tuple[str, str]] = [("user-agent", user_agent)]
        if impersonate is not None:
            self._who += impersonate.headers()

    async def request(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes = b"",
        *,
        accept: str = JSON,
        content_type: str = JSON,
    ) -> Reply:
        """Return a successful response. Retry when the server requests it with Retry-After."""
        for attempt in range(_MAX_RETRIES + 1):
            headers = self._headers(method, bool(body), accept, content_type)
            reply = await self.transport.request(method, path, query, headers, body)
            if reply.status < 400:
                if self.on_warning is not None:
                    self._warn(reply.headers)
                return reply
            pause = _asks_to_wait(reply.status, reply.headers)
            if pause is None or attempt == _MAX_RETRIES:
                break
            await self.clock.sleep(pause)
        raise failure(reply)

    async def stream(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes = b"",
        *,
        accept: str = JSON,
        content_type: str = JSON,
    ) -> StreamReply:
        """Return a response of any status as a stream, which the caller reads and closes."""
        headers = self._headers(method, bool(body), accept, content_type)
        stream = await self.transport.stream(method, path, query, headers, body)
        if self.on_warning is not None:
            self._warn(stream.headers)
        return stream

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        """Return an upgraded connection, or the server's refusal."""
        if not isinstance(self.transport, UpgradingTransport):
            raise Unreachable("streams in both directions need a server on the network")
        return await self.transport.upgrade(path, query, [*self._who, *headers])

    async def json(
        self, method: str, path: str, query: str = "", body: Any = None, *, accept: str = JSON, content_type: str = JSON
    ) -> dict[str, Any]:
        """Send the object in `body` and return the object in the response."""
        if self._objects is not None and not isinstance(body, bytes):
            return await self._exchange(self._objects, method, path, query, body, accept, content_type)
        sent = b"" if body is None else body if isinstance(body, bytes) else _encoded(body)
        reply = await self.request(method, path, query, sent, accept=accept, content_type=content_type)
        found: dict[str, Any] = decode_json(reply.body) if reply.body else {}
        return found

    async def document(self, path: str, accept: str) -> dict[str, Any]:
        """Return the object at a path, in one of the accepted media types."""
        return await self.json("GET", path, accept=accept)

    async def watch(self, path: str, query: str, *, accept: str = JSON) -> EventStream:
        if self._objects is None:
            from setpoint.client.watch import event_lines

            return await event_lines(await self.stream("GET", path, query, accept=accept))
        stream = await self._objects.follow(path, query, self._headers("GET", False, accept, ""))
        if isinstance(stream, ObjectReply):
            raise _refusal(stream)
        return stream

    async def _exchange(
        self, objects: ObjectTransport, method: str, path: str, query: str, value: Any, accept: str, content_type: str
    ) -> dict[str, Any]:
        """Do the same as `request`, with objects instead of bytes."""
        for attempt in range(_MAX_RETRIES + 1):
            headers = self._headers(method, value is not None, accept, content_type)
            reply = await objects.exchange(method, path, query, headers, value)
            if reply.status < 400:
                if self.on_warning is not None:
                    self._warn(reply.headers)
                if reply.value is not None:
                    return reply.value
                found: dict[str, Any] = decode_json(reply.body) if reply.body else {}
                return found
            pause = _asks_to_wait(reply.status, reply.headers)
            if pause is None or attempt == _MAX_RETRIES:
                break
            await self.clock.sleep(pause)
        raise _refusal(reply)

    def _headers(self, method: str, body: bool, accept: str, content_type: str) -> list[tuple[str, str]]:
        """Return the headers of a request: a write has the claim of the current run, except if it is sent within the
        process, where the transport adds it. The lists are cached and must not be changed. Raise Conflict for a write
        that the fence refuses."""
        term = None if self.fence is None or method == "GET" else self.fence.term()
        key = (accept, content_type if body else "", term)
        headers = self._known.get(key)
        if headers is None:
            headers = [("accept", accept), *self._who]
            if body:
                headers.append(("content-type", content_type))
            if term is not None:
                from setpoint.meta.lease_term import TERM_HEADER

                headers.append((TERM_HEADER, str(term)))
            self._known[key] = headers
        if method != "GET" and self._objects is None:
            run = current_run.get()
            if run is not None:
                from setpoint.meta.cause import CAUSE_HEADER

                return [*headers, (CAUSE_HEADER, run.claim_write())]
        return headers

    def _warn(self, headers: Headers) -> None:
        assert self.on_warning is not None
        for name, value in headers:
            if name == "warning":
                for text in warning_texts(value):
                    self.on_warning(text)


def _refusal(reply: ObjectReply) -> ApiError:
    if reply.value is not None:
        return failure_of({"code": reply.status, **reply.value})
    return failure(Reply(reply.status, reply.headers, reply.body))


def _asks_to_wait(status: int, headers: Headers) -> float | None:
    if status != 429 and status < 500:
        return None
    seconds = header(headers, "retry-after")
    return float(seconds) if seconds.isdigit() else None


def _encoded(body: Any) -> bytes:
    try:
        return encode_json(body)
    except (TypeError, ValueError):
        # Encode invalid Unicode and non-finite numbers as Go's clients do.
        from setpoint.meta.gojson import compact

        return compact(body, ordered=False).encode()
