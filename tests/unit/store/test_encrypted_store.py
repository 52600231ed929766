"""What the encrypted store writes to its backend, what it returns, and which values are stale."""

from __future__ import annotations

from os import urandom

import pytest

from setpoint.store.encryption import (
    AesCbc,
    AesGcm,
    DecryptionError,
    EncryptedStore,
    Identity,
    KeyedProvider,
    NamedKey,
    Provider,
    Secretbox,
    Transformer,
    Transformers,
)
from setpoint.store.interface import CompareFailed, Event, KeyValue, Put, Unreadable
from setpoint.store.memory import MemoryStore

_SECRET, _POD = "core/secrets/default/s", "core/pods/default/p"
_VALUE = b'{"metadata":{"uid":"u","resourceVersion":""},"data":{"password":"swordfish"}}'
_STAMP = _VALUE.index(b'""}') + 1


def _gcm(*names: str, secret: bytes = b"k") -> Provider:
    return KeyedProvider("aesgcm", "AES", [NamedKey(name, AesGcm(secret * 32, urandom)) for name in names])


def _cbc(name: str) -> Provider:
    return KeyedProvider("aescbc", "AES", [NamedKey(name, AesCbc(b"c" * 32, urandom))])


def _store(below: MemoryStore, *providers: Provider, resource: tuple[str, str] = ("", "secrets")) -> EncryptedStore:
    return EncryptedStore(below, Transformers({resource: Transformer(providers)}))


async def _raw(below: MemoryStore, key: str = _SECRET) -> bytes:
    stored = await below.get(key)
    assert stored is not None
    return stored.value


async def test_the_backend_never_gets_plain_text() -> None:
    below = MemoryStore()
    received: list[Event] = []
    below.watch("", 0, lambda events, _: received.extend(events))
    store = _store(below, _gcm("one"))
    revision, (stored, _) = await store.txn([Put(_SECRET, _VALUE, 0, _STAMP), Put(_POD, b"{}")])
    whole = _VALUE.replace(b'"resourceVersion":""', b'"resourceVersion":"1"')
    assert stored == KeyValue(_SECRET, whole, 1, revision)
    assert await store.get(_SECRET) == stored
    raw = await _raw(below)
    assert raw.startswith(b"k8s:enc:aesgcm:v1:one:")
    assert b"swordfish" not in raw
    assert not any(b"swordfish" in event.now.value for event in received if event.now is not None)
    assert await _raw(below, _POD) == b"{}"


async def test_the_revision_is_that_of_the_last_write() -> None:
    store = _store(MemoryStore(), _gcm("one"))
    seen: list[Event] = []
    await store.txn([Put(_SECRET, _VALUE, 0, _STAMP)])
    await store.txn([Put(_POD, b"{}")])
    await store.txn([Put(_SECRET, _VALUE, 1, _STAMP)])
    store.watch("core/secrets/", 0, lambda events, _: seen.extend(events))
    shown = [(event.now.value if event.now else b"", event.before.value if event.before else b"") for event in seen]
    assert [b'"resourceVersion":"1"' in shown[0][0], b'"resourceVersion":"3"' in shown[1][0]] == [True, True]
    assert shown[1][1] == shown[0][0]
    with pytest.raises(CompareFailed) as failure:
        await store.txn([Put(_SECRET, _VALUE, 1, _STAMP)])
    assert failure.value.current is not None
    assert b'"resourceVersion":"3"' in failure.value.current.value


async def test_all_keys_decrypt_the_first_encrypts_and_other_values_are_stale() -> None:
    below = MemoryStore()
    await below.txn([Put(_SECRET, _VALUE, 0, _STAMP)])
    orders: list[tuple[bytes, tuple[Provider, ...]]] = [
        (b"k8s:enc:aesgcm:v1:one:", (_gcm("one"), Identity())),
        (b"k8s:enc:aesgcm:v1:two:", (_gcm("two", "one"), Identity())),
        (b"k8s:enc:aescbc:v1:one:", (_cbc("one"), _gcm("two", "one"))),
        (
            b"k8s:enc:secretbox:v1:s:",
            (KeyedProvider("secretbox", "Secretbox", [NamedKey("s", Secretbox(b"s" * 32, urandom))]), _cbc("one")),
        ),
        (b"{", (Identity(), KeyedProvider("secretbox", "Secretbox", [NamedKey("s", Secretbox(b"s" * 32, urandom))]))),
    ]
    for prefix, providers in orders:
        store = _store(below, *providers)
        stored = await store.get(_SECRET)
        assert stored is not None and b"swordfish" in stored.value
        assert await store.stale(_SECRET)
        await store.txn([Put(_SECRET, _VALUE, None, _STAMP)])
        assert (await _raw(below)).startswith(prefix)
        assert not await store.stale(_SECRET)
    assert not await store.stale("core/secrets/default/none")
    assert not await store.stale(_POD)


async def test_a_provider_may_be_configured_twice() -> None:
    below = MemoryStore()
    await _store(below, _gcm("one", secret=b"a")).txn([Put(_SECRET, _VALUE)])
    stored = await _store(below, _gcm("one", secret=b"b"), _gcm("one", secret=b"a")).get(_SECRET)
    assert stored is not None and stored.value == _VALUE


@pytest.mark.parametrize(
    ("providers", "why"),
    [
        ((_gcm("two"),), "no matching key was found for the provided AES transformer"),
        ((_gcm("one", secret=b"b"),), "cipher: message authentication failed"),
        (
            (_gcm("one", secret=b"b"), _gcm("two")),
            "[cipher: message authentication failed, no matching key was found for the provided AES transformer]",
        ),
        ((_cbc("one"),), "no matching prefix found"),
        ((Identity(),), "no matching prefix found"),
    ],
)
async def test_a_value_without_a_key_is_unreadable_and_others_are_readable(
    providers: tuple[Provider, ...], why: str
) -> None:
    below = MemoryStore()
    await _store(below, _gcm("one", secret=b"a")).txn([Put(_SECRET, _VALUE)])
    store = _store(below, *providers)
    await store.txn([Put(_SECRET + "2", _VALUE)])
    first, second = (await store.list("core/secrets/")).items
    assert isinstance(first.value, Unreadable) and first.value.reason == why
    assert second.value == _VALUE
    assert not await store.stale(_SECRET)


async def test_garbage_that_decrypts_is_unreadable_too() -> None:
    below = MemoryStore()
    data = AesCbc(b"c" * 32, urandom).encrypt(b"no stamp in here", b"")
    await below.txn([Put(_SECRET, b"k8s:enc:aescbc:v1:one:" + data)])
    stored = await _store(below, _cbc("one")).get(_SECRET)
    assert stored is not None and isinstance(stored.value, Unreadable)


async def test_the_keys_can_be_changed_while_the_store_is_in_use() -> None:
    store = _store(MemoryStore(), _gcm("one"))
    await store.txn([Put(_SECRET, _VALUE)])
    store.transformers = Transformers({("", "secrets"): Transformer([_gcm("two", "one")])})
    assert await store.stale(_SECRET)
    stored = await store.get(_SECRET)
    assert stored is not None and stored.value == _VALUE


@pytest.mark.parametrize(
    ("resource", "key", "encrypted"),
    [
        (("", "secrets"), "core/secrets/default/a", True),
        (("", "secrets"), "core/secretsandmore/default/a", False),
        (("", "secrets"), "apps/secrets/default/a", False),
        (("", "*"), "core/namespaces/a", True),
        (("", "*"), "apps/deployments/default/a", False),
        (("apps", "*"), "apps/deployments/default/a", True),
        (("example.com", "widgets"), "example.com/widgets/default/a", True),
        (("*", "*"), "example.com/widgets/default/a", True),
    ],
)
async def test_which_resources_are_encrypted(resource: tuple[str, str], key: str, encrypted: bool) -> None:
    below = MemoryStore()
    await _store(below, _gcm("one"), resource=resource).txn([Put(key, b"value")])
    assert (await _raw(below, key) != b"value") == encrypted


def test_identity_does_not_read_encrypted_values() -> None:
    with pytest.raises(DecryptionError, match="identity transformer tried to read encrypted data"):
        Identity().decrypt(b"k8s:enc:aesgcm:v1:one:xxx", b"")


async def test_plain_text_that_the_backend_has_compressed_is_read_as_it_was_written() -> None:
    below = MemoryStore()
    keys = [f"{_SECRET}-{number}" for number in range(3)]
    values = [_VALUE.replace(b"swordfish", b"%d" % number + bytes(range(97, 123)) * 20) for number in range(3)]
    await below.txn([Put(key, value) for key, value in zip(keys, values, strict=True)])
    while not below.pack(below.revision):
        pass
    stored = [await below.get(key) for key in keys]
    assert sum(each is not None and each.compressed is not None for each in stored) == 2
    store = _store(below, _gcm("one"), Identity())
    assert await store.unreadable() == []
    assert [each.value for each in (await store.list("")).items] == values
