"""A revisioned map from key to bytes, with watch: etcd's model, small.

What every backend promises (`tests/contracts/test_store.py` holds each to it):

- **One order.** Every committed transaction gets a revision greater than all before. Revisions are cluster-wide, start
  above 0 and only grow, across restarts too. They need not be consecutive, and the first is not fixed. All operations
  of a transaction share its revision.
- **Acknowledged means durable.** When `txn` returns, a crash of process or machine does not lose the write (the memory
  backend: a crash loses everything, as said on the tin). Nobody sees a write (get, list, watch) before it is durable.
- **Visible here.** Several stores may use one medium. What another one commits becomes visible here later, in order;
  `revision` is the latest that is visible here. A revision becomes visible to get, list and `revision` and is delivered
  to subscribers in one turn of the event loop. When `txn` returns or raises CompareFailed, what it speaks of is visible
  here: a caller reads its own writes, and a retry starts from nothing older than what it lost to. `sync` waits for
  everything that was committed anywhere before it was called, `reached` for one revision.
- **Compare and swap.** `expect` names the key's mod_revision: a number must match, 0 means "must not exist", None means
  "whatever is there". One failed comparison and nothing of the transaction happened.
- **Cancellation.** A cancelled `txn` has either fully happened or not at all; the caller cannot know which and reads
  again.
- **Watch** is ordered by revision, complete, without duplicates, resumable after any revision not yet compacted, and
  delivers all events of one transaction together.
- **History.** get and list at a revision answer as of that revision until it is compacted; then `Compacted`.
- **Failure.** If the medium fails for good (full, corrupt, gone) the store says so on every later call and in
  `failure`; it never answers from what may not be durable. While a medium cannot be reached for a time, calls raise
  `Unavailable` and may be repeated; of a `txn` it is then not known whether it happened.

**Stamping.** The wire form of an object holds its own revision. A Put may name a byte offset `stamp` in its value; the
store inserts the decimal revision there, once, when it is known. What get, list and watch return is stamped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class StoreError(Exception):
    """The store cannot answer; the message says why, in a sentence for people."""


class Unavailable(StoreError):
    """The medium cannot be reached for now; the call may be repeated. A transaction may have happened or not."""


class Compacted(StoreError):
    """The revision asked for is no longer kept; `oldest` is the first that is."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} has been compacted; the oldest kept is {oldest}")
        self.asked = asked
        self.oldest = oldest


class FutureRevision(StoreError):
    """The revision asked for has not happened yet."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"revision {asked} is in the future; the store is at {current}")
        self.asked = asked
        self.current = current


class CompareFailed(StoreError):
    """A transaction's expectation did not hold.

    `current` is the key as it is now (None: absent), durable, visible to readers here and delivered to subscribers: to
    retry from it, or from a cache that follows the store, is never stale."""

    def __init__(self, key: str, current: KeyValue | None) -> None:
        super().__init__(f"{key}: not at the expected revision")
        self.key = key
        self.current = current


class Unreadable(bytes):
    """In place of a value that is kept and cannot be read: the bytes as they are kept, and why."""

    why: str

    def __new__(cls, kept: bytes, why: str) -> Unreadable:
        made = super().__new__(cls, kept)
        made.why = why
        return made


class KeyValue(NamedTuple):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Put(NamedTuple):
    key: str
    value: bytes
    expect: int | None = None
    stamp: int | None = None


class Delete(NamedTuple):
    """Deleting an absent key is a no-op unless `expect` says it must be there."""

    key: str
    expect: int | None = None


class Check(NamedTuple):
    """Changes nothing: the rest of the transaction happens only if the key is at this revision (0: absent)."""

    key: str
    expect: int


Op = Put | Delete | Check


class Event(NamedTuple):
    """One key's change. `now` is None for a deletion, `before` is None for a creation."""

    revision: int
    key: str
    now: KeyValue | None
    before: KeyValue | None


class Page(NamedTuple):
    items: Sequence[KeyValue]
    revision: int
    """The revision that the whole list was read at."""
    more: bool
    total: int
    """How many keys the range holds, from `start` on, this page included."""


class Replay(NamedTuple):
    """A step through the past."""

    events: Sequence[Event]
    revision: int
    """Every event up to this revision is in this step or in those before."""


class Cause(NamedTuple):
    """A transaction's recorded cause, as kept in history."""

    revision: int
    cause: bytes


Sink = Callable[[Sequence[Event], int], None]
"""Called on the event loop with the events of one or more transactions in order, and the revision reached. It must not
block and must not raise. It may be called with no events to tell that the revision has moved on."""


class Subscription(Protocol):
    def close(self) -> None:
        """No call of the sink happens after this returns."""
        ...


class Store(Protocol):
    @property
    def revision(self) -> int:
        """The latest revision visible here."""
        ...

    @property
    def compacted(self) -> int:
        """Revisions up to and including this one are gone (0: none). The present can be read all the same, and a watch
        can resume after exactly this one."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the store answers no more (closed, or its medium failed for good); None: it does."""
        ...

    @property
    def unavailable(self) -> str | None:
        """Why the medium cannot be reached for now; None: it can, or the store has failed."""
        ...

    async def sync(self) -> int:
        """Return when everything that was committed anywhere before the call is visible here, with a revision that
        covers it. A store that is the only writer of its medium returns without suspending. Raises Unavailable."""
        ...

    async def reached(self, revision: int) -> None:
        """Return when `revision` is visible here, however long that takes: callers bring their own time limit."""
        ...

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        """As of `revision`, 0 meaning now. Raises Compacted, FutureRevision."""
        ...

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        """Keys that begin with `prefix`, in byte order, from `start` (a whole key, inclusive) on. limit 0: all."""
        ...

    async def txn(self, ops: Sequence[Op], cause: bytes = b"") -> tuple[int, Sequence[KeyValue | None]]:
        """All or nothing. Returns the revision and, for each op, the key as this transaction left it (None: deleted, or
        only checked).

        By the time the caller goes on, others may have written the same keys again: the answer, and not what get shows,
        is this transaction. `cause` says who did this and why; it is kept beside the revision for as long as history
        is. Checking and deleting only absent keys takes no revision: the current one is returned.
        Raises CompareFailed (nothing happened), Unavailable or another StoreError (it is not known whether it
        happened); ValueError for ops that could never work: one key twice, a key that is empty or holds a zero byte, a
        stamp outside of the value."""
        ...

    def watch(self, prefix: str, after: int, sink: Sink) -> Subscription:
        """Every event of keys under `prefix` with a revision greater than `after`, past ones first (before `watch`
        returns or soon after, in order). Raises Compacted if history since `after` is not complete any more."""
        ...

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        """Return the next events of keys under `prefix` with a revision greater than `after`, oldest first.

        It looks at about `limit` events of the past, never splits a transaction, and costs nothing for what happened to
        other resources. A caller goes on after the revision of the answer; one that has reached `revision` of the store
        has seen everything, and may join live events without a gap if it does not await in between. Raises Compacted if
        history since `after` is not complete any more, also in the middle of a replay."""
        ...

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        """Return the recorded causes of the revisions greater than `after`, oldest first, at most `limit` (0: all).
        Revisions without a cause are left out. Raises Compacted as `watch` does."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget what was overwritten or deleted at or before `revision`."""
        ...

    def size(self) -> int:
        """Return the bytes that the store takes on its medium, about."""
        ...

    async def close(self) -> None:
        """Let what was accepted become durable, then let go of the medium. Further calls raise StoreError."""
        ...
