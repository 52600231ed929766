"""Refuses the writes of a leader that has been deposed.

A write that names the term of a Lease (`meta/lease_term.py`) is committed together with a comparison: the Lease must be
what it was when its holder and term were last examined. A renewal changes the Lease and not its term, so the first
write after it is compared again. What was examined is remembered: a write costs no additional read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.errors import BadRequest, Conflict
from setpoint.meta.lease_term import TERM_HEADER, Term, parse_term
from setpoint.store.interface import Check, CompareFailed, KeyValue, Op, Store

_LEASE = ("coordination.k8s.io", "leases")
_LEASES = next(each.storage_prefix for each in RESOURCES if (each.group, each.plural) == _LEASE)
_MOST_REMEMBERED = 1_000
_ATTEMPTS = 20


class _Seen(NamedTuple):
    revision: int
    holder: str
    transitions: int

    def is_of(self, term: Term) -> bool:
        return (self.holder, self.transitions) == (term.holder, term.transitions)


class Fencing:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[str, _Seen] = {}
        """The last known state of each Lease, by its key. The comparison in the transaction detects a stale one."""

    async def commit(self, header: str, ops: Sequence[Op], cause: bytes) -> tuple[int, Sequence[KeyValue | None]]:
        """Commit like `Store.txn` if the term in the header still holds its Lease; raise Conflict if it does not."""
        try:
            term = parse_term(header)
        except ValueError:
            raise BadRequest(f"the {TERM_HEADER} header is not NAMESPACE/NAME/TRANSITIONS/HOLDER") from None
        key = f"{_LEASES}{term.namespace}/{term.name}"
        seen = self._seen.get(key)
        if any(op.key == key for op in ops):
            # The Lease itself: what the write expects of it is compared anyway.
            await self._examine(key, term)
            return await self._store.txn(ops, cause)
        for _ in range(_ATTEMPTS):
            if seen is None or not seen.is_of(term):
                seen = await self._examine(key, term)
            try:
                return await self._store.txn([*ops, Check(key, seen.revision)], cause)
            except CompareFailed as failed:
                if failed.key != key:
                    raise
                seen = self._remember(key, failed.current)
        raise Conflict(f"the lease {term.namespace}/{term.name} changes too often to compare with it")

    async def _examine(self, key: str, term: Term) -> _Seen:
        """Return the Lease as it is, not as it was remembered; raises Conflict if it is not of this term."""
        await self._store.sync()
        seen = self._remember(key, await self._store.get(key))
        if seen is None or not seen.is_of(term):
            raise Conflict(
                f"{term.holder} no longer holds the lease {term.namespace}/{term.name} in term {term.transitions}: "
                "its writes are refused"
            )
        return seen

    def _remember(self, key: str, lease: KeyValue | None) -> _Seen | None:
        if lease is None:
            self._seen.pop(key, None)
            return None
        try:
            spec = orjson.loads(lease.value).get("spec") or {}
        except orjson.JSONDecodeError:  # encrypted, and the key is gone
            spec = {}
        seen = _Seen(lease.mod_revision, spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0)
        if len(self._seen) >= _MOST_REMEMBERED:
            self._seen.clear()
        self._seen[key] = seen
        return seen
