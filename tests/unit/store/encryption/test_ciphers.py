"""Each way to encrypt: against published vectors, against what a kube-apiserver 1.37 has stored, and against itself."""

from __future__ import annotations

from base64 import b64decode
from os import urandom

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.store.encryption import salsa
from setpoint.store.encryption.ciphers import AesCbc, AesGcm, Cipher, DecryptionError, Secretbox

_KEY = b64decode("YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=")
_PLACE = b"core/secrets/default/one"
_CIPHERS = [AesGcm(_KEY, urandom), AesCbc(_KEY, urandom), Secretbox(_KEY, urandom)]
_FAILURES = {
    AesGcm: "cipher: message authentication failed",
    Secretbox: "output array was not large enough for encryption",
}

# NaCl's own test of secretbox.
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


def test_secretbox_is_that_of_nacl() -> None:
    assert salsa.seal(_NACL_KEY, _NACL_NONCE, _NACL_MESSAGE) == _NACL_BOX
    assert salsa.open_(_NACL_KEY, _NACL_NONCE, _NACL_BOX) == _NACL_MESSAGE


def test_a_long_stream_is_the_short_ones_put_together() -> None:
    whole = salsa.salsa20(_KEY, b"12345678", 200_000)
    assert whole[:100] == salsa.salsa20(_KEY, b"12345678", 100)
    assert len({whole[at : at + 64] for at in range(0, 192_000, 64)}) == 3000


@pytest.mark.parametrize(
    ("cipher", "stored", "plural", "kind"),
    [
        (Secretbox(_KEY, urandom), _STORED_BY_SECRETBOX, "secrets", b"Secret"),
        (AesGcm(_KEY, urandom), _STORED_BY_AESGCM, "configmaps", b"ConfigMap"),
        (AesCbc(_KEY, urandom), _STORED_BY_AESCBC, "serviceaccounts", b"ServiceAccount"),
    ],
)
def test_what_upstream_has_stored_can_be_read(cipher: Cipher, stored: str, plural: str, kind: bytes) -> None:
    data = b64decode(stored).split(b":", 5)[5]
    plain = cipher.decrypt(data, f"/registry/{plural}/default/one".encode())
    assert plain.startswith(b"k8s\0")
    assert kind in plain and b"plain-label" in plain


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(_CIPHERS))
def test_there_and_back(value: bytes, cipher: Cipher) -> None:
    data = cipher.encrypt(value, _PLACE)
    assert cipher.decrypt(data, _PLACE) == value
    assert data != cipher.encrypt(value, _PLACE)
    assert len(value) < 8 or value not in data


@pytest.mark.parametrize("cipher", [_CIPHERS[0], _CIPHERS[2]])
@pytest.mark.parametrize("at", [0, 13, -1])
def test_what_was_changed_is_not_read(cipher: Cipher, at: int) -> None:
    data = bytearray(cipher.encrypt(b"value" * 9, _PLACE))
    data[at] ^= 1
    with pytest.raises(DecryptionError) as refusal:
        cipher.decrypt(bytes(data), _PLACE)
    assert str(refusal.value) == _FAILURES[type(cipher)]


def test_a_value_in_another_place_is_not_read() -> None:
    data = _CIPHERS[0].encrypt(b"value", _PLACE)
    with pytest.raises(DecryptionError, match="cipher: message authentication failed"):
        _CIPHERS[0].decrypt(data, b"core/secrets/mine/one")


@pytest.mark.parametrize("cipher", _CIPHERS)
def test_what_is_too_short(cipher: Cipher) -> None:
    with pytest.raises(DecryptionError, match="the stored data was shorter than the required size"):
        cipher.decrypt(b"short", _PLACE)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"x" * 17, "the stored data is not a multiple of the block size"),
        (b"x" * 16, "invalid PKCS7 data \\(empty or not padded\\)"),
    ],
)
def test_what_aescbc_makes_of_bad_data(value: bytes, why: str) -> None:
    with pytest.raises(DecryptionError, match=why):
        _CIPHERS[1].decrypt(value, _PLACE)


def test_padding_is_looked_at() -> None:
    whole = _CIPHERS[1].encrypt(b"0123456789abc\1\2" + b"\x03" + b"x" * 16, _PLACE)
    # Without its last two blocks it ends in what claims to be a padding of three bytes, and is none.
    with pytest.raises(DecryptionError, match="invalid padding on input"):
        _CIPHERS[1].decrypt(whole[:32], _PLACE)
