"""The interface between the socket of a tab and what it shows: feeds and conversations.

A *feed* is a state that changes: items by key, and a log of entries. Tabs that act as the same user and open the same
feed with the same arguments share one run of it. The socket keeps the present state, sends it to a tab that joins, and
then sends differences; a tab without credit gets the latest state of each item when it has credit again.

A *conversation* belongs to one tab: both sides send messages, and the sender waits for credit. A terminal is one.

Messages between tab and server are JSON text frames, except the data of `Conversation.send_bytes`, which are binary
frames that begin with the id of the channel (4 bytes, big-endian). The tab chooses the ids; it grants credit for a
number of messages, and of bytes if it names one.

    tab -> server
    {"id": 7, "op": "open", "feed": "objects", "cluster": "", "args": {...}}    a feed or a conversation
    {"id": 7, "op": "credit", "n": 64, "bytes": 131072}
    {"id": 7, "op": "say", "data": ...}                                         to a conversation
    {"id": 7, "op": "close"}
    {"id": 9, "op": "request", "cluster": "", "method": "GET", "path": "/api/v1/pods", "query": "limit=5",
     "body": ..., "accept": "...", "contentType": "..."}                        one request to the API server

    server -> tab
    {"id": 0, "type": "hello", "user": "...", "version": "...", "features": [...], "feeds": [...]}
    {"id": 7, "type": "update", "set": {key: item}, "removed": [key], "log": [entry], "skipped": 0, "synced": true}
    {"id": 7, "type": "message", "data": ...}                                   of a conversation
    {"id": 7, "type": "end", "error": {...}}                                    error: a Status; absent if it ended well
    {"id": 9, "type": "response", "status": 200, "headers": {...}, "body": ...}

`cluster` is the path prefix of a logical cluster: empty for the present state, `/at/<revision>` for a past one,
`/forks/<name>` for a fork. A tab that acts as another user names them in the query of the WebSocket:
`?as=jane&as-group=dev&as-group=qa`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from setpoint.client import Client
from setpoint.meta.clock import Clock
from setpoint.meta.errors import BadRequest

Args = Mapping[str, Any]
"""The arguments with which a tab opens a feed or a conversation: a JSON object, not yet checked."""
Item = Mapping[str, Any]
"""A JSON object. It must not be changed after it was handed to an output."""


@dataclass(frozen=True, slots=True)
class PageContext:
    """The dependencies of a feed or a conversation."""

    client: Client
    """A client of the logical cluster with the rights of `acting_user`. Objects belong to the caller."""
    clock: Clock
    """Its wall-clock time is that of the past moment, if the logical cluster is one."""
    cluster: str
    """The path prefix of the logical cluster; empty for the present state of the cluster."""
    user: str
    """The name of the session's user, whose files and progress are used."""
    session: str
    """Identifies the session of a conversation; empty in a feed, which all sessions of the user share."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Values that the composition root provides, by name, such as the files of the terminal."""

    @property
    def acting_user(self) -> str:
        """The name of the user as whom `client` acts: the session's, or another one whom that user impersonates."""
        other = self.client.sender.impersonate
        return other.user if other is not None else self.user


class FeedOutput(Protocol):
    """Receives the state of a feed. No method waits: what tabs cannot receive in time is coalesced."""

    def set(self, key: str, item: Item) -> None:
        """Add or replace an item."""
        ...

    def remove(self, key: str) -> None:
        """Remove an item; a key without an item is ignored."""
        ...

    def log(self, entry: Item) -> None:
        """Append an entry. The latest `FEED_LOG_LENGTH` are kept for tabs that join."""
        ...

    def synced(self) -> None:
        """Note that the state is complete: a tab may distinguish "nothing there" from "not loaded yet"."""
        ...


class Conversation(Protocol):
    """Both directions of a conversation with one tab."""

    async def send(self, data: Any) -> None:
        """Send a JSON value, when the tab has granted credit."""
        ...

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as a binary frame, when the tab has granted credit."""
        ...

    async def receive(self) -> Any:
        """Return the next value that the tab has sent. The run is cancelled when the tab closes the conversation."""
        ...


RunFeed = Callable[[PageContext, Args, FeedOutput], Awaitable[None]]
"""Produces a feed until it is cancelled, because no tab watches any more, or returns, because there is nothing more. An
ApiError ends it with its Status. Raises BadRequest at once for invalid arguments."""

RunConversation = Callable[[PageContext, Args, Conversation], Awaitable[None]]
"""Conducts a conversation until it is cancelled or returns. The same rules apply as to `RunFeed`."""

FEED_LOG_LENGTH = 2_000


def text_argument(args: Args, name: str, default: str | None = None, *, most: int = 512) -> str:
    """Return a text argument. Raises BadRequest if it is missing and has no default, not a text, or too long."""
    value = args.get(name, default)
    if not isinstance(value, str) or len(value) > most:
        raise BadRequest(f"argument {name} must be a text of at most {most} characters")
    return value
