"""A revisioned map from key to bytes, with watch: a small version of etcd's model.

Every backend guarantees the following (`tests/contracts/test_store.py` tests each of them):

- **One order.** Every committed transaction gets a revision greater than all before. Revisions are cluster-wide, start
  above 0 and only grow, also across restarts. They need not be consecutive, and the first one is not specified. All
  operations of a transaction share its revision.
- **Acknowledged means durable.** When `txn` returns, a crash of the process or the machine does not lose the write
  (except in the memory backend, where a crash loses everything). A write is not visible to get, list or watch before it
  is durable.
- **Local visibility.** Several stores may share one medium. A commit of another store becomes visible here later, in
  order; `revision` is the latest that is visible here. A revision becomes visible to get, list and `revision` and is
  delivered to subscribers in one iteration of the event loop. When `txn` returns or raises CompareFailed, the state
  that it refers to is visible here: a caller reads its own writes, and a retry starts from the state that the
  comparison failed against, or a newer one. `sync` waits for everything that was committed anywhere before it was
  called, `wait_for_revision` for one revision.
- **Compare and swap.** `expect` is the mod_revision that the key must have: 0 means "must not exist", None means "any".
  If one comparison fails, the whole transaction has no effect.
- **Cancellation.** A cancelled `txn` has either fully happened or not at all; the caller cannot know which and must
  read again.
- **Watch** is ordered by revision, complete, without duplicates, resumable after any revision not yet compacted, and
  delivers all events of one transaction together.
- **History.** get and list at a revision return the state as of that revision until it is compacted; then they raise
  `Compacted`.
- **Failure.** If the medium fails for good (full, corrupt, gone), every later call raises and `failure` gives the
  reason; the store never returns data that may not be durable. While a medium is temporarily unreachable, calls raise
  `Unavailable` and may be retried; it is then unknown whether a `txn` happened.

**Stamping.** The wire form of an object contains its own revision. A Put may give a byte offset `stamp` in its value;
the store inserts the decimal revision there, once, when the revision is assigned. get, list and watch return stamped
values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol


class StoreError(Exception):
    """The store cannot serve the call; the message says why in a complete sentence."""


class Unavailable(StoreError):
    """The medium is temporarily unreachable; the call may be retried. A transaction may or may not have happened."""


class NotProcessed(Unavailable):
    """The medium is temporarily unreachable or accepts no writes, and the call certainly had no effect."""


class TooLarge(StoreError):
    """A transaction exceeds a limit of the medium and had no effect; the message is that of etcd."""


class Compacted(StoreError):
    """The requested revision is no longer retained; `oldest` is the first one that is."""

    def __init__(self, requested: int, oldest: int) -> None:
        super().__init__(f"revision {requested} has been compacted; the oldest retained is {oldest}")
        self.requested = requested
        self.oldest = oldest


class FutureRevision(StoreError):
    """The requested revision has not happened yet."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is in the future; the store is at {current}")
        self.requested = requested
        self.current = current


class CompareFailed(StoreError):
    """A transaction's expectation did not hold.

    `current` is the key's entry now (None if absent). It is durable, visible to readers here and delivered to
    subscribers: a retry from it, or from a cache that follows the store, is never stale."""

    def __init__(self, key: str, current: KeyValue | None) -> None:
        super().__init__(f"{key}: not at the expected revision")
        self.key = key
        self.current = current


class Unreadable(bytes):
    """A stored value that cannot be decoded: the bytes as stored, and the `reason`."""

    reason: str

    def __new__(cls, stored: bytes, reason: str) -> Unreadable:
        instance = super().__new__(cls, stored)
        instance.reason = reason
        return instance


class _Compressed(bytes):
    """A value as a raw deflate stream, followed by its length in bytes (`_LENGTH` bytes, little-endian)."""

    __slots__ = ()


_LENGTH = 4


class KeyValue:
    """A key with its value, and the revisions at which it was created and last written. Its content does not change.

    A store may keep the value in compressed form (`compress`): reads of `value` then take a few microseconds longer,
    and return an equal object each time."""

    __slots__ = ("_base", "_value", "create_revision", "key", "mod_revision")

    def __init__(self, key: str, value: bytes, create_revision: int, mod_revision: int) -> None:
        self.key = key
        self._value = value
        self._base = b""
        """The dictionary with which the value is compressed."""
        self.create_revision = create_revision
        self.mod_revision = mod_revision

    @property
    def value(self) -> bytes:
        value = self._value
        if type(value) is _Compressed:
            return zlib.decompressobj(-zlib.MAX_WBITS, self._base).decompress(value)
        return value

    @property
    def size(self) -> int:
        """The length of the value in bytes."""
        value = self._value
        return int.from_bytes(value[-_LENGTH:], "little") if type(value) is _Compressed else len(value)

    @property
    def compressed(self) -> bytes | None:
        """The bytes that are kept instead of the value; None if the value itself is kept."""
        return self._value if type(self._value) is _Compressed else None

    @property
    def base(self) -> bytes:
        """The bytes that are needed to restore a compressed value; several entries share them."""
        return self._base

    def compress(self, stream: bytes, base: bytes) -> None:
        """Keep the value as a raw deflate stream that was made with `base` as the dictionary."""
        length = len(self._value).to_bytes(_LENGTH, "little")
        # Other threads may read the value meanwhile: the base must be there when the compressed value is.
        self._base = base
        self._value = _Compressed(stream + length)

    def with_value(self, value: bytes) -> KeyValue:
        """Return this entry with another value."""
        return KeyValue(self.key, value, self.create_revision, self.mod_revision)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyValue):
            return NotImplemented
        return self is other or (
            (self.key, self.create_revision, self.mod_revision)
            == (other.key, other.create_revision, other.mod_revision)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((self.key, self.mod_revision))

    def __repr__(self) -> str:
        return f"KeyValue({self.key!r}, {self.value!r}, {self.create_revision}, {self.mod_revision})"


class Put(NamedTuple):
    key: str
    value: bytes
    expect: int | None = None
    stamp: int | None = None


class Delete(NamedTuple):
    """Deletes a key. Deleting an absent key is a no-op unless `expect` requires it to exist."""

    key: str
    expect: int | None = None


class Check(NamedTuple):
    """Changes nothing; the transaction happens only if the key is at the revision `expect` (0 means absent)."""

    key: str
    expect: int


Op = Put | Delete | Check


class Event(NamedTuple):
    """A change of one key. `now` is None for a deletion, `before` is None for a creation."""

    revision: int
    key: str
    now: KeyValue | None
    before: KeyValue | None


class Page(NamedTuple):
    items: Sequence[KeyValue]
    revision: int
    """Revision at which the whole list was read."""
    more: bool
    total: int
    """Number of keys in the range from `start` on, including this page."""


class Limits(NamedTuple):
    """The transactions that a medium accepts in any case; it may be configured to accept larger ones."""

    operations: int
    """Number of operations in a transaction."""
    size: int
    """Bytes of the keys and values of a transaction."""


class Replay(NamedTuple):
    """One step of a replay of past events."""

    events: Sequence[Event]
    revision: int
    """Revision up to which this step and the steps before it are complete."""


class Cause(NamedTuple):
    """The cause recorded with a transaction, as stored in history."""

    revision: int
    cause: bytes


class CauseEncoder(Protocol):
    """Makes the recorded form of causes that were only noted when their transactions were committed.

    Most causes are never read. A store that keeps them in memory may keep many as one block, whose bytes cost a
    fraction of those of each cause."""

    def encode(self, cause: NotedCause) -> bytes:
        """Return what is recorded. It is called once for each cause, in the order of the transactions."""
        ...

    def join(self, causes: Sequence[NotedCause], /) -> bytes | None:
        """Return causes of this encoder as one block, instead of the recorded form of each; None if that is
        impossible."""
        ...

    def split(self, block: bytes, first: int) -> Iterator[bytes]:
        """Yield the recorded form of the causes of a block from this position on. It may be called any number of
        times."""
        ...


NotedCause = tuple[CauseEncoder, *tuple[Any, ...]]
"""A cause as its encoder noted it: the encoder, and what it needs for the recorded form. It is a plain tuple because it
is made with every write."""


def recorded_form(cause: bytes | NotedCause) -> bytes:
    """Return what is recorded of a cause; it must be called once for each, in the order of the transactions."""
    return cause if isinstance(cause, bytes) else cause[0].encode(cause)


class Version(NamedTuple):
    """One key at one revision."""

    key: str
    revision: int
    """Revision at which it got this value."""
    created: int
    """Revision at which the key was created; 0 for a deletion."""
    value: bytes | None
    """The value; None if the key was deleted at this revision."""


class PastTransaction(NamedTuple):
    """A transaction that an archive keeps."""

    revision: int
    cause: bytes
    keys: tuple[str, ...]


class Archive(Protocol):
    """The changes that a store has compacted, kept for as long as the archive is configured to.

    An archive may lose what it keeps, and never shows a wrong state: what is not known is outside of its range."""

    @property
    def oldest(self) -> int:
        """Return the oldest revision whose state is known."""
        ...

    @property
    def newest(self) -> int:
        """Return the revision up to which changes are known; 0 if the archive is empty."""
        ...

    def excludes(self, key: str) -> bool:
        """Return whether changes of this key are not kept."""
        ...

    async def append(self, after: int, events: Sequence[Event], causes: Sequence[Cause], through: int) -> None:
        """Keep the changes with revisions greater than `after` up to `through`, of which nothing is missing.

        It does not raise if the medium fails: the changes are then missing from the archive."""
        ...

    async def get(self, key: str, revision: int) -> Version | None:
        """Return the version of a key at a revision, or None if the archive has no change of the key.

        A version without a value, whose revision may be 0, says that the key did not exist."""
        ...

    async def list(self, prefix: str, revision: int) -> dict[str, Version]:
        """Return the same as `get` for every key under `prefix` of which the archive has a change, sorted by key. The
        result belongs to the caller."""
        ...

    async def versions(self, key: str, before: int, limit: int) -> Sequence[Version]:
        """Return the versions of a key with revisions smaller than `before`, newest first, at most `limit` (0: all).

        The last one may be older than `oldest`: it is the one that was valid when the archive began."""
        ...

    def keeps(self, revision: int) -> bool:
        """Return whether there is a copy of the whole state at a marked revision, which may be older than `oldest`."""
        ...

    async def marked(self, prefix: str, revision: int) -> Sequence[Version]:
        """Return the objects under a prefix in the copy of a marked revision, by key."""
        ...

    async def transactions(self, after: int, limit: int) -> Sequence[PastTransaction]:
        """Return the transactions with revisions greater than `after`, oldest first, at most `limit`."""
        ...

    async def revision_at(self, at: int) -> int:
        """Return the last revision written at or before a time in milliseconds since the epoch; 0 if none is known."""
        ...

    async def time_of(self, revision: int) -> int:
        """Return when the last transaction up to `revision` was written, in milliseconds; 0 if it is not known."""
        ...

    async def close(self) -> None: ...


Sink = Callable[[Sequence[Event], int], None]
"""Callback that receives the events of one or more transactions in order, and the revision reached.

It is called on the event loop, and must neither block nor raise. It may be called without events to report that the
revision has advanced."""


class Subscription(Protocol):
    def close(self) -> None:
        """End the subscription. The sink is not called after this returns."""
        ...


class Store(Protocol):
    @property
    def revision(self) -> int:
        """Return the latest revision that is visible here."""
        ...

    @property
    def compacted(self) -> int:
        """Return the revision up to and including which there is no history; 0 if it was never compacted.

        The history of a store whose content was moved here from another one begins with the move.
        The current state stays readable, and a watch can resume after exactly this revision."""
        ...

    @property
    def failure(self) -> str | None:
        """Return why every call fails (closed, or the medium failed for good), or None while the store works."""
        ...

    @property
    def unavailable(self) -> str | None:
        """Return why the medium is temporarily unreachable, or None if it is reachable or the store has failed."""
        ...

    @property
    def limits(self) -> Limits:
        """Return the limits within which callers must keep transactions that they compose of many operations."""
        ...

    @property
    def shared(self) -> bool:
        """Return whether other processes may use the same medium at the same time."""
        ...

    @property
    def archive(self) -> Archive | None:
        """Return what keeps the changes that are compacted, or None if nothing does."""
        ...

    async def sync(self) -> int:
        """Return when everything that was committed anywhere before the call, and that the process can know of, is
        visible here, with a revision that includes it.

        The process learns of commits elsewhere only between two iterations of its event loop, so the state at the
        beginning of the present iteration is enough. A store that is the only writer of its medium returns without
        suspending. Raises Unavailable."""
        ...

    async def wait_for_revision(self, revision: int) -> None:
        """Return when `revision` is visible here. There is no timeout: callers apply their own."""
        ...

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        """Return the entry of `key` as of `revision` (0 means now), or None. Raises Compacted, FutureRevision."""
        ...

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Return the keys with `prefix` in byte order, starting at the key `start` (inclusive); `limit` 0 means all."""
        ...

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        """Apply all operations atomically and return the revision and, for each operation, the resulting entry.

        The entry is None for a deletion or a check. When the caller resumes, others may already have written the same
        keys again: the result, not what get returns, describes this transaction. `cause` says who made the change and
        why; it is stored with the revision for as long as history is retained. If it is not bytes yet, the store
        encodes it once, perhaps later, in another thread and together with others, but in the order of the calls. A
        transaction that only checks, or deletes absent keys, gets no revision: the current one
        is returned.
        Raises CompareFailed, NotProcessed or TooLarge (the transaction had no effect); Unavailable or another
        StoreError (it is unknown whether it happened); ValueError for invalid operations: a repeated key, a key that is
        empty or contains a zero byte, a stamp outside of the value."""
        ...

    def watch(self, prefix: str, after: int, sink: Sink) -> Subscription:
        """Deliver every event of keys under `prefix` with a revision greater than `after`.

        Past events come first, in order, before `watch` returns or soon after. Raises Compacted if history since
        `after` is incomplete."""
        ...

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        """Return the next events of keys under `prefix` with a revision greater than `after`, oldest first.

        It scans about `limit` past events, never splits a transaction, and its cost does not depend on events of other
        resources. The caller continues after the revision of the result; once that is the store's `revision` the caller
        is up to date, and may join live events without a gap if it does not await in between. Raises Compacted if
        history since `after` is incomplete, also in the middle of a replay."""
        ...

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        """Return the recorded causes of the revisions greater than `after`, oldest first, at most `limit` (0: all).

        Revisions without a cause are omitted. Raises Compacted as `watch` does."""
        ...

    async def changes_of(self, key: str, before: int = 0, limit: int = 0) -> Sequence[Event]:
        """Return the changes of one key that are in the history, newest first, at most `limit` (0: all).

        With `before`, only changes with a smaller revision are returned. The cost does not depend on changes of other
        keys, except for the first call, which builds an index in steps between which others run."""
        ...

    async def compact(self, revision: int) -> None:
        """Discard values that were overwritten or deleted at or before `revision`, on the medium and in every store on
        it."""
        ...

    async def compact_if_first(self, revision: int) -> bool:
        """Compact, unless another store on the same medium has done so since the previous call of this method; return
        whether this one did.

        Stores that call it periodically with what they saw one period ago keep the history of at least one period, and
        the medium is compacted once in a period."""
        ...

    def size(self) -> int:
        """Return the approximate size of the store on its medium, in bytes."""
        ...

    async def close(self) -> None:
        """Wait until accepted transactions are durable, then release the medium. Further calls raise StoreError."""
        ...
