"""Ciphers that encrypt a value with one key each. Layouts and error messages are upstream's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from setpoint.store.encryption import salsa

Random = Callable[[int], bytes]
"""Function that returns the given number of cryptographically random bytes."""

_BLOCK = 16
_GCM_NONCE = 12
_TOO_SHORT = "the stored data was shorter than the required size"


class DecryptionError(Exception):
    """A value could not be decrypted. The message says why and contains neither the data nor the key."""


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
    def __init__(self, key: bytes, random: Random) -> None:
        self._key = key
        self._random = random

    def encrypt(self, value: bytes, associated_data: bytes) -> bytes:
        nonce = self._random(salsa.NONCE)
        return nonce + salsa.seal(self._key, nonce, value)

    def decrypt(self, data: bytes, associated_data: bytes) -> bytes:
        if len(data) < salsa.NONCE + salsa.TAG:
            raise DecryptionError(_TOO_SHORT)
        value = salsa.open_(self._key, data[: salsa.NONCE], data[salsa.NONCE :])
        if value is None:
            raise DecryptionError("output array was not large enough for encryption")  # upstream's message
        return value
