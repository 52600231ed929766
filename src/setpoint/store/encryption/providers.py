"""Which keys read and write the values of a resource: providers in order, each with its keys in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from setpoint.meta.goformat import aggregate
from setpoint.store.encryption.ciphers import Cipher, DecryptionError

ENCRYPTED = b"k8s:enc:"
_NO_PREFIX = "no matching prefix found"


class Provider(Protocol):
    prefix: bytes
    """What its values begin with; empty: it does not encrypt."""

    def encrypt(self, value: bytes, place: bytes) -> bytes: ...

    def decrypt(self, data: bytes, place: bytes) -> tuple[bytes, bool]:
        """What follows the prefix; and whether it is stale. Raises DecryptionError."""
        ...


class Identity:
    """Values as they are. What is encrypted is none of its business."""

    prefix = b""

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        return value

    def decrypt(self, data: bytes, place: bytes) -> tuple[bytes, bool]:
        if data.startswith(ENCRYPTED):
            raise DecryptionError("identity transformer tried to read encrypted data")
        return data, False


class NamedKey(NamedTuple):
    name: str
    cipher: Cipher


class Keys:
    """One way to encrypt, with several keys."""

    def __init__(self, provider: str, shown: str, keys: Sequence[NamedKey]) -> None:
        self.prefix = f"k8s:enc:{provider}:v1:".encode()
        self._no_key = f"no matching key was found for the provided {shown} transformer"
        self._keys = [(f"{key.name}:".encode(), key.cipher) for key in keys]

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        name, cipher = self._keys[0]
        return name + cipher.encrypt(value, place)

    def decrypt(self, data: bytes, place: bytes) -> tuple[bytes, bool]:
        problems: list[str] = []
        for at, (name, cipher) in enumerate(self._keys):
            if data.startswith(name):
                try:
                    return cipher.decrypt(data[len(name) :], place), at > 0
                except DecryptionError as error:
                    problems.append(str(error))
        raise DecryptionError(aggregate(problems) if problems else self._no_key)


class Transformer:
    """The first provider writes; any may read."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = tuple(providers)

    @property
    def encrypts(self) -> bool:
        return bool(self._providers[0].prefix)

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        first = self._providers[0]
        return first.prefix + first.encrypt(value, place)

    def decrypt(self, data: bytes, place: bytes) -> tuple[bytes, bool]:
        """Raises DecryptionError. Whoever fails does not keep those after it from trying: the same provider may be
        there twice, with keys to go to and keys to come from."""
        problems: list[str] = []
        for at, provider in enumerate(self._providers):
            prefix = provider.prefix
            if data.startswith(prefix):
                try:
                    value, stale = provider.decrypt(data[len(prefix) :], place)
                    return value, stale or at > 0
                except DecryptionError as error:
                    if prefix:
                        problems.append(str(error))
        raise DecryptionError(aggregate(problems) if problems else _NO_PREFIX)


class Transformers:
    """Of all resources, by group and name; `*` stands for any."""

    def __init__(self, by_resource: dict[tuple[str, str], Transformer]) -> None:
        self._by_resource = by_resource
        self._by_folder: dict[str, Transformer | None] = {}

    def for_key(self, key: str) -> Transformer | None:
        """Keys of objects are `<group>/<resource>/...`; what is not there is kept as it is."""
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
