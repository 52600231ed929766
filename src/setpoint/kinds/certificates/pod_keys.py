"""The key that a pod certificate is asked for, and the proof that the asker holds it."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from setpoint.kinds.certificates.requests import parse_request, signature_error
from setpoint.meta.field import OMIT, Errors, invalid, too_long

REQUEST_PATH = "spec.stubPKCS10Request"
_LIMIT = 10 * 1024
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_RSA_SIZES = (3072, 4096)


def _weakness(key: Any, errs: Errors) -> bool:
    """Return whether the type or size of the key is not accepted."""
    if isinstance(key, rsa.RSAPublicKey):
        size = (key.key_size + 7) // 8 * 8
        if size not in _RSA_SIZES:
            text = "RSA keys must have modulus size 3072 or 4096"
            errs.append(invalid(REQUEST_PATH, f"{size}-bit modulus", text))
            return True
    elif isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name not in _CURVES:
            name = "P-224" if key.curve.name == "secp224r1" else key.curve.name
            text = "elliptic public keys must use curve P256, P384, or P521"
            errs.append(invalid(REQUEST_PATH, f"curve {name}", text))
            return True
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        text = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
        errs.append(invalid(REQUEST_PATH, OMIT, text))
        return True
    return False


def validate_request(spec: dict[str, Any], errs: Errors) -> None:
    der = b64decode(spec["stubPKCS10Request"])
    if len(der) > _LIMIT:
        errs.append(too_long(REQUEST_PATH, _LIMIT))
        return
    request = parse_request(der)
    if request is None:
        errs.append(invalid(REQUEST_PATH, OMIT, "must be a valid PKCS#10 CSR"))
    elif not _weakness(request.public_key(), errs):
        if signature_error(request):
            errs.append(invalid(REQUEST_PATH, OMIT, "invalid signature"))
