"""The page server: files, sessions, and the WebSocket of each tab.

Everything that it works with is injected: the clock, randomness, the clients, and conversations that higher layers add.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from setpoint import __version__
from setpoint.client import Client
from setpoint.client.past import clock_of
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, BadRequest, Forbidden, TooManyRequests, Unauthorized
from setpoint.meta.times import format_time
from setpoint.meta.token_bucket import TokenBucket
from setpoint.web.catalog import conversation_names, feed_names, find_conversation, find_feed
from setpoint.web.features import find_features
from setpoint.web.feed import PageContext, RunConversation, RunFeed
from setpoint.web.message_pacer import MessagePacer
from setpoint.web.request_checks import RequestChecks
from setpoint.web.sessions import MAX_TABS, PageUser, Session, Sessions
from setpoint.web.shared_feeds import SharedFeeds
from setpoint.web.socket import Tab
from setpoint.web.static_files import STATIC, StaticFiles
from setpoint.web.tab_user import FEATURE, TabUser, seen_as
from setpoint.wire.encoding import plain_error
from setpoint.wire.message import Answer, RawConnection, Request, Response, UpgradeResponse
from setpoint.wire.websocket import HandshakeError, accept_handshake, is_websocket

log = logging.getLogger("setpoint.web")

PROTOCOL: Final = "setpoint.page.v1"
AGENT: Final = "setpoint-page"
_KEY: Final = "key."
_SESSION_PATH, _SOCKET_PATH = "/page/v1/session", "/page/v1/socket"
_MAX_CLIENTS: Final = 64
"""Number of clients that are kept, one for each user and logical cluster."""
_FEATURES_FOR: Final = 60.0
"""Seconds for which the features of the server are not asked for again."""
_OPENINGS_A_SECOND: Final = 4
_OPENINGS_AT_ONCE: Final = 4 * MAX_TABS
"""Number of tabs of a session that are opened in a moment, as when all reconnect after a restart of the server."""
_OVER: Final = "This session has ended. `setpoint page` prints a link for a new one."
_NONCE_BYTES: Final = 16
_JSON: Final = ("Content-Type", "application/json")

ClientFactory = Callable[[PageUser, str], Client]
"""Returns a client with the rights of a user, for a logical cluster with this path prefix. The objects that it returns
belong to the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageExtensions:
    """The additions of higher layers, such as the terminal."""

    feeds: Mapping[str, RunFeed] = field(default_factory=dict)
    """Further feeds by name."""
    conversations: Mapping[str, RunConversation] = field(default_factory=dict)
    """Further conversations by name."""
    features: Sequence[str] = ()
    """Names of features that do not depend on the API server."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Values for feeds and conversations, by name; see `PageContext.parts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """The dependencies of a page server."""

    clock: Clock
    entropy: Callable[[int], bytes]
    """Returns so many unguessable bytes."""
    client: ClientFactory
    hosts: Sequence[str]
    """The exact values that the Host header may have, such as `127.0.0.1:6444`."""
    tls: bool = False
    files: Path = STATIC
    """The directory with the built page."""
    extensions: PageExtensions = field(default_factory=PageExtensions)
    of_class: bool = False
    """Whether browsers without a session may join a class here."""
    can_see_as: bool = True
    """Whether a tab may act as another user, if the API server allows it to the session's user."""


class PageServer:
    """Answers the requests of browsers, and serves their tabs until `stop`."""

    def __init__(self, options: PageOptions, sessions: Sessions) -> None:
        self.clock = options.clock
        self.feeds = SharedFeeds()
        self.pacer = MessagePacer()
        self._options = options
        self._sessions = sessions
        self._checks = RequestChecks(options.hosts, tls=options.tls)
        self._files = StaticFiles(
            options.files, lambda: b64encode(options.entropy(_NONCE_BYTES)).decode(), of_class=options.of_class
        )
        self._clients: OrderedDict[tuple[TabUser, str], Client] = OrderedDict()
        """The clients by user and logical cluster, the least recently used first."""
        self._features: dict[TabUser, tuple[float, list[str]]] = {}
        """The features of the server for each user, and when they were asked for."""

    async def stop(self) -> None:
        """End all feeds. The HTTP server has ended the tabs before."""
        await self.feeds.stop()
        self._sessions.save()

    async def handle(self, request: Request) -> Answer:
        """Answer a request of a browser. It is the handler of an HTTP server."""
        checks = self._checks
        if not checks.is_for_us(request):
            return checks.secured(Response(421))
        try:
            if request.path == _SOCKET_PATH:
                return await self._socket(request)
            if request.path == _SESSION_PATH:
                return checks.secured(self._session(request))
        except ApiError as error:
            return checks.secured(_refusal(error))
        if request.method not in ("GET", "HEAD"):
            return checks.secured(Response(405, b"", [("Allow", "GET, HEAD")]))
        if not checks.may_read_files(request):
            return checks.secured(Response(403))
        answer, nonce = self._files.answer(request)
        return checks.secured(answer, nonce)

    def unexpected(self, request: Request | None, status: int, text: str) -> Response:
        """Return the response for a request that the HTTP server has to answer itself."""
        return self._checks.secured(plain_error(request, status, text))

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _session(self, request: Request) -> Response:
        method = request.method
        if method == "GET":
            if not self._checks.may_read_session(request):
                raise Forbidden("this request is not from the page")
            return _json(_described(self._authenticated(request)))
        if not self._checks.is_from_the_page(request):
            raise Forbidden("this request is not from the page")
        if method == "POST":
            key, session = self._sessions.redeem(_code(request))
            return _json({"key": key, **_described(session)}, 201)
        if method == "DELETE":
            self._sessions.end(self._authenticated(request))
            return Response(204)
        return Response(405, b"", [("Allow", "GET, POST, DELETE")])

    def _authenticated(self, request: Request) -> Session:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        return self._find(key if scheme == "Bearer" else "")

    def _find(self, key: str) -> Session:
        session = self._sessions.find(key) if key else None
        if session is None:
            raise Unauthorized(_OVER)
        return session

    # -- tabs ----------------------------------------------------------------------------------------------------------

    async def _socket(self, request: Request) -> Answer:
        if not self._checks.is_from_the_page(request):
            raise Forbidden("this request is not from the page")
        if request.method != "GET" or not is_websocket(request.headers):
            raise BadRequest("this path is for WebSockets")
        offered = [each.strip() for each in request.headers.get("sec-websocket-protocol", "").split(",", 8)]
        keys = [each.removeprefix(_KEY) for each in offered if each.startswith(_KEY)]
        session = self._find(keys[0] if len(keys) == 1 else "")
        await self.pacer.take(session.id)
        if self.is_over(session):
            raise Unauthorized(_OVER)
        if len(session.tabs) >= MAX_TABS:
            raise TooManyRequests.of(f"A session has at most {MAX_TABS} tabs. Close one.", 0)
        if session.openings is None:
            session.openings = TokenBucket(self.clock, _OPENINGS_A_SECOND, _OPENINGS_AT_ONCE)
        if not session.openings.try_take():
            raise TooManyRequests.of("Tabs of this session are opened too often. Wait a moment.", 1)
        other = seen_as(request.query)
        if other is not None and not self._options.can_see_as:
            raise Forbidden("this page does not act as other users")
        user = TabUser(session.user, other)
        try:
            protocol, headers = accept_handshake(request.headers, (PROTOCOL,))
        except HandshakeError as error:
            raise BadRequest(error.text) from None

        async def run(connection: RawConnection) -> None:
            await Tab(connection, protocol, session, user, self).run()

        return UpgradeResponse(headers, run)

    # TabServices

    def client(self, user: TabUser, cluster: str, session: str) -> Client:
        where = (user, cluster)
        found = self._clients.get(where)
        if found is None:
            found = self._clients[where] = user.act(self._options.client(user.user, cluster))
            if len(self._clients) > _MAX_CLIENTS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(where)
        agent = f"{AGENT}/v{__version__}"
        return found.named(f"{agent} (session {session})" if session else agent)

    def context(self, user: TabUser, cluster: str, session: str) -> PageContext:
        client = self.client(user, cluster, session)
        clock = clock_of(self.clock, client.sender.transport) if cluster else self.clock
        return PageContext(client, clock, cluster, user.user.name, session, self._options.extensions.parts)

    def find(self, name: str) -> tuple[RunFeed | None, RunConversation | None]:
        more = self._options.extensions
        return more.feeds.get(name) or find_feed(name), more.conversations.get(name) or find_conversation(name)

    async def hello(self, session: Session, user: TabUser) -> Mapping[str, Any]:
        more = self._options.extensions
        names = dict.fromkeys((*feed_names(), *conversation_names(), *more.feeds, *more.conversations))
        features = [*more.features, *await self._server_features(user)]
        if self._options.can_see_as:
            features.append(FEATURE)
        return {"user": session.user.name, "version": __version__, "features": features, "feeds": [*names]}

    async def _server_features(self, user: TabUser) -> list[str]:
        now = self.clock.monotonic()
        at, found = self._features.get(user, (float("-inf"), []))
        if now - at > _FEATURES_FOR:
            try:
                client = self.client(user, "", "")
            except Forbidden:  # every request of the tab is answered with the reason
                return []
            found = await find_features(client, self.clock)
            if len(self._features) >= _MAX_CLIENTS:
                self._features.clear()
            self._features[user] = (now, found)
        return found

    def is_over(self, session: Session) -> bool:
        return self._sessions.is_over(session)

    def touch(self, session: Session) -> None:
        self._sessions.touch(session)


def _code(request: Request) -> str:
    try:
        code = orjson.loads(request.body)["code"]
    except (ValueError, LookupError, TypeError):
        code = None
    if not isinstance(code, str) or len(code) > 128:
        raise BadRequest('the body must be {"code": "..."}')
    return code


def _described(session: Session) -> dict[str, Any]:
    return {"user": session.user.name, "session": session.id, "expires": format_time(session.expires)}


def _json(value: Any, status: int = 200) -> Response:
    return Response(status, orjson.dumps(value), [_JSON])


def _refusal(error: ApiError) -> Response:
    retry = [("Retry-After", str(error.retry_after))] if error.retry_after else []
    return Response(error.code, orjson.dumps(error.status()), [_JSON, *retry])
