"""Keys that sign tokens, and tell whether they did."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import Any

_CURVES = {256: ("ES256", "P-256"), 384: ("ES384", "P-384"), 521: ("ES512", "P-521")}


class BadSignature(Exception):
    """The signature is not of this key."""


class UnknownKey(Exception):
    """The token says that another key signed it."""


class TokenKey:
    """RSA or elliptic. `load` gives it as PEM, when it is first needed.

    The libraries are loaded on first use too: who is asked for no token does without them."""

    def __init__(self, load: Callable[[], bytes]) -> None:
        self._load = load

    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return load_pem_private_key(self._load(), None)

    @cached_property
    def _public(self) -> Any:
        return self._key.public_key()

    @property
    def _is_rsa(self) -> bool:
        return hasattr(self._public.public_numbers(), "n")

    @cached_property
    def algorithm(self) -> str:
        return "RS256" if self._is_rsa else _CURVES[self._key.curve.key_size][0]

    @cached_property
    def id(self) -> str:
        """Derived from the public key in a way that does not lead back to it."""
        from cryptography.hazmat.primitives import serialization

        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return _base64(sha256(der).digest())

    def sign(self, claims: bytes) -> str:
        """A JSON web token of these claims."""
        from jwt.api_jws import encode

        return encode(claims, self._key, self.algorithm, {"kid": self.id, "typ": None})

    def open(self, token: str) -> bytes | None:
        """The claims of a token with a good signature; None: it is no token at all. Raises UnknownKey, BadSignature."""
        from jwt import InvalidTokenError
        from jwt.api_jws import decode, get_unverified_header

        try:
            named = get_unverified_header(token).get("kid")
        except InvalidTokenError:
            return None
        if named and named != self.id:
            raise UnknownKey
        try:
            claims: bytes = decode(token, self._public, [self.algorithm])
        except InvalidTokenError:
            raise BadSignature from None
        return claims

    @cached_property
    def published(self) -> dict[str, str]:
        """The public key as a JSON web key."""
        numbers = self._public.public_numbers()
        head = {"use": "sig", "kty": "RSA" if self._is_rsa else "EC", "kid": self.id}
        if self._is_rsa:
            return head | {"alg": self.algorithm, "n": _number(numbers.n), "e": _number(numbers.e)}
        size = self._key.curve.key_size
        length = (size + 7) // 8
        curve = {"crv": _CURVES[size][1], "alg": self.algorithm}
        return head | curve | {"x": _number(numbers.x, length), "y": _number(numbers.y, length)}


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, length: int = 0) -> str:
    return _base64(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))
