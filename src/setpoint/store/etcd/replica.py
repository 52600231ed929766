"""A replica of etcd's keyspace in memory, which follows one watch.

Since every revision of etcd is an event of the watch, also those of foreign keys, the replica always knows how far it
has come. When the watch ends it starts again, on another endpoint, after the last revision that was applied. If that
was compacted meanwhile, the state is read again and the differences are published as one transaction.

Some problems end no watch: a member that is paused or cut off from the others, an alarm, a withdrawn permission. The
replica therefore asks every CHECK_INTERVAL seconds for etcd's revision, which must become visible soon, and for the
status of the member. `unavailable` says what is wrong until a check succeeds.

After a failure, calls and the watch return to the first endpoint when its member answers again.

The replica drops the history that any client of etcd announces to compact.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from setpoint.store.etcd import messages
from setpoint.store.etcd.client import EtcdCompacted
from setpoint.store.etcd.keyspace import COMPACTED, NUMBER_LENGTH, OFFSET, Keyspace, OffsetChanged
from setpoint.store.etcd.member_status import alarm
from setpoint.store.history import History
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import Event, StoreError, Unavailable
from setpoint.tasks import TaskRegistry, child_tasks

log = logging.getLogger("setpoint.store")

RECONNECT_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
CHECK_INTERVAL = 2.0
RETURN_PAUSE, _MAX_RETURN_PAUSE = 5.0, 60.0
"""Seconds between two attempts to return to the first endpoint, and the most after it has failed again and again."""
_DROP_BATCH = 1_000
"""Number of events that are dropped in one iteration of the event loop."""
MAX_LAG = 5.0
"""Seconds after which the watch is moved to another endpoint if it has not delivered a revision that exists."""


class _WatchEnd(NamedTuple):
    reason: str
    compacted: int
    """The revision up to which history was compacted, if the watch wanted older events; else 0."""


_MOVES = _WatchEnd("the watch moves to another endpoint", 0)


class Replica(InMemoryReads):
    def __init__(self, keyspace: Keyspace, history: History) -> None:
        super().__init__(history)
        self._keyspace = keyspace
        self._tasks = TaskRegistry()
        self._unreachable: str | None = None
        """Why there is no watch at the moment; None while there is one."""
        self._problem: str | None = None
        """The problem that the last check or a later call met; None if there is none."""
        self._size = 0
        self._compacted = keyspace.beginning
        """The revision up to which etcd has no history of this store. What is older than the replica, but not than
        this, can be read from etcd."""
        self._end_watch: Callable[[], None] = lambda: None
        self._fragments: list[Any] = []
        self._watch_end: asyncio.Future[_WatchEnd] = asyncio.get_running_loop().create_future()
        self._committed: dict[bytes, int] = {}
        """The revisions of own transactions under way, by number, as the watch reports them; 0 until then."""

    @property
    def unavailable(self) -> str | None:
        return None if self._failure is not None else self._unreachable or self._problem

    def _note(self, problem: str | None) -> None:
        """Remember what is wrong, or that nothing is."""
        if problem is not None and self._problem is None:
            log.warning("%s", problem)
        elif problem is None and self._problem is not None:
            log.info("etcd is available again")
        self._problem = problem

    async def _follow(self) -> None:
        """Start the watch after the revision of the replica. Raises Unavailable."""
        loop = asyncio.get_running_loop()
        created: asyncio.Future[None] = loop.create_future()
        ended: asyncio.Future[_WatchEnd] = loop.create_future()
        self._fragments = []

        def end(reason: str, compacted: int = 0) -> None:
            if not created.done():
                created.set_exception(Unavailable(f"etcd cannot be watched: {reason}"))
            if not ended.done():
                ended.set_result(_WatchEnd(reason, compacted))

        def on_response(response: Any) -> None:
            if ended.done():
                return
            if response.canceled:
                compacted = response.compact_revision and response.compact_revision + self._keyspace.offset
                end(response.cancel_reason or "etcd cancelled the watch", compacted)
            elif response.created:
                if not created.done():
                    created.set_result(None)
            else:
                try:
                    self._on_response(response)
                except OffsetChanged as error:
                    self._fail(str(error))
                    end(str(error))
                except Exception as error:  # the watch starts again after the last revision that could be applied
                    log.exception("a response of etcd's watch cannot be applied")
                    end(f"a response cannot be applied: {error}")

        self._end_watch = await self._keyspace.watch(self._history.revision, on_response, end)
        await created
        self._watch_end = ended
        self._unreachable = None

    async def _reaches(self, revision: int) -> bool:
        """Return True when the revision is visible, or False if the watch ended before."""
        async with child_tasks(self._wait_visible(revision)) as (visible,):
            await asyncio.wait((visible, self._watch_end), return_when=asyncio.FIRST_COMPLETED)
            return visible.done()

    async def _keep_following(self) -> None:
        """Start the watch again whenever it ends, until the store is closed."""
        while True:
            end = await self._watch_end
            self._end_watch()
            if self._failure is not None:
                return
            if end is not _MOVES:
                self._unreachable = f"the watch of etcd ended: {end.reason}"
                log.warning("%s; it starts again after revision %d", self._unreachable, self._history.revision)
            attempt, following = 0, False
            while not following:
                if self._unreachable is not None:
                    await asyncio.sleep(RECONNECT_PAUSES[min(attempt, len(RECONNECT_PAUSES) - 1)])
                    attempt += 1
                self._keyspace.client.drop_watch()
                try:
                    if end.compacted:
                        await self._reload()
                    await self._follow()
                    following = True
                except OffsetChanged as error:
                    self._fail(str(error))
                    return
                except StoreError as error:
                    self._unreachable = str(error)

    async def _keep_returning(self) -> None:
        """Return to the first endpoint after each failure, until the store fails or is closed.

        The pause grows while that fails, and if the endpoint fails again at once."""
        client, pause = self._keyspace.client, RETURN_PAUSE
        while self._failure is None:
            await asyncio.sleep(pause)
            if client.uses_first:
                pause = RETURN_PAUSE
                continue
            pause = min(2 * pause, _MAX_RETURN_PAUSE)
            if await client.return_to_first() and self._unreachable is None and not self._watch_end.done():
                self._watch_end.set_result(_MOVES)

    async def _keep_checking(self) -> None:
        """Check etcd until the store fails or is closed."""
        while self._failure is None:
            await asyncio.sleep(CHECK_INTERVAL)
            self._note(await self._find_problem())

    async def _find_problem(self) -> str | None:
        client = self._keyspace.client
        try:
            revision, status = await self._keyspace.revision(), await client.status()
        except StoreError as error:
            return str(error)
        try:
            await self._wait_visible(revision, MAX_LAG)
        except TimeoutError:
            if self._unreachable is None:
                client.drop_watch()
            return f"the watch has not delivered revision {revision} within {MAX_LAG:g} s"
        except StoreError:
            return None  # the store is being closed
        self._size = status.dbSize
        return alarm(status)

    async def _reload(self) -> None:
        """Read the state again after its history was compacted, and publish the differences as one transaction.

        Raises Unavailable, OffsetChanged."""
        current = await self._keyspace.revision()
        try:
            found = {entry.key: entry for entry in await self._keyspace.read(current)}
        except EtcdCompacted as error:
            raise Unavailable(f"etcd was compacted while its state was read: {error}") from None
        history, state = self._history, self._history.state
        events = [Event(current, key, None, before) for key, before in state.items() if key not in found]
        events += [
            Event(current, key, now, state.get(key))
            for key, now in found.items()
            if key not in state or state[key].mod_revision != now.mod_revision
        ]
        log.warning("history up to revision %d was compacted; %d differences were read again", current, len(events))
        history.compacted = max(history.revision, current - 1)
        if events:
            history.apply(events, b"")
            self._subscriptions.publish(events, current)
        history.revision = max(history.revision, current)
        self._wake_waiters()

    def _on_response(self, response: Any) -> None:
        """Apply the events of a response, which may consist of several fragments."""
        self._fragments.append(response)
        if response.fragment:
            return
        responses, self._fragments = self._fragments, []
        history, keyspace = self._history, self._keyspace
        prefix, own, offset, cause_key = keyspace.prefix, len(keyspace.prefix), keyspace.offset, keyspace.cause_key
        published: list[Event] = []
        transaction: list[Event] = []
        cause, revision, before_these = b"", history.revision, history.revision
        compacted = 0
        try:
            for event in responses[0].events if len(responses) == 1 else [e for each in responses for e in each.events]:
                entry = event.kv
                stored, at = entry.key, entry.mod_revision + offset
                if at != revision:
                    if transaction:
                        history.apply(transaction, cause)
                        published += transaction
                        transaction = []
                    cause = b""
                    if at <= revision:
                        raise StoreError(f"revision {at} follows revision {revision}")
                    revision = at
                elif revision == before_these:
                    raise StoreError(f"revision {revision} was delivered twice")
                record = b""
                if stored == cause_key:
                    record = entry.value
                elif stored.startswith(prefix):
                    key = stored[own:].decode()
                    if key == OFFSET:
                        raise keyspace.replaced()
                    before = history.state.get(key)
                    if event.type != messages.DELETE:
                        now, record = keyspace.entry_and_record(entry, key)
                        transaction.append(Event(revision, key, now, before))
                    elif before is not None:
                        transaction.append(Event(revision, key, None, before))
                elif stored == COMPACTED:
                    compacted = keyspace.compaction(entry.value)
                if record:
                    number, cause = record[:NUMBER_LENGTH], record[NUMBER_LENGTH:]
                    if number in self._committed:
                        self._committed[number] = revision
            if transaction:
                history.apply(transaction, cause)
                published += transaction
            history.revision = max(history.revision, revision)
        finally:  # also if a later event is invalid: the watch starts again after what was applied
            if published:
                self._subscriptions.publish(published, history.revision)
            self._wake_waiters()
        if compacted > history.compacted:
            if self._archive is None:
                self._mark_compacted(compacted)
                self._tasks.start(self._drop_compacted())
            else:
                self._tasks.start(self._archive_and_drop(compacted))

    def _mark_compacted(self, revision: int) -> None:
        """Make the revisions up to this one unreadable."""
        history = self._history
        history.compacted = max(history.compacted, min(revision, history.revision))
        self._compacted = max(self._compacted, history.compacted)

    async def _archive_and_drop(self, revision: int) -> None:
        """Compact the replica as another server has compacted etcd."""
        await self.archive_until(revision)
        self._mark_compacted(revision)
        await self._drop_compacted()

    async def _drop_compacted(self) -> None:
        """Drop the unreadable revisions from memory."""
        history = self._history
        while events := history.compacted_events(_DROP_BATCH):
            history.drop(len(events))
            await asyncio.sleep(0)
