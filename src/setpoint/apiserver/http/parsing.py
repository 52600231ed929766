"""Bytes to requests, without I/O: httptools does the syntax, this adds the limits and the refusals.

What comes out of `feed` is a queue of exchanges in the order they were sent. After an exchange with `last` nothing more
is read from the connection; after one with `upgrade` the bytes that follow are left in `rest`: they may not be HTTP.
"""

from __future__ import annotations

from typing import Final

import httptools

from setpoint.apiserver.http.limits import Limits
from setpoint.apiserver.http.message import Peer, Request


class Exchange:
    """One request and what the wire must know to answer it."""

    __slots__ = ("failure", "http10", "last", "request", "upgrade")

    def __init__(
        self, request: Request | None, http10: bool, last: bool, upgrade: bool, failure: tuple[int, str] | None = None
    ) -> None:
        self.request = request
        self.http10 = http10
        self.last = last
        """No request after this one: the client said so, or what follows cannot be trusted."""
        self.upgrade = upgrade
        """The client offers to leave HTTP."""
        self.failure = failure
        """Status and text of a refusal; the handler does not see this request."""


class Refused(Exception):
    """Raised inside the parser's callbacks, to stop it where it stands."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text


SLICE: Final = 16 * 1024
"""Bytes to be fed at once: how many requests they hold decides how much memory these take once parsed."""
_BLANK_LINE: Final = b"\r\n\r\n"
_OVERLAP: Final = 3
"""So much of the blank line that ends a head may have come with an earlier piece."""

_METHODS: Final = {m.encode(): m for m in ("GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS")}

# Names as the usual clients spell them; looking one up is cheaper than lowering and decoding it.
_NAMES: Final[dict[bytes, str]] = {
    spelling.encode(): name
    for name in (
        "host", "user-agent", "accept", "accept-encoding", "authorization", "content-type", "content-length",
        "connection", "transfer-encoding", "kubectl-command", "kubectl-session", "expect", "upgrade", "origin",
        "x-stream-protocol-version", "audit-id", "traceparent",
    )
    for spelling in (name, name.title())
}  # fmt: skip


class RequestParser:
    __slots__ = (
        "_barren", "_begun", "_body", "_grown", "_head_done", "_headers", "_http10", "_keep_alive", "_limits",
        "_parser", "_peer", "_repeated", "_replaying", "_request", "_searched", "_tail", "_target", "_trailing_body",
        "_upgrade", "finished", "in_long_head", "ready", "rest", "wants_continue",
    )  # fmt: skip

    def __init__(self, limits: Limits, peer: Peer) -> None:
        self._limits = limits
        self._peer = peer
        self.ready: list[Exchange] = []
        self.finished = False
        """Nothing more will be parsed."""
        self.wants_continue = False
        """The client waits for `100 Continue` before it sends the body."""
        self.rest = b""
        """After an upgrade: what followed the request in the same piece."""
        self._barren = 0  # bytes since something was completed: a head, a piece of body, a message
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
        self.in_long_head = False
        self._tail = b""
        self._searched = 0

    @property
    def idle(self) -> bool:
        """Between two requests."""
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
            # Bytes after a request that said `Connection: close` are an error to httptools and nothing to us.
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
            self._barren += len(data)
            if self._barren > self._limits.head:
                self._refuse(431, "")
            elif not self._head_done:
                self._tail = (self._tail + data[-_OVERLAP:])[-_OVERLAP:]
                self.in_long_head = self._barren >= SLICE

    def wants(self, pending: bytearray) -> int:
        """How many of the bytes that have come should be fed next; 0: more must come first.

        A head that is long is fed to its end at once: with each piece of a header httptools copies all that it has."""
        if not self.in_long_head:
            return SLICE
        searched, self._searched = self._searched, len(pending)
        end = pending.find(_BLANK_LINE, max(0, searched - _OVERLAP))
        if end >= 0:
            return end + len(_BLANK_LINE)
        if searched < _OVERLAP and _BLANK_LINE in self._tail + pending[:_OVERLAP]:
            return SLICE
        return len(pending) if self._barren + len(pending) > self._limits.head else 0

    def resume(self) -> bytes:
        """After an upgrade that was not taken up: HTTP goes on, with the bytes returned."""
        rest, self.rest = self.rest, b""
        self._parser = httptools.HttpRequestParser(self)
        self.finished = False
        return rest

    def release(self) -> None:
        """Parse nothing more. httptools holds methods of this object: without it, no reference cycle is left."""
        self.finished = True
        del self._parser

    def _refuse(self, status: int, text: str) -> None:
        self.finished = True
        self.wants_continue = False
        known = self._request if status == 413 else None
        self.ready.append(Exchange(known, False, True, False, (status, text)))
        self._reset()

    def _upgraded(self, rest: bytes) -> None:
        if not self._trailing_body:
            self.finished = True
            self.rest = rest
            return
        # httptools takes the end of the head for the end of the message here. The offer to upgrade is ignored and the
        # body read by a parser that is told the framing once more.
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

    # What httptools calls.

    def on_url(self, piece: bytes) -> None:
        if self._replaying:
            return
        self._begun = True
        self._target = self._target + piece if self._target else piece

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # a trailer, or the replay
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
        self._barren = 0
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
        # Anything two readers could understand differently is refused: this is what request smuggling lives on.
        if self._http10 or "content-length" in headers:
            raise Refused(400, "")
        if headers["transfer-encoding"].lower() != "chunked":
            raise Refused(501, "unsupported transfer encoding")

    def on_body(self, piece: bytes) -> None:
        self.wants_continue = False
        self._barren = 0
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

    def on_message_complete(self) -> None:
        if self._trailing_body:
            return
        request = self._request
        assert request is not None
        if self._body:
            request.body = self._body if self._grown is None else bytes(self._grown)
        self.wants_continue = False
        self._barren = 0
        self.ready.append(Exchange(request, self._http10, not self._keep_alive, self._upgrade))
        if not self._keep_alive:
            self.finished = True
        self._reset()


def _split_target(target: bytes) -> tuple[str, str]:
    text = target.decode("latin-1")
    if text[:1] != "/" and "://" in text:
        # The absolute form that proxies send: the authority is of no interest.
        slash = text.find("/", text.index("://") + 3)
        question = text.find("?", text.index("://") + 3)
        if slash < 0 or 0 <= question < slash:
            text = "/" + (text[question:] if question >= 0 else "")
        else:
            text = text[slash:]
    path, _, query = text.partition("?")
    return path, query
