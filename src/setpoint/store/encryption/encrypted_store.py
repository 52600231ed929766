"""A store whose values are encrypted on their way in and decrypted on their way out.

The revision is stamped into an object when it is known, which is after it was encrypted: so the place for it is kept
with the value, and readers get it stamped by the mod_revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from setpoint.store.encryption.ciphers import DecryptionError
from setpoint.store.encryption.providers import Transformer
from setpoint.store.interface import (
    Cause,
    CompareFailed,
    Event,
    KeyValue,
    Op,
    Page,
    Put,
    Replay,
    Sink,
    Store,
    Subscription,
    Unreadable,
)
from setpoint.store.transaction import stamped

_LONGEST_STAMP = 12
_AT_ONCE = 500
_REPLAYED_AT_ONCE = 64
"""Past events of one step: each may have to be decrypted twice, on the event loop."""


class ByKey(Protocol):
    def for_key(self, key: str) -> Transformer | None:
        """None: its values are kept as they are."""
        ...


class EncryptedStore:
    def __init__(self, below: Store, transformers: ByKey) -> None:
        self._below = below
        self.transformers = transformers
        """May be replaced at any time: what is written and read from then on goes by the new ones."""
        self._under_way: dict[bytes, Put] = {}
        """What is being written, by what it is encrypted to: those who watch need not decrypt it."""

    # -- as it is below -----------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self._below.revision

    @property
    def compacted(self) -> int:
        return self._below.compacted

    @property
    def failure(self) -> str | None:
        return self._below.failure

    @property
    def unavailable(self) -> str | None:
        return self._below.unavailable

    async def sync(self) -> int:
        return await self._below.sync()

    async def reached(self, revision: int) -> None:
        await self._below.reached(revision)

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        return await self._below.causes(after, limit)

    def size(self) -> int:
        return self._below.size()

    async def compact(self, revision: int) -> None:
        await self._below.compact(revision)

    async def close(self) -> None:
        await self._below.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        return self._read(await self._below.get(key, revision))

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        page = await self._below.list(prefix, start=start, limit=limit, revision=revision)
        return page._replace(items=[self._decrypted(item) for item in page.items])

    def watch(self, prefix: str, after: int, sink: Sink) -> Subscription:
        def decrypting(events: Sequence[Event], revision: int) -> None:
            sink(self._decrypted_events(events), revision)

        return self._below.watch(prefix, after, decrypting)

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        events, revision = await self._below.replay(prefix, after, min(limit, _REPLAYED_AT_ONCE))
        return Replay(self._decrypted_events(events), revision)

    def _decrypted_events(self, events: Sequence[Event]) -> Sequence[Event]:
        return [event._replace(now=self._read(event.now), before=self._read(event.before)) for event in events]

    async def stale(self, key: str) -> bool:
        """Whether the value should be written once more, though nothing in it has changed."""
        kept, transformer = await self._below.get(key), self.transformers.for_key(key)
        if kept is None or transformer is None:
            return False
        try:
            return transformer.decrypt(kept.value, key.encode())[1]
        except DecryptionError:
            return False

    async def unreadable(self) -> Sequence[str]:
        """The keys of those values that none of the transformers can read, whoever may still have them in memory."""
        found, start = list[str](), ""
        while True:
            page = await self.list("", start=start, limit=_AT_ONCE)
            found += [item.key for item in page.items if isinstance(item.value, Unreadable)]
            if len(page.items) < _AT_ONCE:
                return found
            start = page.items[-1].key + "\0"

    def _read(self, kept: KeyValue | None) -> KeyValue | None:
        return self._decrypted(kept) if kept is not None else None

    def _decrypted(self, kept: KeyValue) -> KeyValue:
        transformer = self.transformers.for_key(kept.key)
        if transformer is None:
            return kept
        if self._under_way and (put := self._under_way.get(kept.value)) is not None:
            return kept._replace(value=_stamped(put, kept.mod_revision))
        try:
            value, _ = transformer.decrypt(kept.value, kept.key.encode())
        except DecryptionError as error:
            return kept._replace(value=Unreadable(kept.value, str(error)))
        if value is kept.value:
            return kept  # never encrypted, so it is stamped already
        try:
            return kept._replace(value=_restored(value, kept.mod_revision))
        except ValueError:
            # What is not authenticated may be decrypted to anything.
            return kept._replace(value=Unreadable(kept.value, "the decrypted data makes no sense"))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def txn(self, ops: Sequence[Op], cause: bytes = b"") -> tuple[int, Sequence[KeyValue | None]]:
        plain: dict[int, Put] = {}
        sent = list(ops)
        for at, op in enumerate(ops):
            if isinstance(op, Put):
                transformer = self.transformers.for_key(op.key)
                if transformer is not None and transformer.encrypts:
                    plain[at] = op
                    data = transformer.encrypt(_with_stamp(op), op.key.encode())
                    sent[at] = Put(op.key, data, op.expect)
                    self._under_way[data] = op
        try:
            revision, answers = await self._below.txn(sent, cause)
        except CompareFailed as failed:
            raise CompareFailed(failed.key, self._read(failed.current)) from None
        finally:
            for at in plain:
                self._under_way.pop(sent[at].value, None)  # type: ignore[union-attr]
        if not plain:
            return revision, answers
        return revision, [
            kept._replace(value=_stamped(plain[at], kept.mod_revision)) if kept is not None and at in plain else kept
            for at, kept in enumerate(answers)
        ]


def _with_stamp(op: Put) -> bytes:
    """The value, with the place of the revision in front. Raises ValueError."""
    if op.stamp is None:
        return b":" + op.value
    if not 0 <= op.stamp <= len(op.value):
        raise ValueError(f"the stamp at {op.stamp} is outside of a value of {len(op.value)} bytes")
    return b"%d:%b" % (op.stamp, op.value)


def _stamped(op: Put, revision: int) -> bytes:
    return op.value if op.stamp is None else stamped(op.value, op.stamp, revision)


def _restored(data: bytes, revision: int) -> bytes:
    """Raises ValueError."""
    end = data.index(b":", 0, _LONGEST_STAMP)
    value = data[end + 1 :]
    return stamped(value, int(data[:end]), revision) if end else value
