"""The store on etcd: a replica in memory that follows one watch of the whole keyspace.

Reads and watches are served from the replica, as in the other backends. A transaction is sent to etcd and answered when
the replica has reached its revision, so a caller reads its own writes.

**Failures.** While etcd cannot be reached, calls that need it raise Unavailable, reads show the last known state, and
the watch reconnects. A transaction whose answer was lost is found again by its number if it happened; otherwise
Unavailable says that it is not known whether it happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from setpoint.store.etcd.client import CORRUPT, EtcdClient, EtcdCompacted
from setpoint.store.etcd.keyspace import Keyspace, check_own_key
from setpoint.store.etcd.member_status import alarm, check_version
from setpoint.store.etcd.replica import RECONNECT_PAUSES, Replica
from setpoint.store.history import History
from setpoint.store.interface import (
    Check,
    Compacted,
    CompareFailed,
    Delete,
    KeyValue,
    Limits,
    NotedCause,
    NotProcessed,
    Op,
    Page,
    Put,
    StoreError,
    Unavailable,
    recorded_form,
)
from setpoint.store.transaction import MAX_OPS
from setpoint.wire.tls import TlsClient

_REPLAYED = 5_000
"""Revisions before the current one that a new replica contains, so that clients can resume their watches. etcd sends
about ten thousand past revisions a second."""
_LIMITS = Limits(operations=127, size=(3 << 20) // 2 - (64 << 10))
"""The defaults of etcd, less the cause: 128 operations, and 1.5 MiB for a request."""
_MAX_QUERIES = 16
"""Questions for etcd's revision that are under way at the same time. While there are as many, callers wait for the
next one together."""
_RESOLVE_TIMEOUT = 10.0
_CLOSE_TIMEOUT = 5.0
_MAX_ATTEMPTS = 1_000
"""Attempts of one transaction; another is made only after a commit by another client in between."""
_UNCONDITIONAL = (Delete, None)
_CLOSED = "the store is closed"
_Callers = list[asyncio.Future[int]]


class EtcdStore(Replica):
    def __init__(self, keyspace: Keyspace, history: History, number: Callable[[], bytes]) -> None:
        super().__init__(keyspace, history)
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._writing: dict[str, asyncio.Future[None]] = {}
        """The keys with a transaction under way: later writers of the same key wait here instead of racing at etcd."""
        self._under_way: set[asyncio.Future[None]] = set()
        self._query: _Callers | None = None
        """The callers of `sync` that share the question for etcd's revision which was sent in this iteration of the
        event loop, or will be sent when fewer are under way; None if the next caller needs another one."""
        self._unsent = False
        """Whether that question has not been sent yet."""
        self._queries = 0
        """The number of questions under way."""
        self._compaction_version = 0
        """The number of compactions of etcd that were announced when this store last tried to announce one."""

    @classmethod
    async def open(
        cls,
        endpoints: Sequence[str],
        *,
        number: Callable[[], bytes],
        prefix: str = "/registry/",
        tls: TlsClient | None = None,
    ) -> EtcdStore:
        """Connect and read the state. `number` returns 16 random bytes, and `prefix` must end with a slash. Raises
        StoreError."""
        client = EtcdClient(endpoints, tls)
        try:
            status = await client.status()
            check_version(status.version)
            problem = alarm(status)
            if problem == CORRUPT:
                raise StoreError(problem)
            keyspace = await Keyspace.open(client, prefix)
            current = await keyspace.revision()
            start = max(keyspace.beginning, current - _REPLAYED)
            while True:
                try:
                    base = await keyspace.read(start) if start else []
                except EtcdCompacted:
                    start = current  # etcd was compacted in this moment, or earlier; the present is always readable
                    continue
                store = cls(keyspace, History(base, start), number)
                store._size = status.dbSize
                store._history.revision = max(start, 1)
                await store._follow()
                if await store._reaches(current):
                    break
                end = await store._watch_end
                if not end.compacted:
                    raise Unavailable(f"etcd cannot be watched: {end.reason}")
                start = end.compacted
        except BaseException:
            client.close()
            raise
        store._note(problem)
        store._tasks.start(store._keep_following())
        store._tasks.start(store._keep_checking())
        store._tasks.start(store._keep_returning())
        return store

    @property
    def limits(self) -> Limits:
        return _LIMITS

    @property
    def shared(self) -> bool:
        return True

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        try:
            return await super().get(key, revision)
        except Compacted as error:
            with self._older_than_the_replica(error):
                return await self._keyspace.get(key, revision)

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        try:
            return await super().list(prefix, start=start, limit=limit, revision=revision)
        except Compacted as error:
            with self._older_than_the_replica(error):
                return await self._keyspace.page(prefix, start, limit, revision)

    @contextmanager
    def _older_than_the_replica(self, error: Compacted) -> Iterator[None]:
        """Read a revision that the replica does not have, and etcd may have. Raises `error` if it has not either."""
        if error.requested <= self._compacted:
            raise error
        try:
            yield
        except EtcdCompacted:
            raise error from None

    async def sync(self) -> int:
        """Ask etcd for its current revision and wait for it.

        Callers of one iteration of the event loop share one question, which the first of them sends. A later caller may
        use it although it was sent before the call: all that an iteration knows of the world outside, the loop received
        before the iteration began. So etcd answers while the rest of the iteration runs."""
        self._check()
        if self._problem == CORRUPT:
            raise NotProcessed(CORRUPT)  # some releases of etcd still answer reads
        caller: asyncio.Future[int] = self._loop.create_future()
        if self._query is not None:
            self._query.append(caller)
        else:
            self._query = [caller]
            self._unsent = True
            if self._queries < _MAX_QUERIES:
                self._send_query(self._query)
        return await caller

    def _end_sharing(self, callers: _Callers) -> None:
        """Let the next caller ask anew."""
        if self._query is callers:
            self._query = None

    def _send_query(self, callers: _Callers) -> None:
        """Ask for the revision, and resume the callers when it is visible. In the usual case no task is needed."""
        self._unsent = False
        self._queries += 1
        # It runs before the callbacks of everything that the loop receives from now on.
        self._loop.call_soon(self._end_sharing, callers)
        offset, deadline = self._keyspace.offset, self._keyspace.client.deadline()

        def on_answer(answer: int | StoreError | None) -> None:
            self._queries -= 1
            self._end_sharing(callers)
            if self._unsent and self._query is not None:
                self._send_query(self._query)
            if isinstance(answer, int) and answer + offset <= self._history.revision:
                _resume(callers, answer + offset)
            elif self._failure is not None:
                _resume(callers, StoreError(self._failure))
            else:
                self._tasks.start(self._complete_query(callers, answer, deadline))

        if self._failure is None:
            self._keyspace.client.query_revision(on_answer)
        else:
            on_answer(None)

    async def _complete_query(self, callers: _Callers, answer: int | StoreError | None, deadline: float) -> None:
        """Ask again if the first answer is not a revision, until `deadline`, and wait until the revision is visible."""
        outcome: int | StoreError = StoreError(_CLOSED)  # if this task is cancelled
        try:
            try:
                if isinstance(answer, StoreError) and self._loop.time() >= deadline:
                    raise answer
                if isinstance(answer, int):
                    revision = answer + self._keyspace.offset
                else:
                    revision = await self._keyspace.revision(deadline)
            except StoreError as error:
                self._note(str(error))
                raise
            await self._wait_for(revision)
            outcome = revision
        except StoreError as error:
            outcome = error
        finally:
            _resume(callers, outcome)

    async def _wait_for(self, revision: int) -> None:
        """Wait until a committed revision is visible; Unavailable if the watch does not bring it in time."""
        try:
            await self._wait_visible(revision, _RESOLVE_TIMEOUT)
        except TimeoutError:
            raise Unavailable(f"revision {revision} of etcd is not visible here yet") from None

    # -- writing ------------------------------------------------------------------------------------------------------

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        self._check()
        _validate(ops)
        if not ops:
            return self._history.revision, []
        done: asyncio.Future[None] = self._loop.create_future()
        self._under_way.add(done)
        held: list[str] = []
        keys = [op.key for op in ops if not isinstance(op, Check)]
        if len(keys) > 1:
            keys.sort()  # writers that wait for each other take their keys in the same order
        try:
            for key in keys:
                while (busy := self._writing.get(key)) is not None:
                    await asyncio.shield(busy)
                self._writing[key] = done
                held.append(key)
            return await self._txn(ops, recorded_form(cause))
        finally:
            for key in held:
                del self._writing[key]
            self._under_way.discard(done)
            done.set_result(None)

    async def _txn(self, ops: Sequence[Op], cause: bytes) -> tuple[int, Sequence[KeyValue | None]]:
        keyspace = self._keyspace
        for _ in range(_MAX_ATTEMPTS):
            self._compare(ops)
            sent = ops
            if _UNCONDITIONAL in [(type(op), op.expect) for op in ops]:
                await self.sync()  # whether there is something to delete must be known, to write nothing otherwise
                sent = [self._with_expectation(op) for op in ops]
            number = self._number()
            self._committed[number] = 0
            try:
                answer = await keyspace.client.txn(keyspace.transaction(sent, number, cause))
                succeeded, revision = answer.succeeded, answer.header.revision + keyspace.offset
                if revision > self._history.revision:
                    await self._wait_for(revision)
            except Unavailable as problem:
                self._note(str(problem))
                writes = any(isinstance(op, Put) or (isinstance(op, Delete) and op.expect) for op in sent)
                if not writes or isinstance(problem, NotProcessed):
                    raise
                succeeded, revision = True, await self._resolve(number, problem)
            finally:
                del self._committed[number]
            if succeeded:
                return revision, [self._result(op, revision) for op in ops]
            # A comparison failed. The replica has the state that it failed against, or a newer one, in which what was
            # expected may be true again; or a key that was deleted unconditionally changed in between.
            self._compare(ops, certain=True)
        raise NotProcessed(f"a comparison failed at etcd {_MAX_ATTEMPTS} times, and never here")

    def _with_expectation(self, op: Op) -> Op:
        """Return the operation, a Delete with the revision of the key that it deletes (0 if there is none)."""
        if not isinstance(op, Delete) or op.expect is not None:
            return op
        present = self._history.state.get(op.key)
        return op._replace(expect=present.mod_revision if present is not None else 0)

    def _compare(self, ops: Sequence[Op], *, certain: bool = False) -> None:
        """Raise CompareFailed if an expectation cannot hold at etcd.

        The replica may be behind: without `certain`, only those expectations are judged that no later state fulfils,
        which are revisions that the key has left behind."""
        for op in ops:
            if op.expect is None:
                continue
            current = self._history.state.get(op.key)
            revision = current.mod_revision if current is not None else 0
            if op.expect == revision:
                continue
            if certain or (
                op.expect and op.expect <= self._history.revision and (not revision or revision > op.expect)
            ):
                raise CompareFailed(op.key, current)

    async def _resolve(self, number: bytes, problem: Unavailable) -> int:
        """Return the revision of a transaction whose answer was lost, if it happened. Raises Unavailable otherwise."""
        try:
            async with asyncio.timeout(_RESOLVE_TIMEOUT):
                while not self._committed[number]:
                    try:
                        await self.sync()
                        break
                    except Unavailable:
                        await asyncio.sleep(RECONNECT_PAUSES[-1])
        except TimeoutError:
            pass
        revision = self._committed[number]
        if not revision:
            raise Unavailable(f"{problem}; it is not known whether the transaction happened")
        return revision

    def _result(self, op: Op, revision: int) -> KeyValue | None:
        if not isinstance(op, Put):
            return None
        entry = self._history.state.get(op.key)
        if entry is None or entry.mod_revision != revision:
            entry = self._history.get(op.key, revision)  # written again since
        return entry

    # -- maintenance --------------------------------------------------------------------------------------------------

    async def compact(self, revision: int) -> None:
        """Compact etcd and all replicas, which learn of it by their watches."""
        self._check()
        if self._history.compactable(revision):
            await self._keyspace.announce_compaction(revision)
            await self._compact(revision)

    async def compact_if_first(self, revision: int) -> bool:
        """Compact by the protocol of Kubernetes: of the servers that know the same number of announcements, the first
        to add one compacts."""
        self._check()
        if not self._history.compactable(revision):
            return False
        if await self._keyspace.announce_compaction(revision, self._compaction_version):
            self._compaction_version += 1
            await self._compact(revision)
            return True
        self._compaction_version = await self._keyspace.compaction_version()
        return False

    async def _compact(self, revision: int) -> None:
        await self.archive_until(revision)
        await self._keyspace.compact(revision)
        self._mark_compacted(revision)
        await self._drop_compacted()
        self._size = (await self._keyspace.client.status()).dbSize

    def set_endpoints(self, endpoints: Sequence[str]) -> None:
        """Use these endpoints for new connections, because etcd's membership has changed."""
        self._keyspace.client.set_endpoints(endpoints)

    def size(self) -> int:
        """Return the size of etcd's database when it was last asked, in bytes."""
        return self._size

    async def close(self) -> None:
        first, self._failure = self._failure is None, self._failure or _CLOSED
        if first and self._under_way:
            await asyncio.wait(self._under_way, timeout=_CLOSE_TIMEOUT)
        self._fail(self._failure)
        self._end_watch()
        await self._tasks.stop()
        self._keyspace.client.close()


def _resume(callers: _Callers, outcome: int | StoreError) -> None:
    """Resume callers, some of whom may have been cancelled."""
    for caller in callers:
        if caller.done():
            continue
        if isinstance(outcome, StoreError):
            caller.set_exception(outcome)
        else:
            caller.set_result(outcome)


def _validate(ops: Sequence[Op]) -> None:
    """Raise ValueError for operations that no state can make valid."""
    if len(ops) > 1 and len({op.key for op in ops}) != len(ops):
        raise ValueError("a transaction contains the same key twice")
    if len(ops) > MAX_OPS:
        raise ValueError(f"a transaction has {len(ops)} operations; the maximum is {MAX_OPS}")
    for op in ops:
        check_own_key(op.key)
