"""A store that encrypts values before it writes them to its backend and decrypts them when they are read.

The revision is stamped into an object when the backend assigns it, which is after encryption. The offset of the stamp
is therefore encrypted together with the value, and readers stamp the mod_revision after decryption."""

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

_MAX_STAMP_DIGITS = 12
_BATCH = 500
_REPLAY_BATCH = 64
"""Maximum number of past events per replay step: each may have to be decrypted twice on the event loop."""


class TransformerLookup(Protocol):
    def for_key(self, key: str) -> Transformer | None:
        """Return the transformer for the values of `key`, or None if they are stored as plain text."""
        ...


class EncryptedStore:
    def __init__(self, backend: Store, transformers: TransformerLookup) -> None:
        self._backend = backend
        self.transformers = transformers
        """Transformers for all reads and writes from now on; they may be replaced at any time."""
        self._pending_puts: dict[bytes, Put] = {}
        """Puts whose transaction is running, by their encrypted value: watchers of them need not decrypt it."""

    # -- delegated to the backend -------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        return self._backend.revision

    @property
    def compacted(self) -> int:
        return self._backend.compacted

    @property
    def failure(self) -> str | None:
        return self._backend.failure

    @property
    def unavailable(self) -> str | None:
        return self._backend.unavailable

    async def sync(self) -> int:
        return await self._backend.sync()

    async def wait_for_revision(self, revision: int) -> None:
        await self._backend.wait_for_revision(revision)

    async def causes(self, after: int, limit: int = 0) -> Sequence[Cause]:
        return await self._backend.causes(after, limit)

    def size(self) -> int:
        return self._backend.size()

    async def compact(self, revision: int) -> None:
        await self._backend.compact(revision)

    async def close(self) -> None:
        await self._backend.close()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        return self._decrypt_optional(await self._backend.get(key, revision))

    async def list(self, prefix: str, *, start: str = "", limit: int = 0, revision: int = 0) -> Page:
        page = await self._backend.list(prefix, start=start, limit=limit, revision=revision)
        return page._replace(items=[self._decrypt(item) for item in page.items])

    def watch(self, prefix: str, after: int, sink: Sink) -> Subscription:
        def decrypting(events: Sequence[Event], revision: int) -> None:
            sink(self._decrypt_events(events), revision)

        return self._backend.watch(prefix, after, decrypting)

    async def replay(self, prefix: str, after: int, limit: int) -> Replay:
        events, revision = await self._backend.replay(prefix, after, min(limit, _REPLAY_BATCH))
        return Replay(self._decrypt_events(events), revision)

    def _decrypt_events(self, events: Sequence[Event]) -> Sequence[Event]:
        decrypt = self._decrypt_optional
        return [event._replace(now=decrypt(event.now), before=decrypt(event.before)) for event in events]

    async def stale(self, key: str) -> bool:
        """Return whether the value should be written again, even unchanged, to encrypt it with the first key."""
        stored, transformer = await self._backend.get(key), self.transformers.for_key(key)
        if stored is None or transformer is None:
            return False
        try:
            return transformer.decrypt(stored.value, key.encode())[1]
        except DecryptionError:
            return False

    async def unreadable(self) -> Sequence[str]:
        """Return the keys whose stored values no transformer can decrypt, even if caches still hold them decrypted."""
        found, start = list[str](), ""
        while True:
            page = await self.list("", start=start, limit=_BATCH)
            found += [item.key for item in page.items if isinstance(item.value, Unreadable)]
            if len(page.items) < _BATCH:
                return found
            start = page.items[-1].key + "\0"

    def _decrypt_optional(self, stored: KeyValue | None) -> KeyValue | None:
        return self._decrypt(stored) if stored is not None else None

    def _decrypt(self, stored: KeyValue) -> KeyValue:
        transformer = self.transformers.for_key(stored.key)
        if transformer is None:
            return stored
        if self._pending_puts and (put := self._pending_puts.get(stored.value)) is not None:
            return stored._replace(value=_stamped(put, stored.mod_revision))
        try:
            value, _ = transformer.decrypt(stored.value, stored.key.encode())
        except DecryptionError as error:
            return stored._replace(value=Unreadable(stored.value, str(error)))
        if value is stored.value:
            return stored  # stored as plain text, so it is stamped already
        try:
            return stored._replace(value=_without_stamp_prefix(value, stored.mod_revision))
        except ValueError:
            # An unauthenticated cipher may decrypt damaged data to arbitrary bytes.
            return stored._replace(value=Unreadable(stored.value, "the decrypted data is malformed"))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def txn(self, ops: Sequence[Op], cause: bytes = b"") -> tuple[int, Sequence[KeyValue | None]]:
        plain: dict[int, Put] = {}
        encrypted = list(ops)
        for at, op in enumerate(ops):
            if isinstance(op, Put):
                transformer = self.transformers.for_key(op.key)
                if transformer is not None and transformer.encrypts:
                    plain[at] = op
                    data = transformer.encrypt(_with_stamp_prefix(op), op.key.encode())
                    encrypted[at] = Put(op.key, data, op.expect)
                    self._pending_puts[data] = op
        try:
            revision, answers = await self._backend.txn(encrypted, cause)
        except CompareFailed as failed:
            raise CompareFailed(failed.key, self._decrypt_optional(failed.current)) from None
        finally:
            for at in plain:
                self._pending_puts.pop(encrypted[at].value, None)  # type: ignore[union-attr]
        if not plain:
            return revision, answers
        return revision, [
            item._replace(value=_stamped(plain[at], item.mod_revision)) if item is not None and at in plain else item
            for at, item in enumerate(answers)
        ]


def _with_stamp_prefix(op: Put) -> bytes:
    """Return the value with the offset of its revision stamp in front. Raises ValueError."""
    if op.stamp is None:
        return b":" + op.value
    if not 0 <= op.stamp <= len(op.value):
        raise ValueError(f"the stamp at {op.stamp} is outside of a value of {len(op.value)} bytes")
    return b"%d:%b" % (op.stamp, op.value)


def _stamped(op: Put, revision: int) -> bytes:
    return op.value if op.stamp is None else stamped(op.value, op.stamp, revision)


def _without_stamp_prefix(data: bytes, revision: int) -> bytes:
    """Return the value without the offset in front, stamped with `revision`. Raises ValueError."""
    end = data.index(b":", 0, _MAX_STAMP_DIGITS)
    value = data[end + 1 :]
    return stamped(value, int(data[:end]), revision) if end else value
