"""The ways to encrypt a value, each with one key. Layouts and complaints are upstream's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from setpoint.store.encryption import salsa

Random = Callable[[int], bytes]
"""So many bytes that nobody can guess."""

_BLOCK = 16
_GCM_NONCE = 12
_TOO_SHORT = "the stored data was shorter than the required size"


class DecryptionError(Exception):
    """The text says why, without the data and without the key."""


class Cipher(Protocol):
    def encrypt(self, value: bytes, place: bytes) -> bytes:
        """`place` is where the value is kept: elsewhere it must not be readable, if the way to encrypt knows how."""
        ...

    def decrypt(self, data: bytes, place: bytes) -> bytes:
        """Raises DecryptionError."""
        ...


class AesGcm:
    def __init__(self, key: bytes, random: Random) -> None:
        self._aead = AESGCM(key)
        self._random = random

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        nonce = self._random(_GCM_NONCE)
        return nonce + self._aead.encrypt(nonce, value, place)

    def decrypt(self, data: bytes, place: bytes) -> bytes:
        if len(data) < _GCM_NONCE:
            raise DecryptionError(_TOO_SHORT)
        try:
            return self._aead.decrypt(data[:_GCM_NONCE], data[_GCM_NONCE:], place)
        except InvalidTag:
            raise DecryptionError("cipher: message authentication failed") from None


class AesCbc:
    """Not authenticated: whoever can write to the store can change what is read."""

    def __init__(self, key: bytes, random: Random) -> None:
        self._algorithm = algorithms.AES(key)
        self._random = random

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        vector, padding = self._random(_BLOCK), _BLOCK - len(value) % _BLOCK
        encryptor = BlockCipher(self._algorithm, modes.CBC(vector)).encryptor()
        return vector + encryptor.update(value + bytes([padding]) * padding) + encryptor.finalize()

    def decrypt(self, data: bytes, place: bytes) -> bytes:
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
    def __init__(self, key: bytes, random: Random) -> None:
        self._key = key
        self._random = random

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        nonce = self._random(salsa.NONCE)
        return nonce + salsa.seal(self._key, nonce, value)

    def decrypt(self, data: bytes, place: bytes) -> bytes:
        if len(data) < salsa.NONCE + salsa.TAG:
            raise DecryptionError(_TOO_SHORT)
        value = salsa.open_(self._key, data[: salsa.NONCE], data[salsa.NONCE :])
        if value is None:
            raise DecryptionError("output array was not large enough for encryption")  # which is how upstream has it
        return value
