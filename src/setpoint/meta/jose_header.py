"""Validation of the JOSE header of a signed token (RFC 7515) beyond the algorithm and key ID.

None of these fields is ever used: a key or certificate that a token carries proves nothing. But a token with an invalid
header is rejected.
"""

from __future__ import annotations

import re
from base64 import b64decode
from hashlib import sha1, sha256
from typing import Any

from setpoint.meta import base64url
from setpoint.meta.strict_json import read_strictly

_TEXTS = ("kid", "alg", "nonce")
_KEY_TEXTS = ("use", "kty", "kid", "crv", "alg", "x5t", "x5t#S256")
_KEY_NUMBERS = ("k", "x", "y", "n", "e", "d", "p", "q", "dp", "dq", "qi")
_CURVES = {"P-256": ("SECP256R1", 32), "P-384": ("SECP384R1", 48), "P-521": ("SECP521R1", 66)}
_WORD = 2**64 - 1
"""Mask of the part of an exponent that is compared."""
_URL_ALPHABET = re.compile(r"[A-Za-z0-9_-]*")


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
    """Raises ValueError for what is no key at all."""
    if not isinstance(jwk, dict):
        raise ValueError("it is not an object")
    for name in _KEY_TEXTS:
        if not isinstance(jwk.get(name), str | None):
            raise ValueError(f"{name} is not a text")
    if not isinstance(jwk.get("x5u"), dict | None):
        raise ValueError("x5u is not an object")  # where others expect a text, upstream reads the parts of a URL
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
    if curve not in _CURVES:
        raise ValueError(f"go-jose/go-jose: unsupported elliptic curve '{curve}'")
    name, size = _CURVES[curve]
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
    """Raises ValueError."""
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
    return base64url.decode(text)
