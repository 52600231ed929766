"""Encryption of stored values: a store that encrypts and decrypts between the API server and any store backend.

Guarantees:

- A value written under an encrypted prefix never appears as plain text in a file, log or history of the backend.
- Every configured key can decrypt; the first one encrypts. A value that another key encrypted is *stale*: writing it
  again, even unchanged, encrypts it with the first key.
- A value that no key can decrypt is returned as `Unreadable`; all other values stay readable.
- The prefix and the layout of a stored value are upstream's: `k8s:enc:<provider>:v1:<key name>:<bytes>`. The plain text
  inside differs: it starts with the offset of the revision stamp, because the revision is not known yet when the value
  is encrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from setpoint.meta.goformat import aggregate
from setpoint.store.interface import (
    Archive,
    Cause,
    CompareFailed,
    Event,
    KeyValue,
    Limits,
    NotedCause,
    Op,
    Page,
    Put,
    Replay,
    Sink,
    Store,
    Subscription,
    Unreadable,
    Version,
)
from setpoint.store.transaction import stamped, with_stamp_prefix, without_stamp_prefix

Random = Callable[[int], bytes]
"""Function that returns the given number of cryptographically random bytes."""

_BLOCK = 16
_GCM_NONCE = 12
_SECRETBOX_NONCE, _SECRETBOX_TAG = 24, 16
_TOO_SHORT = "the stored data was shorter than the required size"
ENCRYPTED = b"k8s:enc:"
_NO_PREFIX = "no matching prefix found"
_BATCH = 500
_REPLAY_BATCH = 64
"""Maximum number of past events per replay step: each may have to be decrypted twice on the event loop."""


class DecryptionError(Exception):
    """A value could not be decrypted. The message says why and contains neither the data nor the key."""


class CipherUnavailable(Exception):
    """A cipher needs a package that is not installed. The message names the package."""


class Cipher(Protocol):
    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        """Return the encrypted value, bound to `associated_data` (the key it is stored under) if the cipher is an
        AEAD."""
        ...

    def decrypt(self, data: bytes, associated_data: bytes) -> bytes:
        """Return the decrypted value. Raises DecryptionError."""
        ...


class AesGcm:
    def __init__(self, key: bytes, random: Random) -> None:
        self._aead = AESGCM(key)
        self._random = random

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        nonce = self._random(_GCM_NONCE)
        return nonce + self._aead.encrypt(nonce, value, associated_data)

    def decrypt(self, data: bytes, associated_data: bytes) -> bytes:
        if len(data) < _GCM_NONCE:
            raise DecryptionError(_TOO_SHORT)
        try:
            return self._aead.decrypt(data[:_GCM_NONCE], data[_GCM_NONCE:], associated_data)
        except InvalidTag:
            raise DecryptionError("cipher: message authentication failed") from None


class AesCbc:
    """AES in CBC mode. It is not authenticated: anyone who can write to the store can change what is read."""

    def __init__(self, key: bytes, random: Random) -> None:
        self._algorithm = algorithms.AES(key)
        self._random = random

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        vector, padding = self._random(_BLOCK), _BLOCK - len(value) % _BLOCK
        encryptor = BlockCipher(self._algorithm, modes.CBC(vector)).encryptor()
        return vector + encryptor.update(value + bytes([padding]) * padding) + encryptor.finalize()

    def decrypt(self, data: bytes, associated_data: bytes) -> bytes:
        if len(data) < _BLOCK:
            raise DecryptionError(_TOO_SHORT)
        if len(data) % _BLOCK:
            raise DecryptionError("the stored data is not a multiple of the block size")
        decryptor = BlockCipher(self._algorithm, modes.CBC(data[:_BLOCK])).decryptor()
        value = decryptor.update(data[_BLOCK:]) + decryptor.finalize()
        padding = value[-1] if value else 0
        if not 0 < padding <= len(value):
            raise DecryptionError("invalid PKCS7 data (empty or not padded)")
        if value[-padding:] != value[-1:] * padding:
            raise DecryptionError("invalid padding on input")
        return value[:-padding]


class Secretbox:
    """NaCl's secretbox, XSalsa20 and Poly1305, as PyNaCl implements it."""

    def __init__(self, key: bytes, random: Random) -> None:
        """Raises CipherUnavailable if PyNaCl is not installed."""
        try:
            from nacl.exceptions import CryptoError  # optional dependency
            from nacl.secret import SecretBox
        except ImportError:
            raise CipherUnavailable("the secretbox provider needs PyNaCl: pip install 'setpoint[secretbox]'") from None
        self._box = SecretBox(key)
        self._failure: type[Exception] = CryptoError
        self._random = random

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        return bytes(self._box.encrypt(value, self._random(_SECRETBOX_NONCE)))

    def decrypt(self, data: bytes, associated_data: bytes) -> bytes:
        if len(data) < _SECRETBOX_NONCE + _SECRETBOX_TAG:
            raise DecryptionError(_TOO_SHORT)
        try:
            return bytes(self._box.decrypt(data))
        except self._failure:
            raise DecryptionError("output array was not large enough for encryption") from None  # upstream's message


class Provider(Protocol):
    prefix: bytes
    """Prefix of the values that this provider encrypted; empty if it does not encrypt."""

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes: ...

    def decrypt(self, data: bytes, associated_data: bytes) -> tuple[bytes, bool]:
        """Return the value for the `data` after the prefix, and whether it is stale. Raises DecryptionError."""
        ...


class Identity:
    """The provider that stores plain text. It refuses to read encrypted values."""

    prefix = b""

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        return value

    def decrypt(self, data: bytes, associated_data: bytes) -> tuple[bytes, bool]:
        if data.startswith(ENCRYPTED):
            raise DecryptionError("identity transformer tried to read encrypted data")
        return data, False


class NamedKey(NamedTuple):
    name: str
    cipher: Cipher


class KeyedProvider:
    """A provider that uses one cipher with several keys."""

    def __init__(self, provider: str, display_name: str, keys: Sequence[NamedKey]) -> None:
        self.prefix = f"k8s:enc:{provider}:v1:".encode()
        self._no_key = f"no matching key was found for the provided {display_name} transformer"
        self._keys = [(f"{key.name}:".encode(), key.cipher) for key in keys]

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        name, cipher = self._keys[0]
        return name + cipher.encrypt(value, associated_data)

    def decrypt(self, data: bytes, associated_data: bytes) -> tuple[bytes, bool]:
        problems: list[str] = []
        for at, (name, cipher) in enumerate(self._keys):
            if data.startswith(name):
                try:
                    return cipher.decrypt(data[len(name) :], associated_data), at > 0
                except DecryptionError as error:
                    problems.append(str(error))
        raise DecryptionError(aggregate(problems) if problems else self._no_key)


class Transformer:
    """An ordered list of providers. The first one encrypts; each of them may decrypt."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = tuple(providers)

    @property
    def encrypts(self) -> bool:
        return bool(self._providers[0].prefix)

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        first = self._providers[0]
        return first.prefix + first.encrypt(value, associated_data)

    def decrypt(self, data: bytes, associated_data: bytes) -> tuple[bytes, bool]:
        """Return the decrypted value and whether it is stale. Raises DecryptionError.

        A provider that fails does not stop the search: during a key rotation the same provider may be listed twice,
        with different keys."""
        problems: list[str] = []
        for at, provider in enumerate(self._providers):
            prefix = provider.prefix
            if data.startswith(prefix):
                try:
                    value, stale = provider.decrypt(data[len(prefix) :], associated_data)
                    return value, stale or at > 0
                except DecryptionError as error:
                    if prefix:
                        problems.append(str(error))
        raise DecryptionError(aggregate(problems) if problems else _NO_PREFIX)


class Transformers:
    """The transformers of all resources, by group and resource name; `*` matches any."""

    def __init__(self, by_resource: dict[tuple[str, str], Transformer]) -> None:
        self._by_resource = by_resource
        self._by_folder: dict[str, Transformer | None] = {}

    def for_key(self, key: str) -> Transformer | None:
        """Return the transformer for a key `<group>/<resource>/...`, or None if its values are stored as plain text."""
        end = key.find("/", key.find("/") + 1)
        if end < 0:
            return None
        folder = key[:end]
        if folder not in self._by_folder:
            self._by_folder[folder] = self._find(folder)
        return self._by_folder[folder]

    def _find(self, folder: str) -> Transformer | None:
        group, _, resource = folder.partition("/")
        group = "" if group == "core" else group
        for wanted in ((group, resource), (group, "*"), ("*", "*")):
            found = self._by_resource.get(wanted)
            if found is not None:
                return found
        return None


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

    @property
    def limits(self) -> Limits:
        return self._backend.limits

    @property
    def shared(self) -> bool:
        return self._backend.shared

    @property
    def archive(self) -> Archive | None:
        archive = self._backend.archive
        return _DecryptedArchive(archive, self._decrypt) if archive is not None else None

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

    async def compact_if_first(self, revision: int) -> bool:
        return await self._backend.compact_if_first(revision)

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

    async def changes_of(self, key: str, before: int = 0, limit: int = 0) -> Sequence[Event]:
        return self._decrypt_events(await self._backend.changes_of(key, before, limit))

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
        data = stored.value
        if self._pending_puts and (put := self._pending_puts.get(data)) is not None:
            return stored.with_value(_stamped(put, stored.mod_revision))
        try:
            value, _ = transformer.decrypt(data, stored.key.encode())
        except DecryptionError as error:
            return stored.with_value(Unreadable(data, str(error)))
        if value is data:
            return stored  # stored as plain text, so it is stamped already
        try:
            return stored.with_value(without_stamp_prefix(value, stored.mod_revision))
        except ValueError:
            # An unauthenticated cipher may decrypt damaged data to arbitrary bytes.
            return stored.with_value(Unreadable(data, "the decrypted data is malformed"))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def txn(self, ops: Sequence[Op], cause: bytes | NotedCause = b"") -> tuple[int, Sequence[KeyValue | None]]:
        plain: dict[int, Put] = {}
        encrypted = list(ops)
        for at, op in enumerate(ops):
            if isinstance(op, Put):
                transformer = self.transformers.for_key(op.key)
                if transformer is not None and transformer.encrypts:
                    plain[at] = op
                    data = transformer.encrypt(with_stamp_prefix(op), op.key.encode())
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
            item.with_value(_stamped(plain[at], item.mod_revision)) if item is not None and at in plain else item
            for at, item in enumerate(answers)
        ]


class _DecryptedArchive:
    """The archive of a backend, with its versions decrypted."""

    def __init__(self, archive: Archive, decrypt: Callable[[KeyValue], KeyValue]) -> None:
        self._archive = archive
        self._decrypt = decrypt
        self.append = archive.append
        self.excludes = archive.excludes
        self.transactions = archive.transactions
        self.revision_at = archive.revision_at
        self.time_of = archive.time_of
        self.keeps = archive.keeps
        self.close = archive.close

    @property
    def oldest(self) -> int:
        return self._archive.oldest

    @property
    def newest(self) -> int:
        return self._archive.newest

    async def get(self, key: str, revision: int) -> Version | None:
        found = await self._archive.get(key, revision)
        return self._decrypted(found) if found is not None else None

    async def list(self, prefix: str, revision: int) -> dict[str, Version]:
        found = await self._archive.list(prefix, revision)
        return {key: self._decrypted(version) for key, version in found.items()}

    async def versions(self, key: str, before: int, limit: int) -> Sequence[Version]:
        return [self._decrypted(each) for each in await self._archive.versions(key, before, limit)]

    async def marked(self, prefix: str, revision: int) -> Sequence[Version]:
        return [self._decrypted(each) for each in await self._archive.marked(prefix, revision)]

    def _decrypted(self, version: Version) -> Version:
        if version.value is None:
            return version
        stored = KeyValue(version.key, version.value, version.created, version.revision)
        return version._replace(value=self._decrypt(stored).value)


def _stamped(op: Put, revision: int) -> bytes:
    return op.value if op.stamp is None else stamped(op.value, op.stamp, revision)
