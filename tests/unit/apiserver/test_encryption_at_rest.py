"""Encrypted resources through the API, with and without their keys."""

from __future__ import annotations

from os import urandom
from typing import Any

import orjson
import pytest
from server_harness import LIMITED_TOKEN, ServerHarness

from setpoint.store.encryption import (
    AesGcm,
    EncryptedStore,
    Identity,
    KeyedProvider,
    NamedKey,
    Transformer,
    Transformers,
)
from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore

_SECRETS = "/api/v1/namespaces/default/secrets"
_KEY = "core/secrets/default/s"
_SECRET = {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}


def _transformers(*names: str) -> Transformers:
    keys = KeyedProvider("aesgcm", "AES", [NamedKey(name, AesGcm(name.encode() * 32, urandom)) for name in names])
    return Transformers({("", "secrets"): Transformer([keys, Identity()])})


async def _open(below: MemoryStore, *names: str) -> ServerHarness:
    store: Any = EncryptedStore(below, _transformers(*names))
    return await ServerHarness.open(store, needs_rewrite=store.stale)


async def _raw(below: MemoryStore) -> bytes:
    kept = await below.get(_KEY)
    assert kept is not None
    return kept.value


async def test_an_encrypted_secret_is_written_read_watched_and_deleted(quiet_log: pytest.LogCaptureFixture) -> None:
    below = MemoryStore()
    harness = await _open(below, "a")
    watcher = await harness.watch(_SECRETS)
    made = await harness.make(_SECRETS, _SECRET)
    raw = await _raw(below)
    assert raw.startswith(b"k8s:enc:aesgcm:v1:a:")
    assert b"c3dvcmRmaXNo" not in raw and b'"data"' not in raw
    assert (await harness.get(f"{_SECRETS}/s")).json == made
    assert (await harness.get(_SECRETS)).json["items"][0]["metadata"] == made["metadata"]
    changed = (await harness.patch(f"{_SECRETS}/s", {"data": {"more": "eA=="}})).json
    past = await harness.get(
        f"{_SECRETS}?resourceVersion={made['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    )
    assert past.json["items"][0]["data"] == made["data"]
    assert (await harness.delete(f"{_SECRETS}/s")).status == 200
    assert watcher.summary == [("ADDED", "s"), ("MODIFIED", "s"), ("DELETED", "s")]
    assert watcher.events[1]["object"] == changed
    replayed = await harness.watch(f"{_SECRETS}?resourceVersion={made['metadata']['resourceVersion']}")
    assert replayed.summary == [("MODIFIED", "s"), ("DELETED", "s")]
    await harness.close()


async def test_an_unchanged_object_is_rewritten_only_to_change_its_key(
    quiet_log: pytest.LogCaptureFixture,
) -> None:
    below = MemoryStore()
    await (await ServerHarness.open(below)).make(_SECRETS, _SECRET)
    harness = await _open(below, "a")
    for prefix in (b"k8s:enc:aesgcm:v1:a:", b"k8s:enc:aesgcm:v1:b:"):
        assert not (await _raw(below)).startswith(prefix)
        as_it_is = (await harness.get(f"{_SECRETS}/s")).json
        once = (await harness.put(f"{_SECRETS}/s", as_it_is)).json
        assert once["metadata"]["resourceVersion"] != as_it_is["metadata"]["resourceVersion"]
        assert (await _raw(below)).startswith(prefix)
        again = (await harness.put(f"{_SECRETS}/s", once)).json
        assert again["metadata"]["resourceVersion"] == once["metadata"]["resourceVersion"]
        assert (await harness.patch(f"{_SECRETS}/s", {})).json == again
        store: Any = harness.api.resources.store
        store.transformers = _transformers("b", "a")
    await harness.close()


_WHY = "no matching key was found for the provided AES transformer"
_NOT_TRANSFORMABLE = f"data from the storage is not transformable revision=0: {_WHY}"
_CORRUPT = "StorageError: corrupt object, Code: 7, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: {}"


async def test_without_the_key_reads_and_lists_fail() -> None:
    below = MemoryStore()
    before = await _open(below, "a")
    await before.make(_SECRETS, _SECRET)
    harness = await _open(below, "b")
    text = _CORRUPT.format("/secrets/default/s", _NOT_TRANSFORMABLE)
    for reply in (await harness.get(f"{_SECRETS}/s"), await harness.delete(f"{_SECRETS}/s")):
        assert (reply.status, reply.message) == (500, f"Internal error occurred: {text}")
    for reply in (await harness.put(f"{_SECRETS}/s", _SECRET), await harness.patch(f"{_SECRETS}/s", {"data": {}})):
        assert (reply.status, reply.message) == (500, f"Internal error occurred: {_NOT_TRANSFORMABLE}")
    assert (await harness.post(_SECRETS, _SECRET)).json["reason"] == "AlreadyExists"
    text = _CORRUPT.format("/registry/secrets/default/s", _NOT_TRANSFORMABLE)
    failed = f"failed to read one or more secrets from the storage: {text}"
    for path in (_SECRETS, "/api/v1/secrets", f"{_SECRETS}?watch=1"):
        reply = await harness.get(path)
        assert (reply.status, reply.header("Retry-After")) == (429, "30")
        assert reply.message == f"storage is (re)initializing: failed to list <unspecified>: {failed}"
    paged = await harness.get(f"{_SECRETS}?limit=5")
    assert (paged.status, paged.json["reason"], paged.message) == (500, "StorageReadError", failed)
    assert paged.json["details"] == {
        "name": "list",
        "kind": "secrets",
        "causes": [
            {"reason": "UnexpectedServerResponse", "message": text, "field": "/registry/secrets/default/s"},
        ],
    }
    # All else goes on.
    assert (await harness.post(_SECRETS, {"metadata": {"name": "t"}})).status == 201
    assert (await harness.get(f"{_SECRETS}/t")).status == 200
    assert (await harness.get("/api/v1/namespaces/default/configmaps")).status == 200
    assert b"[-]informer-sync failed" in (await harness.get("/readyz")).body
    # And as soon as the key is found, so does this.
    store: Any = harness.api.resources.store
    store.transformers = _transformers("b", "a")
    await harness.api.resources.caches["core/secrets/"].retry_corrupt()
    assert [item["metadata"]["name"] for item in (await harness.get(_SECRETS)).json["items"]] == ["s", "t"]
    assert (await harness.get("/readyz")).status == 200
    await harness.close()


_UNREAD = "ignoreStoreReadErrorWithClusterBreakingPotential"


async def test_an_unreadable_object_can_be_deleted_explicitly() -> None:
    below = MemoryStore()
    before = await _open(below, "a")
    await before.make(_SECRETS, _SECRET)
    harness = await _open(below, "b")
    await harness.make(_SECRETS, {"metadata": {"name": "t"}})
    options = {"kind": "DeleteOptions", "apiVersion": "v1", _UNREAD: True}
    roles = "/apis/rbac.authorization.k8s.io/v1"
    may = {"verbs": ["delete"], "apiGroups": [""], "resources": ["secrets"]}
    await harness.make(f"{roles}/clusterroles", {"metadata": {"name": "deleters"}, "rules": [may]})
    subject = {"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "deleters", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {"metadata": {"name": "deleters"}, "roleRef": role, "subjects": [subject]}
    await harness.make(f"{roles}/clusterrolebindings", bound)
    refused = await harness.delete(f"{_SECRETS}/s", options, token=LIMITED_TOKEN)
    assert refused.status == 403
    assert 'not permitted to do "unsafe-delete-ignore-read-errors", reason: ' in refused.message
    decodable = await harness.delete(f"{_SECRETS}/t", options)
    assert (decodable.status, decodable.message) == (
        409,
        'Operation cannot be fulfilled on secrets "t": StorageError: invalid object, Code: 4, Key: '
        "/registry/secrets/default/t, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because "
        "the object is decodable from storage",
    )
    together = await harness.delete(f"{_SECRETS}/s", {**options, "gracePeriodSeconds": 0})
    assert f"{_UNREAD}: Invalid value: true: cannot be set together with .gracePeriodSeconds" in together.message
    assert "is not allowed with DELETECOLLECTION" in (await harness.delete(_SECRETS, options)).message
    assert (await harness.delete(f"{_SECRETS}/s?dryRun=All&{_UNREAD}=true")).status == 200
    assert (await harness.get(_SECRETS)).status == 429
    gone = await harness.delete(f"{_SECRETS}/s?{_UNREAD}=true")
    assert gone.json["details"] == {"name": "s", "kind": "Secret"}
    assert (await harness.delete(f"{_SECRETS}/s", options)).status == 404
    assert [item["metadata"]["name"] for item in (await harness.get(_SECRETS)).json["items"]] == ["t"]
    await harness.close()


async def test_a_server_without_keys_does_not_serve_encrypted_bytes() -> None:
    below = MemoryStore()
    await (await _open(below, "a")).make(_SECRETS, _SECRET)
    harness = await ServerHarness.open(below)
    reply = await harness.get(f"{_SECRETS}/s")
    assert reply.status == 500
    assert reply.message.endswith("identity transformer tried to read encrypted data")
    await harness.close()


async def test_stored_bytes_that_look_encrypted_are_not_served() -> None:
    below = MemoryStore()
    await below.txn([Put(_KEY, b"k8s:enc:aesgcm:v1:a:" + orjson.dumps({}))])
    harness = await _open(below, "a")
    assert (await harness.get(f"{_SECRETS}/s")).status == 500
    await harness.close()
