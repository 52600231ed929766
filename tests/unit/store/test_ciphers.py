"""Ciphers: published test vectors, values that a kube-apiserver 1.37 stored, and round trips."""

from __future__ import annotations

import sys
from base64 import b64decode
from os import urandom

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.store.encryption import (
    AesCbc,
    AesGcm,
    Cipher,
    CipherUnavailable,
    DecryptionError,
    Secretbox,
)

_KEY = b64decode("YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=")
_STORAGE_KEY = b"core/secrets/default/one"
_CIPHERS: list[type[Cipher]] = [AesGcm, AesCbc, Secretbox]
_FAILURES: dict[type[Cipher], str] = {
    AesGcm: "cipher: message authentication failed",
    Secretbox: "output array was not large enough for encryption",
}

# Test vector of NaCl's secretbox.
_NACL_KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
_NACL_NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
_NACL_MESSAGE = bytes.fromhex(
    "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f4"
    "1db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52"
    "f0a089bc76897040e082f937763848645e0705"
)
_NACL_BOX = bytes.fromhex(
    "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b"
    "4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da"
    "99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
)

_STORED_BY_SECRETBOX = (
    "azhzOmVuYzpzZWNyZXRib3g6djE6a2V5MTpZPCit8SBjrIbz1uyU+vEqmMnbwY7LGORJ9XiA1NUYSsJWuGymDa+s1VXhliD8hp9CgBlPyC0Fcm"
    "HXen/K4XAYsF1qjilh3GanGSVMOBk45hPavMz7pSBEcN3MHfGNG2k7L1+Qd/F9YFEJsEdMhjrGeSifUqaxiicec7JNGpy418leLnvp3zQSBVo9"
    "lfDgomM/mqYflmG3vkA0G2cNX6EwyZEgL4vUhH+TOnl+n6Dkj+EoYvY3Pm7L8fRMsRj0ZOqgJwwtd2Av5qxp/UKBSsZbA/S38tR6WoFeObMRxc"
    "cm7F8uc3LitKzZeVzBjyx7y8vHkj2G8RxnQY6pbBjZuRUim2IsSl+B0uQ88jggLFlf94rh"
)
_STORED_BY_AESGCM = (
    "azhzOmVuYzphZXNnY206djE6a2V5MTqPsB9c7FLBtTCxSTzROllvSZySYzBiBBt1kTLecR5/h65jU05lJGmQDslWzriShQ+jsZLu/C5/exRXKu"
    "UV1S+NSGqmmfOnXWQ8P/rEFFU6tBNd4kd3LnbxLQd/ZtXEyV40TYZE1Au4f6fzpVjMDsaImnqvOja0+h0Dq43XgRswY1rp3CVwGyqK0BwLO5tg"
    "km2jmJTvMJTjF60uit3t0qFt5OhPWR1IK+6nTYt2M3x7Gqb41jaafa2QOVDxb2hz/XuvNsIwLmCzmnWbi/7hhhAL94Q0n+EGBaeIu1OeGA80Oj"
    "f2qAKtaIhAiUlTtCU0Rcmj2o4UKw=="
)
_STORED_BY_AESCBC = (
    "azhzOmVuYzphZXNjYmM6djE6a2V5MTrJLnoF8V8ZS92MR3Rq1qxHQAgbUfqYIHmF2QCtI2iofiHlvPh5rRytck4xZDdRlHjbIZMBaNKrr+g3y6"
    "uIZ2QNe2jFQJI6GOGj4JvxYWhGxt+DkodMFzSLhlu7maS3e5zCGHtBk/6txS2YBkFOUaIMh6BR7KAFvNIq6+K+CP30E85o+rZS717PfEoc2JIN"
    "mjtZI/1cYQIL9aMA3dBbETMWPAPDZVRspzvQFY++xx2ZdYZif8QcI9pjnZ9ES9XHpT1FKJnX0JQjUDyfAJpxVR3kslvcpVlfY0NEM+UXaflyQA"
    "g1llKJG22NRuM7hghRb2s="
)


def _cipher(of: type[Cipher]) -> Cipher:
    return of(_KEY, urandom)  # type: ignore[call-arg]


def test_secretbox_matches_the_vectors_of_nacl() -> None:
    cipher = Secretbox(_NACL_KEY, lambda size: _NACL_NONCE)
    assert cipher.encrypt(_NACL_MESSAGE, _STORAGE_KEY) == _NACL_NONCE + _NACL_BOX
    assert cipher.decrypt(_NACL_NONCE + _NACL_BOX, _STORAGE_KEY) == _NACL_MESSAGE


def test_secretbox_without_pynacl_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nacl", "nacl.exceptions", "nacl.secret"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CipherUnavailable, match=r"needs PyNaCl: pip install 'setpoint\[secretbox\]'"):
        Secretbox(_KEY, urandom)


@pytest.mark.parametrize(
    ("of", "stored", "plural", "kind"),
    [
        (Secretbox, _STORED_BY_SECRETBOX, "secrets", b"Secret"),
        (AesGcm, _STORED_BY_AESGCM, "configmaps", b"ConfigMap"),
        (AesCbc, _STORED_BY_AESCBC, "serviceaccounts", b"ServiceAccount"),
    ],
)
def test_values_that_upstream_stored_are_decrypted(of: type[Cipher], stored: str, plural: str, kind: bytes) -> None:
    data = b64decode(stored).split(b":", 5)[5]
    plain = _cipher(of).decrypt(data, f"/registry/{plural}/default/one".encode())
    assert plain.startswith(b"k8s\0")
    assert kind in plain and b"plain-label" in plain


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(_CIPHERS))
def test_a_round_trip_returns_the_value(value: bytes, of: type[Cipher]) -> None:
    cipher = _cipher(of)
    data = cipher.encrypt(value, _STORAGE_KEY)
    assert cipher.decrypt(data, _STORAGE_KEY) == value
    assert data != cipher.encrypt(value, _STORAGE_KEY)
    assert len(value) < 8 or value not in data


@pytest.mark.parametrize("of", [AesGcm, Secretbox])
@pytest.mark.parametrize("at", [0, 13, -1])
def test_authenticated_ciphers_reject_a_modified_value(of: type[Cipher], at: int) -> None:
    cipher = _cipher(of)
    data = bytearray(cipher.encrypt(b"value" * 9, _STORAGE_KEY))
    data[at] ^= 1
    with pytest.raises(DecryptionError) as refusal:
        cipher.decrypt(bytes(data), _STORAGE_KEY)
    assert str(refusal.value) == _FAILURES[of]


def test_aesgcm_rejects_a_value_under_another_storage_key() -> None:
    cipher = _cipher(AesGcm)
    data = cipher.encrypt(b"value", _STORAGE_KEY)
    with pytest.raises(DecryptionError, match="cipher: message authentication failed"):
        cipher.decrypt(data, b"core/secrets/mine/one")


@pytest.mark.parametrize("of", _CIPHERS)
def test_a_value_that_is_too_short_is_rejected(of: type[Cipher]) -> None:
    with pytest.raises(DecryptionError, match="the stored data was shorter than the required size"):
        _cipher(of).decrypt(b"short", _STORAGE_KEY)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"x" * 17, "the stored data is not a multiple of the block size"),
        (b"x" * 16, "invalid PKCS7 data \\(empty or not padded\\)"),
    ],
)
def test_aescbc_rejects_malformed_data(value: bytes, why: str) -> None:
    with pytest.raises(DecryptionError, match=why):
        _cipher(AesCbc).decrypt(value, _STORAGE_KEY)


def test_aescbc_checks_every_byte_of_the_padding() -> None:
    cipher = _cipher(AesCbc)
    whole = cipher.encrypt(b"0123456789abc\1\2" + b"\x03" + b"x" * 16, _STORAGE_KEY)
    # Without the last two blocks, the last byte claims three bytes of padding, and the two before it differ.
    with pytest.raises(DecryptionError, match="invalid padding on input"):
        cipher.decrypt(whole[:32], _STORAGE_KEY)
