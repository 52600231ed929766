"""The part of etcd that belongs to one store, in the store's terms.

A key of the store is stored under a prefix, and its value in the form of `stored_value.py`. Every transaction has a
record: a number that identifies it, and its cause. The history of the records at etcd is the log of causes. A record is
stored with the first value that the transaction writes. Two more keys are stored under the prefix:

- `~cause` holds the record of the latest transaction that writes no value (up to version 0.2, of every transaction).
- `~offset` exists if the content was moved from another store. It holds a number that is added to every revision of
  etcd, so that revisions never fall by the move. The history of the store begins with the revision that wrote it.

One key is shared with all other users of the same etcd, among them API servers of Kubernetes: `compact_rev_key` holds
the revision of etcd up to which they have compacted its history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from setpoint.store.etcd import messages, stored_value
from setpoint.store.etcd.client import NO_SPACE, EtcdClient
from setpoint.store.interface import Delete, KeyValue, NotProcessed, Op, Page, Put, StoreError
from setpoint.store.transaction import check_key, without_stamp_prefix

CAUSE, OFFSET = "~cause", "~offset"
COMPACTED = b"compact_rev_key"
NUMBER_LENGTH = 16
_PAGE = 500


class OffsetChanged(StoreError):
    """The content of the prefix was replaced while the store was open."""


class Keyspace:
    """Reads and writes of one store at etcd. All revisions are the store's own, which include the offset."""

    def __init__(self, client: EtcdClient, prefix: str, offset: int, beginning: int) -> None:
        self.client = client
        self.prefix = prefix.encode()
        self.cause_key = self.prefix + CAUSE.encode()
        self.offset = offset
        self.beginning = beginning
        """The revision at which the history begins; earlier ones belong to the store that was copied. 0 if none was."""

    @classmethod
    async def open(cls, client: EtcdClient, prefix: str) -> Keyspace:
        """Read the offset. Raises StoreError."""
        found = (await client.range(messages.RangeRequest(key=prefix.encode() + OFFSET.encode()))).kvs
        if not found:
            return cls(client, prefix, 0, 0)
        offset = _offset_in(found[0].value)
        return cls(client, prefix, offset, offset + found[0].mod_revision)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def revision(self, deadline: float | None = None) -> int:
        """Return the current revision of etcd, as of a moment after the call. Raises Unavailable."""
        return await self.client.revision(deadline) + self.offset

    async def get(self, key: str, revision: int) -> KeyValue | None:
        """Return the entry as of a past revision. Raises EtcdCompacted, Unavailable."""
        request = messages.RangeRequest(key=self.prefix + key.encode(), revision=revision - self.offset)
        answer = await self.client.range(request)
        return self.entry(answer.kvs[0], key) if answer.kvs else None

    async def page(self, prefix: str, start: str, limit: int, revision: int) -> Page:
        """Return a page of keys as of a past revision. Raises EtcdCompacted, Unavailable."""
        if prefix[:1] in ("", "~"):  # the range contains keys of the store itself, which are not counted
            found = [each for each in await self.read(revision) if each.key >= max(prefix, start)]
            return Page(found[: limit or None], revision, bool(limit) and limit < len(found), len(found))
        request = messages.RangeRequest(key=self.prefix + max(prefix, start).encode(), limit=limit)
        request.range_end, request.revision = after_all(self.prefix + prefix.encode()), revision - self.offset
        answer = await self.client.range(request)
        own = len(self.prefix)
        items = [self.entry(each, each.key[own:].decode()) for each in answer.kvs]
        return Page(items, revision, answer.more, answer.count)

    async def read(self, revision: int) -> list[KeyValue]:
        """Return all entries as of `revision`, read in pages. Raises EtcdCompacted, OffsetChanged, Unavailable."""
        found: list[KeyValue] = []
        start, end, own = self.prefix, after_all(self.prefix), len(self.prefix)
        while True:
            request = messages.RangeRequest(key=start, range_end=end, limit=_PAGE, revision=revision - self.offset)
            page = await self.client.range(request)
            for each in page.kvs:
                key = each.key[own:].decode()
                if key == OFFSET:
                    if _offset_in(each.value) != self.offset:
                        raise self.replaced()
                elif key != CAUSE:
                    found.append(self.entry(each, key))
            if not page.more:
                return found
            start = page.kvs[-1].key + b"\0"

    def entry(self, found: Any, key: str) -> KeyValue:
        """Return an entry of etcd as one of the store's."""
        return self.entry_and_record(found, key)[0]

    def entry_and_record(self, found: Any, key: str) -> tuple[KeyValue, bytes]:
        """Return an entry of etcd as one of the store's, and the record that is stored with it; empty if none is."""
        record, data = stored_value.split(found.value)
        revision = found.mod_revision + self.offset
        value = without_stamp_prefix(data, revision)
        return KeyValue(key, value, found.create_revision + self.offset, revision), record

    def replaced(self) -> OffsetChanged:
        """Return the error of a store that was open when `~offset` was written: only a replacement writes it."""
        return OffsetChanged(f"the content of {self.prefix.decode()} at etcd was replaced; restart this server")

    async def watch(
        self, after: int, on_response: Callable[[Any], None], on_end: Callable[[str], None]
    ) -> Callable[[], None]:
        """Watch all keys of etcd, also of other prefixes, from the revision after `after` on. Raises Unavailable."""
        return await self.client.watch(after + 1 - self.offset, on_response, on_end)

    # -- writing ------------------------------------------------------------------------------------------------------

    def transaction(self, ops: Sequence[Op], number: bytes, cause: bytes) -> bytes:
        """Return the request that executes the operations if all their expectations hold.

        A Delete must have an expectation, and a positive one must be a revision of this store."""
        request = messages.TxnRequest()
        record = number + cause
        for op in ops:
            key = self.prefix + op.key.encode()
            if op.expect is not None:
                compare = request.compare.add()
                compare.target, compare.key = messages.MOD, key
                compare.mod_revision = op.expect - self.offset if op.expect else 0
            if isinstance(op, Put):
                put = request.success.add().request_put
                put.key, put.value = key, stored_value.encode(op, record)
                record = b""
            elif isinstance(op, Delete) and op.expect:
                request.success.add().request_delete_range.key = key
        if record and request.success:
            put = request.success.add().request_put
            put.key, put.value = self.cause_key, record
        data: bytes = request.SerializeToString()
        return data

    async def announce_compaction(self, revision: int, version: int | None = None) -> bool:
        """Write that etcd is compacted up to `revision`, only if the key has that version. Return whether it had.

        A database without space accepts no announcement, and must be compacted all the more: True. Raises
        Unavailable."""
        request = messages.TxnRequest()
        if version is not None:
            compare = request.compare.add()
            compare.target, compare.key, compare.version = messages.VERSION, COMPACTED, version
        put = request.success.add().request_put
        put.key, put.value = COMPACTED, b"%d" % (revision - self.offset)
        try:
            return bool((await self.client.txn(request)).succeeded)
        except NotProcessed as error:
            if str(error) != NO_SPACE:
                raise
            return True

    async def compaction_version(self) -> int:
        """Return how often compaction was announced. Raises Unavailable."""
        found = (await self.client.range(messages.RangeRequest(key=COMPACTED))).kvs
        return int(found[0].version) if found else 0

    def compaction(self, value: bytes) -> int:
        """Return the revision that an announcement contains, or 0 if it contains none."""
        return int(value) + self.offset if value.isdigit() else 0

    async def compact(self, revision: int) -> None:
        """Compact etcd; that it is compacted already is not an error. Raises Unavailable."""
        await self.client.compact(revision - self.offset)


def check_own_key(key: str) -> None:
    """Raise ValueError unless the key can be stored: those that begin with `~` are for the store itself."""
    check_key(key)
    if key.startswith("~"):
        raise ValueError(f"{key!r} cannot be a key: it begins with ~")


def after_all(prefix: bytes) -> bytes:
    """Return the first key after all keys with this prefix, whose last byte is not 255 because it is UTF-8."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _offset_in(value: bytes) -> int:
    if not value.isdigit():
        raise StoreError(f"the key {OFFSET} at etcd holds {value[:40]!r}, which is not a number")
    return int(value)
