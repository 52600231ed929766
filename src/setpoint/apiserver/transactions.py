"""Commits the transactions of the API server, each with the cause of the write, and rejects writes of former leaders.

The cause (`meta/cause.py`) is what the server knows of the request, and what its client claims in a header. Its time is
that of the request's arrival, or of the transaction before if that is later: it never falls from one transaction of
this server to the next.

A write that names the term of a Lease (`meta/lease_term.py`) is committed together with a comparison: the Lease must be
what it was when its holder and term were last examined. A renewal changes the Lease and not its term, so the first
write after it is compared again. The last state of each Lease is cached, so that a write costs no additional read.
The server's own maintenance is fenced in the same way while it runs under an election (`fenced_by`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple, SupportsBytes

import orjson

from setpoint.apiserver.request_context import RequestContext
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.caching import MAX_MEMOIZED_LENGTH, memoized
from setpoint.meta.cause import (
    CAUSE_HEADER,
    MAX_HEADER_LENGTH,
    claim_values,
    parse_claim,
    product_of,
    recorded,
    run_claim_values,
    writer_text,
)
from setpoint.meta.clock import Clock
from setpoint.meta.errors import BadRequest, Conflict
from setpoint.meta.lease_term import TERM_HEADER, Fence, Term, parse_term
from setpoint.meta.times import unix_milliseconds
from setpoint.store.interface import Check, CompareFailed, DeferredCause, KeyValue, Op, Store
from setpoint.wire.message import ObjectRequest, Request

_LEASE = ("coordination.k8s.io", "leases")
_LEASES = next(each.storage_prefix for each in RESOURCES if (each.group, each.plural) == _LEASE)
_MAX_CACHED_LEASES = 1_000
_ATTEMPTS = 20
_SERVER, _SERVER_AGENT = "system:apiserver", "kube-apiserver"
_TRACE_HEADER = "traceparent"
_TRACE = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_APPLY_TYPES = "application/apply-patch"
_OWN_VERBS = {"create/binding": "bind", "create/eviction": "evict"}
"""Verbs of requests that create no object, by verb and subresource."""

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
        self.last = 0
        """The time of the last transaction whose cause was encoded, in milliseconds since the epoch."""
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
            return await self._store.txn(ops, self._cause(ctx, ""))
        return await self._commit_fenced(term, ops, partial(self._cause, ctx, str(term)))

    async def commit_internal(self, verb: str, reason: str, ops: Sequence[Op]) -> Committed:
        """Commit maintenance of the server itself that concerns no single object. Raises CompareFailed, and Conflict if
        the server lost the Lease under which it runs."""
        term = _own_term()
        if term is None:
            return await self._store.txn(ops, self._own_cause(verb, reason, ""))
        return await self._commit_fenced(term, ops, partial(self._own_cause, verb, reason, str(term)))

    def _cause(self, ctx: RequestContext, term: str) -> SupportsBytes:
        """Return the cause of a transaction that is committed now."""
        # Every write executes this while the processor's caches are full of other things, so it only notes what the
        # store encodes later. It does not note the context, which would keep the whole request in memory.
        request, verb = ctx.request, ctx.verb
        headers = request.headers
        agent = headers.get("user-agent", "")
        if len(agent) > MAX_MEMOIZED_LENGTH:
            agent = product_of(agent)
        applies = verb == "patch" and headers.get("content-type", "").startswith(_APPLY_TYPES)
        trace = headers.get(_TRACE_HEADER, "")
        if trace and not _TRACE.fullmatch(trace):
            trace = ""
        user, subresource, claim = ctx.user.name, ctx.target.subresource, _noted_claim(request)
        return RequestCause(
            (self, ctx.now, user, ctx.impersonator, agent, verb, subresource, applies, claim, trace, term)
        )

    def _own_cause(self, verb: str, reason: str, term: str) -> SupportsBytes:
        claim = ("", "", 0, "", (), 0, "", reason)
        return RequestCause((self, self._clock.now(), _SERVER, "", _SERVER_AGENT, verb, "", False, claim, "", term))

    def time(self, arrived: datetime) -> int:
        """Return the time of a transaction whose request arrived at this time. Stores encode causes in the order of the
        transactions, so it must be called by the encoding only."""
        at = unix_milliseconds(arrived)
        if at > self.last:
            self.last = at
        return self.last

    async def _commit_fenced(self, term: Term, ops: Sequence[Op], cause: Callable[[], SupportsBytes]) -> Committed:
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


class RequestCause(tuple[Transactions, datetime, str, str, str, str, str, bool, Any, str, str], DeferredCause):
    """The parts of a cause: when the request arrived, the arguments of `_writer`, the claim (`_noted_claim`), the
    trace, and the term of the leader. The store makes the recorded form of them."""

    __slots__ = ()

    def __bytes__(self) -> bytes:
        transactions, arrived, user, impersonator, agent, verb, subresource, applies, claim, trace, term = self
        writer = _writer(user, impersonator, agent, verb, subresource, applies)
        return recorded(transactions.time(arrived), writer, _values(claim), trace, term)

    @staticmethod
    def join(causes: Sequence[RequestCause]) -> bytes | None:
        transactions = causes[0][0]
        parts, last = [], causes[0][1]
        for server, arrived, user, impersonator, agent, verb, subresource, applies, claim, trace, term in causes:
            if server is not transactions:
                return None
            if arrived > last:
                last = arrived
            writer = _writer(user, impersonator, agent, verb, subresource, applies)
            parts.append((arrived, writer, claim, trace, term))
        try:
            block = orjson.dumps((transactions.last, parts))
        except orjson.JSONEncodeError:  # the text of a claim is not valid Unicode
            return None
        transactions.time(last)
        return block

    @staticmethod
    def split(block: bytes) -> Sequence[SupportsBytes]:
        at, parts = orjson.loads(block)
        causes = []
        for arrived, writer, claim, trace, term in parts:
            at = max(at, unix_milliseconds(datetime.fromisoformat(arrived)))
            causes.append(_JoinedCause((at, writer, claim, trace, term)))
        return causes


class _JoinedCause(tuple[int, str, Any, str, str]):
    """A cause of a block: time, writer, claim, trace and term."""

    __slots__ = ()

    def __bytes__(self) -> bytes:
        at, writer, claim, trace, term = self
        return recorded(at, writer, _values(claim), trace, term)


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


def claimed(request: Request) -> tuple[Any, ...]:
    """Return the values of the claim that the client of a request makes; empty if it makes none."""
    return _values(_noted_claim(request))


def _values(noted: Sequence[Any] | str) -> tuple[Any, ...]:
    """Return the values of a noted claim."""
    if isinstance(noted, str):
        return _parsed_claim(noted) if noted else ()
    return run_claim_values(*noted)


def _noted_claim(request: Request) -> tuple[Any, ...] | str:
    """Return what the client of a request claims, as it came: the attributes of a run, or a header."""
    if isinstance(request, ObjectRequest) and request.claim:
        return request.claim
    header = request.headers.get(CAUSE_HEADER, "")
    return header if len(header) <= MAX_HEADER_LENGTH else ""


@lru_cache(maxsize=2048)
def _writer(user: str, impersonator: str, agent: str, verb: str, subresource: str, applies: bool) -> str:
    """Return the writer in the recorded form; `agent` is the User-Agent, and `applies` says whether the write is a
    server-side apply."""
    if applies:
        verb = "apply"
    if subresource:
        verb = f"{verb}/{subresource}"
    if impersonator:
        user = f"{user}<{impersonator}"
    return writer_text(_OWN_VERBS.get(verb, verb), user, product_of(agent))


@memoized(maxsize=2048)
def _parsed_claim(header: str) -> tuple[Any, ...]:
    """Return the values of the claim in a header; empty if it is none."""
    claim = parse_claim(header)
    return () if claim is None else claim_values(*claim)
