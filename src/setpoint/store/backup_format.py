"""The format of a backup: the state of any store at one revision, as a stream of bytes with a digest at the end.

A backup consists of

- a line that names the format and its version;
- the header, one line of JSON: the revision, the number of keys, the cluster and the time;
- a record for each key, in byte order: lengths of key and value, create and mod revision, key, value;
- the trailer: a record with an empty key whose revisions are the number of records and the revision of the state, and
  the SHA-256 digest of everything before the digest.

Values are as the store returns them, with the resourceVersion in them. Encrypted values stay encrypted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from setpoint.store.interface import KeyValue, Store, StoreError
from setpoint.store.snapshot import Snapshot

_NAME = b"setpoint backup "
_VERSION = b"2"
_MAGIC = _NAME + _VERSION + b"\n"
_MAX_HEADER = 4_096
_RECORD = Struct("!IIQQ")
_DIGEST_LENGTH = 32
_MAX_KEY, _MAX_VALUE = 1 << 16, 1 << 30
"""Lengths beyond which a record is taken for damaged instead of waited for."""
_SLICE = 256 << 10
"""Bytes of values after which a slice ends, so that one iteration of the event loop encodes less than twice as many."""


class InvalidBackup(StoreError):
    """A backup is damaged, incomplete or not a backup. The message continues a sentence that begins with its name."""


class BackupHeader(NamedTuple):
    revision: int
    """The revision at which the whole state was read."""
    keys: int
    """The number of keys."""
    cluster: str
    """The uid of the namespace kube-system, which identifies a cluster; empty if it is unknown."""
    created: str
    """The time of the backup, in Kubernetes' format."""


class Encoder:
    """Encodes one backup: the bytes of `start`, of `records` for all records in order, and of `end`."""

    def __init__(self, header: BackupHeader) -> None:
        self._header = header
        self._digest = hashlib.sha256()
        self._count = 0

    def start(self) -> bytes:
        line = json.dumps(self._header._asdict(), separators=(",", ":")).encode()
        return self._hashed(b"%b%b\n" % (_MAGIC, line))

    def records(self, items: Iterable[KeyValue]) -> Iterator[bytes]:
        """Yield the bytes of records in slices; a large value is divided."""
        parts, size = list[bytes](), 0
        for item in items:
            key, value = item.key.encode(), item.value
            parts += (_RECORD.pack(len(key), len(value), item.create_revision, item.mod_revision), key)
            self._count += 1
            for at in range(0, len(value), _SLICE):
                part = value[at : at + _SLICE]
                parts.append(part)
                size += len(part)
                if size >= _SLICE:
                    yield self._hashed(b"".join(parts))
                    parts, size = [], 0
        if parts:
            yield self._hashed(b"".join(parts))

    def end(self) -> bytes:
        if self._count != self._header.keys:
            raise StoreError(f"{self._count} keys were read for a backup, but there were {self._header.keys}")
        trailer = self._hashed(_RECORD.pack(0, 0, self._count, self._header.revision))
        return trailer + self._digest.digest()

    def _hashed(self, data: bytes) -> bytes:
        self._digest.update(data)
        return data


async def encoded(store: Store, created: str) -> AsyncGenerator[bytes, None]:
    """Yield the backup of a store in slices, with other work of the event loop in between.

    It is the state at one revision that includes everything acknowledged before the call, although writes continue.
    `store` is the backend, below any encryption. Raises StoreError."""
    await store.sync()
    async with Snapshot(store) as snapshot:
        header = BackupHeader(snapshot.revision, snapshot.count, await cluster_of(store), created)
        encoder = Encoder(header)
        yield encoder.start()
        async for page in snapshot.pages():
            for data in encoder.records(page):
                yield data
                await asyncio.sleep(0)
        yield encoder.end()


async def cluster_of(store: Store) -> str:
    """Return the uid of the namespace kube-system, or an empty string if it cannot be read."""
    found = await store.get("core/namespaces/kube-system")
    try:
        return str(json.loads(found.value)["metadata"]["uid"]) if found is not None else ""
    except (ValueError, LookupError, TypeError):
        return ""  # encrypted or damaged


class Decoder:
    """Decodes and verifies one backup from chunks of any size."""

    def __init__(self) -> None:
        self.header: BackupHeader | None = None
        """The header, once it was received."""
        self.complete = False
        """Whether the trailer was received, and the digest and all numbers are right."""
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._count = 0
        self._last = ""

    def feed(self, data: bytes) -> list[KeyValue]:
        """Return the records that are complete with this chunk. Raises InvalidBackup."""
        self._buffer += data
        if self.complete:
            self._expect(not self._buffer, "there is more data after its end")
        if self.header is None and not self._read_header():
            return []
        return self._records() if not self.complete else []

    def finish(self) -> BackupHeader:
        """Return the header when everything was fed. Raises InvalidBackup."""
        if self.header is None:
            self._check_name()
            raise InvalidBackup("is incomplete: it ends in its header")
        if not self.complete:
            raise InvalidBackup(f"is incomplete: it ends after {self._count} of {self.header.keys} keys")
        return self.header

    def _check_name(self) -> None:
        start = bytes(self._buffer[: len(_MAGIC)])
        if start == _MAGIC[: len(start)]:
            return
        if start.startswith(_NAME):
            version = start[len(_NAME) :].decode("ascii", "replace").strip()
            raise InvalidBackup(f"has format {version} of another version of Setpoint; this one reads format 2")
        raise InvalidBackup("is not a Setpoint backup")

    def _read_header(self) -> bool:
        self._check_name()
        end = self._buffer.find(b"\n", len(_MAGIC))
        if end < 0:
            self._expect(len(self._buffer) < _MAX_HEADER, "its header has no end")
            return False
        try:
            found = json.loads(self._buffer[len(_MAGIC) : end])
            header = BackupHeader(
                int(found["revision"]), int(found["keys"]), str(found["cluster"]), str(found["created"])
            )
        except (ValueError, LookupError, TypeError):
            raise InvalidBackup("is damaged: its header cannot be read") from None
        self._expect(header.revision >= 0 and header.keys >= 0, "its header cannot be right")
        self.header = header
        self._take(end + 1)
        return True

    def _take(self, length: int) -> None:
        self._digest.update(memoryview(self._buffer)[:length])
        del self._buffer[:length]

    def _records(self) -> list[KeyValue]:
        assert self.header is not None
        buffer, found, at = self._buffer, list[KeyValue](), 0
        while at + _RECORD.size <= len(buffer):
            key_length, value_length, created, modified = _RECORD.unpack_from(buffer, at)
            if not key_length:
                self._take(at)
                self._read_trailer()
                return found
            self._expect(
                key_length <= _MAX_KEY and value_length <= _MAX_VALUE and 0 < created <= modified, "a record is wrong"
            )
            key_at = at + _RECORD.size
            value_at = key_at + key_length
            if value_at + value_length > len(buffer):
                break
            try:
                key = buffer[key_at:value_at].decode()
            except UnicodeDecodeError:
                raise InvalidBackup("is damaged: a key is not UTF-8") from None
            self._expect(key > self._last, "its keys are not in order")
            self._expect(modified <= self.header.revision, f"{key} is newer than the backup")
            self._last = key
            self._count += 1
            at = value_at + value_length
            found.append(KeyValue(key, bytes(buffer[value_at:at]), created, modified))
        self._take(at)
        return found

    def _read_trailer(self) -> None:
        assert self.header is not None
        buffer, length = self._buffer, _RECORD.size + _DIGEST_LENGTH
        if len(buffer) < length:
            return
        _, value_length, count, revision = _RECORD.unpack_from(buffer)
        digest = bytes(buffer[_RECORD.size : length])
        self._take(_RECORD.size)
        self._expect(self._digest.digest() == digest, "its SHA-256 digest does not match its content")
        self._expect((value_length, count, revision) == (0, self._count, self.header.revision), "its trailer is wrong")
        self._expect(count == self.header.keys, f"it has {count} keys instead of {self.header.keys}")
        del buffer[:_DIGEST_LENGTH]
        self._expect(not buffer, "there is more data after its end")
        self.complete = True

    def _expect(self, condition: bool, otherwise: str) -> None:
        if not condition:
            raise InvalidBackup(f"is damaged: {otherwise}")
