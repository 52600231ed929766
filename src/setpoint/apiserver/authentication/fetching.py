"""GET of a document of another server, over TLS and without redirects."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from setpoint.apiserver.far_server import FarServer, FarServerProblem, FarServers
from setpoint.apiserver.http.message import Peer, Request

_TIMEOUT = 30.0


class FetchProblem(Exception):
    """There is no answer; the text says why."""


class Document(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str]
    """Lower-case names."""

    @property
    def phrase(self) -> str:
        """The status as it is written in answers."""
        try:
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return str(self.status)

    @property
    def text(self) -> str:
        return self.body[:2048].decode("utf-8", "replace")


class Fetcher:
    def __init__(self, servers: FarServers, authority: bytes = b"") -> None:
        """`authority`: PEM of those who may have signed the other's certificate; else those that the machine trusts."""
        self._servers = servers
        self._authority = authority

    async def get(self, url: str, token: str = "") -> Document:
        """Raises FetchProblem."""
        try:
            place = urlsplit(url)
            host, port = place.hostname or "", place.port or 443
        except ValueError as error:
            raise FetchProblem(f'parse "{url}": {error}') from None
        if place.scheme != "https" or not host:
            raise FetchProblem(f'Get "{url}": only https is spoken')
        headers = {"accept": "application/json, */*", "user-agent": "kube-apiserver"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        server = FarServer(host, port, authority=self._authority, shown=place.netloc.rpartition("@")[2])
        request = Request("GET", place.path or "/", place.query, headers, b"", Peer())
        try:
            response = await self._servers.post(server, request, _TIMEOUT)
        except FarServerProblem as problem:
            raise FetchProblem(f'Get "{url}": {problem}') from None
        headers = {name.lower(): value for name, value in response.headers}
        return Document(response.status, response.whole_body, headers)
