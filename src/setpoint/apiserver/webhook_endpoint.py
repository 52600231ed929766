"""Webhooks that an administrator names in a kubeconfig: where they are, what they are shown, how often tried."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from setpoint.apiserver.far_server import FarServer, FarServerProblem, FarServers
from setpoint.apiserver.http.message import Peer, Request, Response
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.goformat import quote

log = logging.getLogger("setpoint.apiserver")

ATTEMPTS = 5
_FACTOR, _JITTER = 1.5, 0.2
_TOKEN_KEPT_FOR = 50.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    server: FarServer
    url: str
    path: str = "/"
    query: str = ""
    authorization: str = ""
    """The header, whole; it is never shown."""
    token_file: Path | None = None
    """Where the token in that header was found: it may be another one by now."""

    async def post(
        self, servers: FarServers, body: bytes, timeout: float, query: str = "", authorization: str = ""
    ) -> Response:
        """`query`: besides the one of the address; `authorization`: instead of ours. Raises FarServerProblem, whose
        text names the address."""
        headers = {
            "accept": "application/json, */*", "content-type": "application/json", "user-agent": "kube-apiserver",
        }  # fmt: skip
        if authorization or self.authorization:
            headers["authorization"] = authorization or self.authorization
        query = "&".join(filter(None, (self.query, query)))
        try:
            return await servers.post(self.server, Request("POST", self.path, query, headers, body, Peer()), timeout)
        except FarServerProblem as problem:
            shown = f"{self.url}?{query}" if query else self.url
            raise FarServerProblem(f"Post {quote(shown)}: {problem}") from None


def token_in(file: Path) -> str:
    """Raises OSError, ValueError."""
    return file.read_text(encoding="utf-8").strip()


class RenewedToken:
    """The header of an endpoint whose token is in a file, which is looked at again and again."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._authorization = endpoint.authorization
        self._good_until = clock.monotonic() + _TOKEN_KEPT_FOR

    def header(self) -> str:
        file = self._endpoint.token_file
        if file is not None and self._clock.monotonic() >= self._good_until:
            self._renew(file)
        return self._authorization

    def refused(self) -> None:
        """It was not good enough: the next one looks into the file."""
        self._good_until = self._clock.monotonic()

    def _renew(self, file: Path) -> None:
        try:
            token = token_in(file)
        except (OSError, ValueError) as error:
            log.error("Unable to rotate token: failed to read token file %s: %s", quote(str(file)), error)
            return
        if not token:
            log.error("Unable to rotate token: read empty token from file %s", quote(str(file)))
            return
        self._authorization = f"Bearer {token}"
        self._good_until = self._clock.monotonic() + _TOKEN_KEPT_FOR


def pauses(first: float, ids: Ids) -> Iterator[float]:
    """After each attempt but the last: ever longer, and not the same for all who wait."""
    for attempt in range(ATTEMPTS - 1):
        yield first * _FACTOR**attempt * (1 + _JITTER * ids.below(1000) / 1000)
