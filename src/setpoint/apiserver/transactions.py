"""Commits the transactions of the API server, each with the cause of the write, and rejects writes of former leaders.

What the cause of a write is: `request_causes.py`.

A write that names the term of a Lease (`meta/lease_term.py`) is committed together with a comparison: the Lease must be
what it was when its holder and term were last examined. A renewal changes the Lease and not its term, so the first
write after it is compared again. The last state of each Lease is cached, so that a write costs no additional read.
The server's own maintenance is fenced in the same way while it runs under an election (`fenced_by`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import NamedTuple

import orjson

from setpoint.apiserver.request_causes import RequestCauses
from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.clock import Clock
from setpoint.meta.errors import BadRequest, Conflict
from setpoint.meta.lease_term import TERM_HEADER, Fence, Term, parse_term
from setpoint.store.interface import Check, CompareFailed, KeyValue, NotedCause, Op, Store

_LEASE = ("coordination.k8s.io", "leases")
_LEASES = next(each.storage_prefix for each in RESOURCES if (each.group, each.plural) == _LEASE)
_MAX_CACHED_LEASES = 1_000
_ATTEMPTS = 20

_fence: ContextVar[Fence | None] = ContextVar("fence", default=None)


@contextmanager
def fenced_by(fence: Fence | None) -> Iterator[None]:
    """Commit the writes of this task, and of the tasks that it starts in the block, only in the term of this fence;
    None means unconditionally."""
    token = _fence.set(fence)
    try:
        yield
    finally:
        _fence.reset(token)


Committed = tuple[int, Sequence[KeyValue | None]]
"""The revision of a transaction and the result of each of its operations."""


class Transactions:
    """All transactions of one API server; nothing else in it calls `Store.txn`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.causes = RequestCauses()
        self._leases: dict[str, _LeaseState] = {}
        """The last known state of each Lease, by its key. The comparison in the transaction detects a stale one."""

    @property
    def max_operations(self) -> int:
        """The greatest number of operations that every store accepts in one transaction."""
        return self._store.limits.operations - 1  # one more compares the Lease

    async def commit(self, ctx: RequestContext, ops: Sequence[Op]) -> Committed:
        """Commit the write of a request. Raises CompareFailed, and Conflict if its user lost the Lease it names."""
        header = ctx.request.headers.get(TERM_HEADER)
        term = _own_term() if header is None else _parsed(header)
        if term is None:
            return await self._store.txn(ops, self.causes.note(ctx, ""))
        return await self._commit_fenced(term, ops, partial(self.causes.note, ctx, str(term)))

    async def commit_internal(self, verb: str, reason: str, ops: Sequence[Op]) -> Committed:
        """Commit maintenance of the server itself that concerns no single object. Raises CompareFailed, and Conflict if
        the server lost the Lease under which it runs."""
        term, now = _own_term(), self._clock.now()
        if term is None:
            return await self._store.txn(ops, self.causes.note_own(now, verb, reason, ""))
        return await self._commit_fenced(term, ops, partial(self.causes.note_own, now, verb, reason, str(term)))

    async def _commit_fenced(self, term: Term, ops: Sequence[Op], cause: Callable[[], NotedCause]) -> Committed:
        """Commit if the term still holds its Lease; raise Conflict if it does not."""
        key = f"{_LEASES}{term.namespace}/{term.name}"
        lease = self._leases.get(key)
        if any(op.key == key for op in ops):
            # The Lease itself: what the write expects of it is compared anyway.
            await self._examine(key, term)
            return await self._store.txn(ops, cause())
        for _ in range(_ATTEMPTS):
            if lease is None or not lease.is_of(term):
                lease = await self._examine(key, term)
            try:
                return await self._store.txn([*ops, Check(key, lease.revision)], cause())
            except CompareFailed as failed:
                if failed.key != key:
                    raise
                lease = self._cache_lease(key, failed.current)
        raise Conflict(f"the lease {term.namespace}/{term.name} changes too often to compare with it")

    async def _examine(self, key: str, term: Term) -> _LeaseState:
        """Read the Lease and return its state. Raises Conflict if it is not of this term."""
        await self._store.sync()
        lease = self._cache_lease(key, await self._store.get(key))
        if lease is None or not lease.is_of(term):
            raise Conflict(
                f"{term.holder} no longer holds the lease {term.namespace}/{term.name} in term {term.transitions}: "
                "its writes are refused"
            )
        return lease

    def _cache_lease(self, key: str, stored: KeyValue | None) -> _LeaseState | None:
        if stored is None:
            self._leases.pop(key, None)
            return None
        try:
            spec = orjson.loads(stored.value).get("spec") or {}
        except orjson.JSONDecodeError:  # encrypted, and the key is missing
            spec = {}
        lease = _LeaseState(stored.mod_revision, spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0)
        if len(self._leases) >= _MAX_CACHED_LEASES:
            self._leases.clear()
        self._leases[key] = lease
        return lease


class _LeaseState(NamedTuple):
    revision: int
    holder: str
    transitions: int

    def is_of(self, term: Term) -> bool:
        return (self.holder, self.transitions) == (term.holder, term.transitions)


def _own_term() -> Term | None:
    """Return the term of the task's fence, or None if it has none. Raises Conflict."""
    fence = _fence.get()
    return fence.term() if fence is not None else None


def _parsed(header: str) -> Term:
    try:
        return parse_term(header)
    except ValueError:
        raise BadRequest(f"the {TERM_HEADER} header is not NAMESPACE/NAME/TRANSITIONS/HOLDER") from None
