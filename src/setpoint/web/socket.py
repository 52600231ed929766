"""One tab: its WebSocket with channels, credit and limits. `feed.py` describes the messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson

from setpoint.client import Client, Unreachable
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, BadRequest, InternalError, NotFound, ServiceUnavailable, TooManyRequests
from setpoint.meta.token_bucket import TokenBucket
from setpoint.tasks import TaskRegistry, first_completed
from setpoint.web.feed import PageContext, RunConversation, RunFeed
from setpoint.web.message_pacer import MessagePacer
from setpoint.web.sessions import Session
from setpoint.web.shared_feeds import SharedFeeds, Subscription
from setpoint.web.tab_channels import TabConversation, checked_cluster, request
from setpoint.web.tab_user import TabUser
from setpoint.wire.message import RawConnection
from setpoint.wire.websocket import WebSocket

log = logging.getLogger("setpoint.web")

MAX_MESSAGE: Final = 1024 * 1024
"""Bytes of a message of a tab."""
MAX_CHANNELS: Final = 64
_MESSAGES_A_SECOND: Final = 200
_MAX_REQUESTS, _MAX_PENDING = 8, 64
"""Number of requests of a tab that are sent at once, and of those that wait; further ones are refused."""
_UPDATE_INTERVAL: Final = 0.025
"""Seconds between two passes over the feeds of a tab: what changes in between is sent once."""
_PING_INTERVAL, _SILENCE = 30.0, 100.0
"""Seconds between two pings, and seconds without any byte of the tab after which its connection is closed."""
_LARGE_PIECE: Final = 16 * 1024
"""Bytes that, received at once, are handled like a message."""
_PIECES_A_SECOND, _PIECES_AT_ONCE = 256, 1024
"""Number of such pieces that the tabs of a session may send: 4 MiB a second after 16 MiB."""
_MAX_CREDIT: Final = 10_000
_MAX_CREDIT_BYTES: Final = 1 << 30
_MAX_ID: Final = 2**32 - 1
GOING_AWAY, POLICY, WRONG_DATA, SESSION_ENDED = 1001, 1008, 1003, 4401
"""Codes with which the server closes the WebSocket."""


class TabServices(Protocol):
    """The services of the page server for its tabs."""

    clock: Clock
    feeds: SharedFeeds
    pacer: MessagePacer

    def client(self, user: TabUser, cluster: str, session: str) -> Client:
        """Return a client of a logical cluster; `session` is in its name, and empty for what sessions share."""
        ...

    def context(self, user: TabUser, cluster: str, session: str) -> PageContext: ...

    def find(self, name: str) -> tuple[RunFeed | None, RunConversation | None]:
        """Return the feed or the conversation of this name."""
        ...

    async def hello(self, session: Session, user: TabUser) -> Mapping[str, Any]:
        """Return the first message without its id and type."""
        ...

    def is_over(self, session: Session) -> bool:
        """Return whether a session has ended."""
        ...

    def touch(self, session: Session) -> None:
        """Note that a session is used."""
        ...


@dataclass(slots=True)
class _OpenConversation:
    """A conversation and its task."""

    conversation: TabConversation
    task: asyncio.Task[None] | None = field(default=None)


class _WatchedConnection:
    """A RawConnection that notes when bytes were received last, and paces large ones."""

    def __init__(self, connection: RawConnection, clock: Clock, paced: Callable[[int], Awaitable[None]]) -> None:
        """`paced` returns when so many large pieces that were received may be handled."""
        self._connection = connection
        self._clock = clock
        self._paced = paced
        self.write = connection.write
        self.drained = connection.drained
        self.close = connection.close
        self.received_at = clock.monotonic()

    async def read(self) -> bytes:
        data = await self._connection.read()
        self.received_at = self._clock.monotonic()
        if pieces := len(data) // _LARGE_PIECE:
            await self._paced(pieces)
        return data


class Tab:
    """The server's side of one tab. It ends when the tab closes, is silent for too long, or its session ends."""

    def __init__(
        self, connection: RawConnection, protocol: str, session: Session, user: TabUser, services: TabServices
    ) -> None:
        self._connection = _WatchedConnection(connection, services.clock, self._paced_pieces)
        self._socket = WebSocket(self._connection, protocol=protocol, max_message=MAX_MESSAGE, pace=self._admitted)
        self._session = session
        self._user = user
        self._services = services
        self._clock = services.clock
        self._rate = TokenBucket(services.clock, _MESSAGES_A_SECOND, _MESSAGES_A_SECOND)
        self._subscriptions: dict[int, Subscription] = {}
        self._conversations: dict[int, _OpenConversation] = {}
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._tasks = TaskRegistry()
        self._news = asyncio.Event()
        """Set when a feed may have an update to send."""
        self._granted = asyncio.Event()
        """Set when the tab grants credit for a feed."""
        self._ended = asyncio.Event()
        self._code = GOING_AWAY

    async def run(self) -> None:
        """Serve the tab until it ends."""
        session = self._session
        session.tabs.add(self._end_session)
        try:
            await self._paced()
            hello = await self._services.hello(session, self._user)
            self._send({"id": 0, "type": "hello", **hello})
            await first_completed(self._receive(), self._send_updates(), self._check_presence(), self._ended.wait())
        except OSError as error:
            log.debug("a tab is gone: %s", error)
        finally:
            session.tabs.discard(self._end_session)
            for subscription in self._subscriptions.values():
                self._services.feeds.leave(subscription)
            self._socket.close(self._code)
            await self._tasks.stop()

    def _end_session(self) -> None:
        self._end(SESSION_ENDED)

    def _end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    # -- from the tab --------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while (data := await self._socket.receive()) is not None:
            await self._admitted()
            if code := self._handle(data) if self._socket.received_text else WRONG_DATA:
                self._end(code)
                return
            await self._socket.drained()  # a tab that does not read its answers is not read either

    async def _admitted(self) -> None:
        """Return when the next message, or a frame that is none, may be handled."""
        pause = self._rate.take()
        if pause:
            await self._clock.sleep(pause)
        await self._paced()

    async def _paced_pieces(self, pieces: int) -> None:
        bucket, pause = self._session.uploads, 0.0
        if bucket is None:
            bucket = self._session.uploads = TokenBucket(self._clock, _PIECES_A_SECOND, _PIECES_AT_ONCE)
        for _ in range(pieces):
            pause = bucket.take()
        if pause:
            await self._clock.sleep(pause)
        await self._paced()

    async def _paced(self) -> None:
        await self._services.pacer.take(self._session.id)

    def _handle(self, data: bytes) -> int:
        """Handle a message; return the code with which the WebSocket is closed if it is not valid, otherwise 0."""
        try:
            message = orjson.loads(data)
            channel, op = message["id"], message["op"]
        except (ValueError, TypeError, LookupError):
            return POLICY
        handle = self._OPS.get(op) if isinstance(op, str) else None
        if handle is None or type(channel) is not int or not 0 < channel <= _MAX_ID:
            return POLICY
        return 0 if handle(self, channel, message) else POLICY

    def _open(self, channel: int, message: Mapping[str, Any]) -> bool:
        if self._is_open(channel):
            return False
        try:
            self._open_checked(channel, message)
        except ApiError as error:
            self._send_end(channel, error)
        return True

    def _open_checked(self, channel: int, message: Mapping[str, Any]) -> None:
        if len(self._subscriptions) + len(self._conversations) >= MAX_CHANNELS:
            raise TooManyRequests.of(f"a tab has at most {MAX_CHANNELS} channels", 0)
        name, args = message.get("feed"), message.get("args", {})
        if not isinstance(name, str) or not isinstance(args, dict):
            raise BadRequest("feed must be a text, and args an object")
        cluster, services, user = checked_cluster(message), self._services, self._user
        feed, conversation = services.find(name)
        if feed is not None:
            self._subscriptions[channel] = services.feeds.subscribe(
                lambda: services.context(user, cluster, ""),
                feed,
                (user, cluster, name),
                args,
                channel,
                self._news.set,
            )
        elif conversation is not None:
            opened = self._conversations[channel] = _OpenConversation(TabConversation(channel, self._write))
            context = services.context(user, cluster, self._session.id)
            opened.task = self._tasks.start(self._converse(channel, conversation(context, args, opened.conversation)))
        else:
            raise NotFound(f"this server has no feed {name[:64]!r}")

    def _credit(self, channel: int, message: Mapping[str, Any]) -> bool:
        number, size = message.get("n"), message.get("bytes")
        if type(number) is not int or not 0 < number <= _MAX_CREDIT:
            return False
        if size is not None and (type(size) is not int or not 0 < size <= _MAX_CREDIT_BYTES):
            return False
        if (subscription := self._subscriptions.get(channel)) is not None:
            subscription.grant(number, size)
            self._granted.set()
        elif (found := self._conversations.get(channel)) is not None:
            found.conversation.grant(number, size)
        return True

    def _data(self, channel: int, message: Mapping[str, Any]) -> bool:
        found = self._conversations.get(channel)
        if found is not None:
            try:
                found.conversation.deliver(message.get("data"))
            except TooManyRequests as error:
                self._close_conversation(channel)
                self._send_end(channel, error)
        return True

    def _close(self, channel: int, message: Mapping[str, Any]) -> bool:
        subscription = self._subscriptions.pop(channel, None)
        if subscription is not None:
            self._services.feeds.leave(subscription)
        self._close_conversation(channel)
        if (task := self._requests.pop(channel, None)) is not None:
            task.cancel()
        return True

    def _request(self, channel: int, message: Mapping[str, Any]) -> bool:
        if self._is_open(channel):
            return False
        if len(self._requests) >= _MAX_PENDING:
            refusal = TooManyRequests.of("too many requests of this tab wait for their answers", 1)
            answer = {"status": refusal.code, "headers": {}, "body": refusal.status()}
            self._send({"id": channel, "type": "response", **answer})
        else:
            self._requests[channel] = self._tasks.start(self._answer(channel, message))
        return True

    _OPS: Final[Mapping[str, Callable[[Tab, int, Mapping[str, Any]], bool]]] = {
        "open": _open,
        "credit": _credit,
        "say": _data,
        "close": _close,
        "request": _request,
    }

    def _is_open(self, channel: int) -> bool:
        return channel in self._subscriptions or channel in self._conversations or channel in self._requests

    def _close_conversation(self, channel: int) -> None:
        found = self._conversations.pop(channel, None)
        if found is not None and found.task is not None:
            found.task.cancel()

    # -- to the tab ----------------------------------------------------------------------------------------------------

    async def _send_updates(self) -> None:
        """Send the updates of feeds, each in turn, no faster than the connection takes them."""
        while True:
            await self._news.wait()
            self._news.clear()
            sent = behind = await self._send_some(tuple(self._subscriptions.items()))
            while behind := [each for each in behind if each[1].is_behind]:
                behind = await self._send_some(behind)
            if sent:
                await self._pause()

    async def _pause(self) -> None:
        """Let changes of feeds accumulate. What a feed had no credit for is sent as soon as there is some."""
        if any(each.is_behind for each in self._subscriptions.values()):
            self._granted.clear()
            await first_completed(self._clock.sleep(_UPDATE_INTERVAL), self._granted.wait())
        else:
            await self._clock.sleep(_UPDATE_INTERVAL)

    async def _send_some(self, channels: Sequence[tuple[int, Subscription]]) -> list[tuple[int, Subscription]]:
        """Send one message of every feed that has one; return those feeds."""
        sent = []
        for channel, subscription in channels:
            if self._subscriptions.get(channel) is not subscription:
                continue  # closed meanwhile
            message = subscription.next_message()
            if message is not None:
                sent.append((channel, subscription))
                if subscription.is_over:
                    del self._subscriptions[channel]
                    self._services.feeds.leave(subscription)
                await self._write(message, True)
        return sent

    async def _converse(self, channel: int, work: Any) -> None:
        error: ApiError | None = None
        try:
            await work
        except ApiError as refused:
            error = refused
        except Unreachable as failure:
            error = ServiceUnavailable(str(failure))
        except ConnectionResetError:
            self._end(GOING_AWAY)
        except Exception as failure:
            log.exception("a conversation failed")
            error = InternalError.of(str(failure) or type(failure).__name__)
        if self._conversations.pop(channel, None) is not None:
            self._send_end(channel, error)

    async def _answer(self, channel: int, message: Mapping[str, Any]) -> None:
        async with self._slots:
            try:
                client = self._services.client(self._user, checked_cluster(message), self._session.id)
                answer = await request(client, self._clock, message)
            except ApiError as error:
                answer = {"status": error.code, "headers": {}, "body": error.status()}
            try:
                if self._requests.pop(channel, None) is not None:
                    await self._write(orjson.dumps({"id": channel, "type": "response", **answer}), True)
            except OSError:
                self._end(GOING_AWAY)

    async def _check_presence(self) -> None:
        """Keep the session in use while the tab is there; return when the session or the connection is over."""
        while True:
            await self._clock.sleep(_PING_INTERVAL)
            if self._services.is_over(self._session):
                self._end(SESSION_ENDED)
                return
            if self._clock.monotonic() - self._connection.received_at > _SILENCE:
                return
            self._services.touch(self._session)
            self._socket.ping()

    def _send_end(self, channel: int, error: ApiError | None) -> None:
        message: dict[str, Any] = {"id": channel, "type": "end"}
        if error is not None:
            message["error"] = error.status()
        self._send(message)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._socket.send(orjson.dumps(message), text=True)

    async def _write(self, message: bytes, text: bool) -> None:
        """Send a message, and return when the connection can take more. Raises OSError if the tab is gone."""
        self._socket.send(message, text=text)
        await self._socket.drained()
        await asyncio.sleep(0)  # many messages may be ready: let other tasks run
