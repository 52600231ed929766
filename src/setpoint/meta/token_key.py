"""Keys that sign tokens and keys that verify them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import Any

from setpoint.meta import base64url
from setpoint.meta.jose_header import BadJoseHeader, read_jose_header

_BLOCK = rb"-----BEGIN ([A-Z ]+)-----[^-]*-----END \1-----\n?"
_NO_KEYS = "data does not contain any valid RSA or ECDSA public keys"
_RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
"""Signature algorithms that are accepted; the first one is used for signing."""
_CURVES = {256: ("ES256", "P-256"), 384: ("ES384", "P-384"), 521: ("ES512", "P-521")}


class BadSignature(Exception):
    """The signature is not of this key."""


class UnknownKey(Exception):
    """The token names another key as its signer."""


class VerifyingKey:
    """An RSA or elliptic-curve public key."""

    def __init__(self, public: Any) -> None:
        self._given = public

    @property
    def _public(self) -> Any:
        return self._given

    @property
    def _is_rsa(self) -> bool:
        return hasattr(self._public.public_numbers(), "n")

    @cached_property
    def algorithm(self) -> str:
        return _RSA[0] if self._is_rsa else _CURVES[self._public.curve.key_size][0]

    @cached_property
    def id(self) -> str:
        """Return the key ID, a hash of the public key."""
        from cryptography.hazmat.primitives import serialization

        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return base64url.encode(sha256(der).digest())

    def open(self, token: str) -> bytes | None:
        """Return the claims of a token with a good signature; None: it is no token at all. Raises UnknownKey,
        BadSignature."""
        from jwt import DecodeError, InvalidTokenError
        from jwt.api_jws import decode, get_unverified_header

        try:
            head = read_jose_header(token.split(".", 1)[0])
        except BadJoseHeader:
            return None
        named = head.get("kid")
        if named and named != self.id:
            raise UnknownKey
        if head.get("b64") is False:
            raise BadSignature
        try:
            get_unverified_header(token)
        except DecodeError:
            return None
        except InvalidTokenError:
            raise BadSignature from None
        try:
            claims: bytes = decode(token, self._public, _RSA if self._is_rsa else [self.algorithm])
        except InvalidTokenError:
            raise BadSignature from None
        return claims

    @cached_property
    def published(self) -> dict[str, str]:
        """Return the public key as a JSON web key."""
        numbers = self._public.public_numbers()
        head = {"use": "sig", "kty": "RSA" if self._is_rsa else "EC", "kid": self.id}
        if self._is_rsa:
            return head | {"alg": self.algorithm, "n": _number(numbers.n), "e": _number(numbers.e)}
        size = self._public.curve.key_size
        length = (size + 7) // 8
        curve = {"crv": _CURVES[size][1], "alg": self.algorithm}
        return head | curve | {"x": _number(numbers.x, length), "y": _number(numbers.y, length)}


class TokenKey(VerifyingKey):
    """A signing key. `load` returns the private key as PEM and is called on first use.

    The cryptography libraries are loaded on first use too, so that a process that signs nothing does not load them."""

    def __init__(self, load: Callable[[], bytes]) -> None:
        super().__init__(None)
        self._load = load

    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return load_pem_private_key(self._load(), None)

    @cached_property
    def _public(self) -> Any:
        return self._key.public_key()

    def sign(self, claims: bytes) -> str:
        """Return a JSON web token of these claims."""
        from jwt.api_jws import encode

        return encode(claims, self._key, self.algorithm, {"kid": self.id, "typ": None})


def verifying_keys(data: bytes) -> list[VerifyingKey]:
    """Return the keys in a PEM file: public keys, and those of private keys and certificates.

    Raises ValueError if there is none, or one of a type that cannot sign tokens."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    found = []
    for match in re.finditer(_BLOCK, data):
        kind, block = match[1], match[0]
        if kind == b"EC PARAMETERS":
            continue
        if kind == b"CERTIFICATE":
            public: Any = x509.load_pem_x509_certificate(block).public_key()
        elif kind.endswith(b"PRIVATE KEY"):
            public = load_pem_private_key(block, None).public_key()
        else:
            public = load_pem_public_key(block)
        key = VerifyingKey(public)
        try:
            _ = key.algorithm
        except (AttributeError, KeyError):
            raise ValueError(_NO_KEYS) from None
        found.append(key)
    if not found:
        raise ValueError(_NO_KEYS)
    return found


def _number(value: int, length: int = 0) -> str:
    return base64url.encode(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))
