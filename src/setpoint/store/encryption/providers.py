"""Encryption providers of a resource: an ordered list of providers, each with an ordered list of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from setpoint.meta.goformat import aggregate
from setpoint.store.encryption.ciphers import Cipher, DecryptionError

ENCRYPTED = b"k8s:enc:"
_NO_PREFIX = "no matching prefix found"


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
