"""A transport below a path of a server: that of a logical cluster, such as `/forks/<name>` or `/at/<revision>`."""

from __future__ import annotations

from setpoint.client.transport import (
    Headers,
    Reply,
    StreamReply,
    Transport,
    Unreachable,
    Upgraded,
    UpgradingTransport,
)


class PrefixedTransport:
    """Sends requests below a path. Subclasses may read the headers of responses in `note`."""

    def __init__(self, transport: Transport, prefix: str) -> None:
        """`prefix` is percent-encoded; it begins with a slash and does not end with one."""
        self._transport = transport
        self._prefix = prefix

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        reply = await self._transport.request(method, self._prefix + path, query, headers, body)
        self.note(reply.headers)
        return reply

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        reply = await self._transport.stream(method, self._prefix + path, query, headers, body)
        self.note(reply.headers)
        return reply

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        if not isinstance(self._transport, UpgradingTransport):
            raise Unreachable("streams in both directions need a server on the network")
        reply = await self._transport.upgrade(self._prefix + path, query, headers)
        self.note(reply.headers)
        return reply

    def note(self, headers: Headers) -> None:
        """Read the headers of a response; the default ignores them."""

    async def close(self) -> None:
        await self._transport.close()
