"""Signed tokens (RFC 7515): keys that sign and verify them, validation of their headers, and base64url."""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from functools import cached_property
from hashlib import sha1, sha256
from typing import Any

from setpoint.meta.json_syntax import read_strictly

_TEXTS = ("kid", "alg", "nonce")
_KEY_TEXTS = ("use", "kty", "kid", "crv", "alg", "x5t", "x5t#S256")
_KEY_NUMBERS = ("k", "x", "y", "n", "e", "d", "p", "q", "dp", "dq", "qi")
_KEY_CURVES = {"P-256": ("SECP256R1", 32), "P-384": ("SECP384R1", 48), "P-521": ("SECP521R1", 66)}
_WORD = 2**64 - 1
"""Mask of the part of an exponent that is compared."""
_URL_ALPHABET = re.compile(r"[A-Za-z0-9_-]*")
_BLOCK = rb"-----BEGIN ([A-Z ]+)-----[^-]*-----END \1-----\n?"
_NO_KEYS = "data does not contain any valid RSA or ECDSA public keys"
_RSA = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
"""Signature algorithms that are accepted; the first one is used for signing."""
_CURVES = {256: ("ES256", "P-256"), 384: ("ES384", "P-384"), 521: ("ES512", "P-521")}


def base64url_encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def base64url_decode(text: str) -> bytes:
    """Decode base64url and ignore characters outside of the alphabet. Raises ValueError."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class BadJoseHeader(Exception):
    """The header is invalid; the message says why."""


def read_jose_header(part: str) -> dict[str, Any]:
    """Parse the header, the first of the token's three parts. Raises BadJoseHeader."""
    try:
        head = read_strictly(_bytes(part))
    except ValueError:
        raise BadJoseHeader("it cannot be read") from None
    if not isinstance(head, dict):
        raise BadJoseHeader("it is not an object")
    for name in _TEXTS:
        if not isinstance(head.get(name), str | None):
            raise BadJoseHeader(f"failed to unmarshal {name}")
    if head.get("x5c") is not None:
        try:
            _certificates(head["x5c"])
        except ValueError as error:
            raise BadJoseHeader(f"failed to unmarshal x5c header: {error}") from None
    if head.get("jwk") is not None:
        _check_key(head["jwk"])
    return head


def _check_key(jwk: Any) -> None:
    try:
        is_public = _is_public(jwk)
    except ValueError as error:
        raise BadJoseHeader(f"failed to unmarshal JWK: {error}") from None
    if not is_public:
        raise BadJoseHeader("go-jose/go-jose: invalid embedded jwk, must be public key")


def _is_public(jwk: Any) -> bool:
    """Return whether a JWK is a public key. Raises ValueError if it is no key."""
    if not isinstance(jwk, dict):
        raise ValueError("it is not an object")
    for name in _KEY_TEXTS:
        if not isinstance(jwk.get(name), str | None):
            raise ValueError(f"{name} is not a text")
    if not isinstance(jwk.get("x5u"), dict | None):
        raise ValueError("x5u is not an object")  # Where others expect a text, upstream reads the parts of a URL.
    numbers = {name: _bytes(jwk[name]) for name in _KEY_NUMBERS if jwk.get(name) is not None}
    certificates = _certificates(jwk["x5c"]) if jwk.get("x5c") is not None else []
    kind = jwk.get("kty") or ""
    if kind not in ("EC", "RSA", "oct", "OKP"):
        raise ValueError(f"go-jose/go-jose: unknown json web key type '{kind}'")
    if kind == "oct" or "d" in numbers:
        return False
    public = _numbers_of(kind, jwk.get("crv") or "", numbers)
    if certificates and _numbers_in(certificates[0]) != public:
        raise ValueError("go-jose/go-jose: invalid JWK, public keys in key and x5c fields to not match")
    if kind == "RSA" and not public[1] & _WORD:
        return False
    for name, digest in (("x5t", sha1), ("x5t#S256", sha256)):
        given = _thumbprint(jwk.get(name) or "", digest().digest_size)
        if given and certificates and digest(_der(certificates[0])).digest() != given:
            raise ValueError(f"go-jose/go-jose: invalid JWK, x5c thumbprint does not match {name} value")
    return True


def _numbers_of(kind: str, curve: str, numbers: dict[str, bytes]) -> tuple[Any, ...]:
    """Return the numbers that identify a public key. Raises ValueError."""
    if kind == "RSA":
        if "n" not in numbers or "e" not in numbers:
            raise ValueError("go-jose/go-jose: invalid RSA key, missing n/e values")
        modulus, exponent = (int.from_bytes(numbers[name], "big") for name in ("n", "e"))
        return (modulus, exponent)
    if kind == "OKP":
        if curve != "Ed25519" or "x" not in numbers:
            raise ValueError(f"go-jose/go-jose: unknown curve {curve}'")
        return (numbers["x"][:32].ljust(32, b"\0"),)
    if curve not in _KEY_CURVES:
        raise ValueError(f"go-jose/go-jose: unsupported elliptic curve '{curve}'")
    name, size = _KEY_CURVES[curve]
    if "x" not in numbers or "y" not in numbers:
        raise ValueError("go-jose/go-jose: invalid EC key, missing x/y values")
    for axis in ("x", "y"):
        if len(numbers[axis]) != size:
            raise ValueError(f"go-jose/go-jose: invalid EC public key, wrong length for {axis}")
    return _on_curve(name, *(int.from_bytes(numbers[axis], "big") for axis in ("x", "y")))


def _on_curve(name: str, x: int, y: int) -> tuple[Any, ...]:
    from cryptography.hazmat.primitives.asymmetric import ec

    curve = getattr(ec, name)()
    ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
    return (curve.name, x, y)


def _numbers_in(certificate: Any) -> tuple[Any, ...]:
    """Return the same as `_numbers_of`, for the key in a certificate."""
    public = certificate.public_key()
    if hasattr(public, "public_bytes_raw"):
        return (public.public_bytes_raw(),)
    numbers = public.public_numbers()
    return (numbers.n, numbers.e) if hasattr(numbers, "n") else (numbers.curve.name, numbers.x, numbers.y)


def _thumbprint(text: str, size: int) -> bytes:
    """Decode a thumbprint that is given as raw bytes or in hexadecimal digits."""
    found = _bytes(text)
    if len(found) == 2 * size:
        found = bytes.fromhex(found.decode("ascii"))
    if found and len(found) != size:
        raise ValueError("go-jose/go-jose: invalid JWK, x5t header is of incorrect size")
    return found


def _certificates(chain: Any) -> list[Any]:
    """Return the parsed certificates of an `x5c` header. Raises ValueError."""
    from cryptography.x509 import load_der_x509_certificate

    if not isinstance(chain, list):
        raise ValueError("it is not a list")
    found = []
    for one in chain:
        if not isinstance(one, str):
            raise ValueError("it is not a list of texts")
        found.append(load_der_x509_certificate(b64decode(one, validate=True)))
    return found


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    der: bytes = certificate.public_bytes(Encoding.DER)
    return der


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str) or not _URL_ALPHABET.fullmatch(text):
        raise ValueError("illegal base64 data")
    return base64url_decode(text)


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
        return base64url_encode(sha256(der).digest())

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
    return base64url_encode(value.to_bytes(length or (value.bit_length() + 7) // 8, "big"))
