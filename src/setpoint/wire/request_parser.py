"""Parses requests, without I/O: httptools handles the syntax, this module adds limits and refusals.

`feed` appends requests to `ready` in the order in which they were sent. After a request with `is_last` nothing more is
parsed; after one with `upgrade` the bytes that follow are in `leftover`, because they may not be HTTP.
"""

from __future__ import annotations

from typing import Final

import httptools

from setpoint.wire.limits import Limits
from setpoint.wire.message import Peer, Request


class ReceivedRequest:
    """A request, and what the connection must know to answer it."""

    __slots__ = ("failure", "http10", "is_last", "request", "upgrade")

    def __init__(
        self,
        request: Request | None,
        http10: bool,
        is_last: bool,
        upgrade: bool,
        failure: tuple[int, str] | None = None,
    ) -> None:
        self.request = request
        self.http10 = http10
        self.is_last = is_last
        """Whether no request follows: the client closes the connection, or what follows cannot be trusted."""
        self.upgrade = upgrade
        """Whether the client offers to switch to another protocol."""
        self.failure = failure
        """Status and text of a refusal, of a request that the handler does not get; None for a valid request."""


class Refused(Exception):
    """Stops the parser from within one of its callbacks."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


class BodyBudget:
    """The memory that incomplete bodies of all connections of a server may take together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


SLICE: Final = 16 * 1024
"""Bytes that are fed at once, which limits how many pipelined requests are parsed before the first is answered."""
_BLANK_LINE: Final = b"\r\n\r\n"
_OVERLAP: Final = 3
"""Bytes of the blank line at the end of a head that may have arrived with an earlier piece."""

_METHODS: Final = {m.encode(): m for m in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS")}

_NAMES: Final[dict[bytes, str]] = {
    spelling.encode(): name
    for name in (
        "host",
        "user-agent",
        "accept",
        "accept-encoding",
        "authorization",
        "content-type",
        "content-length",
        "connection",
        "transfer-encoding",
        "kubectl-command",
        "kubectl-session",
        "expect",
        "upgrade",
        "origin",
        "x-stream-protocol-version",
        "audit-id",
        "traceparent",
    )
    for spelling in (name, name.title())
}
"""Header names as common clients spell them: a lookup is cheaper than lowering and decoding a name."""


class RequestParser:
    __slots__ = (
        "_begun",
        "_body",
        "_body_budget",
        "_charged",
        "_grown",
        "_head_done",
        "_headers",
        "_http10",
        "_keep_alive",
        "_limits",
        "_parser",
        "_peer",
        "_repeated",
        "_replaying",
        "_request",
        "_searched",
        "_tail",
        "_target",
        "_trailing_body",
        "_unproductive",
        "_upgrade",
        "finished",
        "in_long_head",
        "leftover",
        "ready",
        "wants_continue",
    )

    def __init__(self, limits: Limits, peer: Peer, body_budget: BodyBudget | None = None) -> None:
        self._limits = limits
        self._peer = peer
        self._body_budget = body_budget
        self._charged = 0
        """Bytes of the body that are charged to the budget."""
        self.ready: list[ReceivedRequest] = []
        self.finished = False
        """Whether nothing more will be parsed."""
        self.wants_continue = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.leftover = b""
        """Bytes that followed an upgrade request in the same piece."""
        self._unproductive = 0
        """Bytes since something was completed: a head, a piece of a body, a message."""
        self._replaying = False
        self._parser = httptools.HttpRequestParser(self)
        self._reset()

    def _reset(self) -> None:
        self._begun = False
        self._head_done = False
        self._trailing_body = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._repeated: dict[str, list[str]] | None = None
        self._request: Request | None = None
        self._body = b""
        self._grown: bytearray | None = None
        if self._charged:
            self._release_budget()
        self.in_long_head = False
        self._tail = b""
        self._searched = 0

    @property
    def idle(self) -> bool:
        """Whether the parser is between two requests."""
        return not self._begun

    @property
    def in_body(self) -> bool:
        return self._head_done

    def feed(self, data: bytes) -> None:
        if self.finished:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as left:
            self._upgraded(data[left.args[0] :])
            return
        except httptools.HttpParserError as error:
            # httptools reports bytes after a request with `Connection: close`, which are ignored here.
            if self.finished:
                return
            if isinstance(error.__context__, Refused):
                self._refuse(error.__context__.status, error.__context__.text)
            elif error.__context__ is not None:
                raise
            else:
                self._refuse(400, "")
            return
        if self._begun:
            self._unproductive += len(data)
            if self._unproductive > self._limits.head:
                self._refuse(431, "")
            elif not self._head_done:
                self._tail = (self._tail + data[-_OVERLAP:])[-_OVERLAP:]
                self.in_long_head = self._unproductive >= SLICE

    def next_feed_size(self, pending: bytearray) -> int:
        """Return how many of the received bytes should be fed next; 0 means that more must arrive first.

        A long head is fed to its end at once, because httptools copies a header again with each piece of it."""
        if not self.in_long_head:
            return SLICE
        searched, self._searched = self._searched, len(pending)
        end = pending.find(_BLANK_LINE, max(0, searched - _OVERLAP))
        if end >= 0:
            return end + len(_BLANK_LINE)
        if searched < _OVERLAP and _BLANK_LINE in self._tail + pending[:_OVERLAP]:
            return SLICE
        return len(pending) if self._unproductive + len(pending) > self._limits.head else 0

    def resume(self) -> bytes:
        """Continue with HTTP after an upgrade that was not accepted, and return the bytes to be parsed next."""
        leftover, self.leftover = self.leftover, b""
        self._parser = httptools.HttpRequestParser(self)
        self.finished = False
        return leftover

    def release(self) -> None:
        """Parse nothing more. httptools references methods of this object: without it, no reference cycle is left."""
        self.finished = True
        if self._charged:
            self._release_budget()
        del self._parser

    def _release_budget(self) -> None:
        assert self._body_budget is not None
        self._body_budget.used -= self._charged
        self._charged = 0

    def _refuse(self, status: int, text: str) -> None:
        self.finished = True
        self.wants_continue = False
        known = self._request if status == 413 else None
        self.ready.append(ReceivedRequest(known, False, True, False, (status, text)))
        self._reset()

    def _upgraded(self, rest: bytes) -> None:
        if not self._trailing_body:
            self.finished = True
            self.leftover = rest
            return
        # httptools takes the end of the head for the end of the message here. The offer to upgrade is ignored, and the
        # body is read by a new parser, which gets the framing headers again.
        assert self._request is not None
        length = self._request.headers.get("content-length")
        framing = f"Content-Length: {length}" if length is not None else "Transfer-Encoding: chunked"
        connection = "" if self._keep_alive else "Connection: close\r\n"
        self._trailing_body = False
        self._parser = httptools.HttpRequestParser(self)
        self._replaying = True
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{connection}{framing}\r\n\r\n".encode())
        self._replaying = False
        if rest:
            self.feed(rest)

    # Callbacks of httptools.

    def on_url(self, piece: bytes) -> None:
        if self._replaying:
            return
        self._begun = True
        self._target = self._target + piece if self._target else piece

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # a trailer, or the framing headers for a second parser
        key = _NAMES.get(name)
        if key is None:
            key = name.lower().decode("ascii")
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        if text[-1:] <= " ":
            text = text.rstrip(" \t")
        headers = self._headers
        if key in headers:
            self._repeat(key, text)
        else:
            headers[key] = text
            if len(headers) > self._limits.headers:
                raise Refused(431, "")

    def _repeat(self, key: str, text: str) -> None:
        if self._repeated is None:
            self._repeated = {}
        values = self._repeated.setdefault(key, [self._headers[key]])
        values.append(text)
        if len(values) > self._limits.headers:
            raise Refused(431, "")

    def on_headers_complete(self) -> None:
        if self._replaying:
            return
        parser, headers = self._parser, self._headers
        version = parser.get_http_version()
        if version != "1.1" and version != "1.0":
            raise Refused(505, "unsupported protocol version")
        self._http10 = version == "1.0"
        repeated = self._repeated
        if repeated is not None:
            if "host" in repeated:
                raise Refused(400, "too many Host headers")
            for key, values in repeated.items():
                headers[key] = ", ".join(values)
        if "host" not in headers and not self._http10:
            raise Refused(400, "missing required Host header")
        method = parser.get_method()
        path, query = _split_target(self._target)
        if len(path) > self._limits.path:
            raise Refused(431, "")
        self._request = Request(
            _METHODS.get(method) or method.decode(), path, query, headers, b"", self._peer, repeated or {}
        )
        self._keep_alive = parser.should_keep_alive()
        self._upgrade = parser.should_upgrade()
        self._head_done = True
        self.in_long_head = False
        self._unproductive = 0
        has_body = False
        if "content-length" in headers:
            size = int(headers["content-length"])
            if size > self._limits.body:
                raise Refused(413, f"limit is {self._limits.body}")
            has_body = size > 0
        if "transfer-encoding" in headers:
            self._check_transfer_encoding(headers)
            has_body = True
        if "expect" in headers and not self._http10:
            if headers["expect"].lower() != "100-continue":
                raise Refused(417, "")
            self.wants_continue = has_body
        if self._upgrade:
            if method == b"CONNECT":
                raise Refused(405, "")
            if has_body:
                self._trailing_body = True
                self._upgrade = False
                del headers["upgrade"]

    def _check_transfer_encoding(self, headers: dict[str, str]) -> None:
        # Framing that two readers could understand differently is refused, because it allows request smuggling.
        if self._http10 or "content-length" in headers:
            raise Refused(400, "")
        if headers["transfer-encoding"].lower() != "chunked":
            raise Refused(501, "unsupported transfer encoding")

    def on_body(self, piece: bytes) -> None:
        self.wants_continue = False
        self._unproductive = 0
        if not self._body:
            self._body = piece
            size = len(piece)
        else:
            if self._grown is None:
                self._grown = bytearray(self._body)
            self._grown += piece
            size = len(self._grown)
        if size > self._limits.body:
            raise Refused(413, f"limit is {self._limits.body}")
        budget = self._body_budget
        if budget is not None:
            budget.used += len(piece)
            self._charged += len(piece)
            if budget.used > budget.limit:
                raise Refused(503, "too many requests at once")

    def on_message_complete(self) -> None:
        if self._trailing_body:
            return
        request = self._request
        assert request is not None
        if self._body:
            request.body = self._body if self._grown is None else bytes(self._grown)
        self.wants_continue = False
        self._unproductive = 0
        self.ready.append(ReceivedRequest(request, self._http10, not self._keep_alive, self._upgrade))
        if not self._keep_alive:
            self.finished = True
        self._reset()


def _split_target(target: bytes) -> tuple[str, str]:
    text = target.decode("latin-1")
    if text[:1] != "/" and "://" in text:
        # The absolute form that proxies send, whose authority is ignored.
        slash = text.find("/", text.index("://") + 3)
        question = text.find("?", text.index("://") + 3)
        if slash < 0 or 0 <= question < slash:
            text = "/" + (text[question:] if question >= 0 else "")
        else:
            text = text[slash:]
    path, _, query = text.partition("?")
    return path, query
