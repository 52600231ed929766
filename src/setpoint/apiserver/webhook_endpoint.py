"""Webhooks that an administrator names in a kubeconfig: where they are, what they are shown, how often tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from setpoint.apiserver.far_server import FarServer, FarServerProblem, FarServers
from setpoint.apiserver.http.message import Peer, Request, Response
from setpoint.meta.clock import Ids
from setpoint.meta.goformat import quote

ATTEMPTS = 5
_FACTOR, _JITTER = 1.5, 0.2


@dataclass(frozen=True, slots=True)
class Endpoint:
    server: FarServer
    url: str
    path: str = "/"
    query: str = ""
    authorization: str = ""
    """The header, whole; it is never shown."""

    async def post(self, servers: FarServers, body: bytes, timeout: float, query: str = "") -> Response:
        """`query`: besides the one of the address. Raises FarServerProblem, whose text names the address."""
        headers = {
            "accept": "application/json, */*", "content-type": "application/json", "user-agent": "kube-apiserver",
        }  # fmt: skip
        if self.authorization:
            headers["authorization"] = self.authorization
        query = "&".join(filter(None, (self.query, query)))
        try:
            return await servers.post(self.server, Request("POST", self.path, query, headers, body, Peer()), timeout)
        except FarServerProblem as problem:
            shown = f"{self.url}?{query}" if query else self.url
            raise FarServerProblem(f"Post {quote(shown)}: {problem}") from None


def pauses(first: float, ids: Ids) -> Iterator[float]:
    """After each attempt but the last: ever longer, and not the same for all who wait."""
    for attempt in range(ATTEMPTS - 1):
        yield first * _FACTOR**attempt * (1 + _JITTER * ids.below(1000) / 1000)
