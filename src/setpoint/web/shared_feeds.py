"""Runs of feeds, which tabs share, and the state that each tab has received of them.

There is one run for each user as whom tabs act, logical cluster, feed and arguments, from its first subscriber to its
last. An item is encoded once for all tabs. A tab that reads slowly holds the keys that it must still receive, not their
content.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import orjson

from setpoint.client import Unreachable
from setpoint.meta.errors import ApiError, BadRequest, InternalError, RequestTooLarge, ServiceUnavailable
from setpoint.tasks import TaskRegistry
from setpoint.web.credit import Credit
from setpoint.web.feed import FEED_LOG_LENGTH, Args, Item, PageContext, RunFeed
from setpoint.web.tab_user import TabUser

log = logging.getLogger("setpoint.web")

MAX_UPDATE: Final = 256 * 1024
"""Bytes after which an update is sent, and the rest of the state in the next one."""
_MAX_LOG_BYTES: Final = 8 * 1024 * 1024
_MAX_STATE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all items of a run, above which it ends."""
_MAX_ARGS: Final = 16 * 1024

RunKey = tuple[TabUser, str, str, bytes]
"""Identity of the tab, path of the logical cluster, name of the feed, and arguments."""


class Subscription:
    """The part of a run that one channel of a tab has not received yet."""

    def __init__(self, run: FeedRun, channel: int, wake: Callable[[], None]) -> None:
        """`wake` is called when there may be an update to send."""
        self.run = run
        self._head = b'{"id":%d,"type":"' % channel
        self._wake = wake
        self._credit = Credit()
        self._dirty: dict[str, None] = dict.fromkeys(run.items)
        """Keys whose items have changed since they were sent, in the order of the changes. It contains keys of current
        items, and keys of removed items that the tab has received; so it is never larger than both states."""
        self._sent: set[str] = set()
        """Keys of the items that the tab has."""
        self._next_entry = run.first_entry
        """The number of the first log entry that was not sent."""
        self._is_synced = False
        """Whether the tab knows that the state is complete."""
        self.is_behind = False
        """Whether the last message did not contain everything that there was to send."""
        self.is_over = False
        """Whether the end was sent."""

    def grant(self, messages: int, size: int | None = None) -> None:
        """Allow so many more messages and bytes."""
        self._credit.grant(messages, size)
        self._wake()

    def changed(self, key: str) -> None:
        if key in self.run.items or key in self._sent:
            # To the end: an item that changes often must not keep others back.
            self._dirty.pop(key, None)
            self._dirty[key] = None
        else:
            self._dirty.pop(key, None)
        self._wake()

    def wake(self) -> None:
        self._wake()

    def next_message(self) -> bytes | None:
        """Return the next message; None if there is nothing to send, or no credit."""
        run = self.run
        if self.is_over or not self._credit:
            return None
        synced = run.is_synced and not self._is_synced
        if not (self._dirty or self._next_entry < run.next_entry or synced):
            return self._end() if run.is_ended else None
        message = self._update()
        self._credit.spend(len(message))
        return message

    def _update(self) -> bytes:
        run, left = self.run, min(MAX_UPDATE, self._credit.left)
        items: list[bytes] = []
        removed: list[str] = []
        while self._dirty and left > 0:
            key = next(iter(self._dirty))
            del self._dirty[key]
            item = run.items.get(key)
            if item is not None:
                name = orjson.dumps(key)
                items.append(b"%b:%b" % (name, item))
                left -= len(name) + len(item)
                self._sent.add(key)
            elif key in self._sent:
                removed.append(key)
                left -= len(key)
                self._sent.discard(key)
        skipped = max(0, run.first_entry - self._next_entry)
        self._next_entry = max(self._next_entry, run.first_entry)
        entries: list[bytes] = []
        for entry in islice(run.entries, self._next_entry - run.first_entry, None):
            if left <= 0:
                break
            entries.append(entry)
            left -= len(entry)
        self._next_entry += len(entries)
        complete = not self._dirty and self._next_entry == run.next_entry
        self._is_synced = run.is_synced and (complete or self._is_synced)
        self.is_behind = not complete or run.is_ended
        return b'%bupdate","set":{%b},"removed":%b,"log":[%b],"skipped":%d,"synced":%b}' % (
            self._head,
            b",".join(items),
            orjson.dumps(removed),
            b",".join(entries),
            skipped,
            b"true" if self._is_synced else b"false",
        )

    def _end(self) -> bytes:
        self.is_over, self.is_behind = True, False
        error = self.run.error
        if error is None:
            return self._head + b'end"}'
        return b'%bend","error":%b}' % (self._head, orjson.dumps(error.status()))


class FeedRun:
    """A FeedOutput: the present state of a feed, encoded, and its subscribers."""

    def __init__(self) -> None:
        self.items: dict[str, bytes] = {}
        """The items as JSON, by key."""
        self.entries: deque[bytes] = deque()
        """The latest log entries as JSON."""
        self.first_entry = 0
        """The number of the oldest log entry that is kept."""
        self.is_synced = False
        self.is_ended = False
        self.error: ApiError | None = None
        """Why the run ended; None if it ended well, or has not ended."""
        self.subscriptions: set[Subscription] = set()
        self._state_bytes = self._log_bytes = 0

    @property
    def next_entry(self) -> int:
        """The number of the next log entry."""
        return self.first_entry + len(self.entries)

    # FeedOutput

    def set(self, key: str, item: Item) -> None:
        encoded, old = orjson.dumps(item), self.items.get(key)
        if encoded == old:
            return
        self._state_bytes += len(encoded) + len(key) if old is None else len(encoded) - len(old)
        if self._state_bytes > _MAX_STATE_BYTES:
            raise RequestTooLarge(f"this view has more than {_MAX_STATE_BYTES >> 20} MiB")
        self.items[key] = encoded
        for subscription in self.subscriptions:
            subscription.changed(key)

    def remove(self, key: str) -> None:
        old = self.items.pop(key, None)
        if old is not None:
            self._state_bytes -= len(old) + len(key)
            for subscription in self.subscriptions:
                subscription.changed(key)

    def log(self, entry: Item) -> None:
        encoded = orjson.dumps(entry)
        self.entries.append(encoded)
        self._log_bytes += len(encoded)
        while len(self.entries) > FEED_LOG_LENGTH or (self._log_bytes > _MAX_LOG_BYTES and len(self.entries) > 1):
            self._log_bytes -= len(self.entries.popleft())
            self.first_entry += 1
        self._wake()

    def synced(self) -> None:
        if not self.is_synced:
            self.is_synced = True
            self._wake()

    # Called by `SharedFeeds`.

    def end(self, error: ApiError | None) -> None:
        self.is_ended, self.error = True, error
        self._wake()

    def _wake(self) -> None:
        for subscription in self.subscriptions:
            subscription.wake()


class SharedFeeds:
    """The runs of one page server."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, tuple[FeedRun, asyncio.Task[None]]] = {}
        self._keys: dict[FeedRun, RunKey] = {}
        self._tasks = TaskRegistry()

    def __len__(self) -> int:
        """Return the number of feeds that run."""
        return len(self._tasks)

    def subscribe(
        self,
        context: Callable[[], PageContext],
        start: RunFeed,
        key: tuple[TabUser, str, str],
        args: Args,
        channel: int,
        wake: Callable[[], None],
    ) -> Subscription:
        """Return a subscription to a feed, which runs from now on if it does not run yet. `key` is the identity of
        the tab, the logical cluster and the name of the feed. Raises BadRequest."""
        encoded = orjson.dumps(args, option=orjson.OPT_SORT_KEYS)
        if len(encoded) > _MAX_ARGS:
            raise BadRequest(f"the arguments of a feed have at most {_MAX_ARGS} bytes")
        full: RunKey = (*key, encoded)
        found = self._runs.get(full)
        if found is None:
            run = FeedRun()
            task = self._tasks.start(self._run(run, context, start, args))
            self._runs[full], self._keys[run] = (run, task), full
        else:
            run = found[0]
        subscription = Subscription(run, channel, wake)
        run.subscriptions.add(subscription)
        subscription.wake()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """End a subscription; the run of the last one is cancelled."""
        run = subscription.run
        run.subscriptions.discard(subscription)
        if not run.subscriptions:
            self._forget(run)

    async def stop(self) -> None:
        """Cancel all runs, because the server stops."""
        await self._tasks.stop()

    async def _run(
        self, run: FeedRun, context: Callable[[], PageContext], start: RunFeed, args: Mapping[str, Any]
    ) -> None:
        try:
            await start(context(), args, run)
            error = None
        except ApiError as refused:
            error = refused
        except Unreachable as failure:
            error = ServiceUnavailable(str(failure))
        except Exception as failure:
            log.exception("a feed failed")
            error = InternalError.of(str(failure) or type(failure).__name__)
        # A later subscriber starts a new run; those of this one still receive its state and its end.
        self._detach(run)
        run.end(error)

    def _detach(self, run: FeedRun) -> asyncio.Task[None] | None:
        key = self._keys.pop(run, None)
        return self._runs.pop(key)[1] if key is not None else None

    def _forget(self, run: FeedRun) -> None:
        task = self._detach(run)
        if task is not None:
            task.cancel()
