"""Encryption configurations: validation, and reloading of the file."""

from __future__ import annotations

import logging
import sys
from base64 import b64encode
from os import urandom
from pathlib import Path
from typing import Any

import orjson
import pytest

from setpoint.apiserver.api_resources import ApiResources
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig, ConfigError
from setpoint.cluster.encryption import Encryption, EncryptionConfigError, read_encryption_config
from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore
from setpoint.system import RandomIds, SystemClock

_SECRET = b64encode(b"0123456789abcdef0123456789abcdef").decode()
_KEYS = {"keys": [{"name": "one", "secret": _SECRET}]}
_KEY = "core/secrets/default/s"


def _config(*resources: dict[str, Any], **more: Any) -> bytes:
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    return orjson.dumps({**head, "resources": resources, **more})


def _of(names: list[str], *providers: dict[str, Any]) -> dict[str, Any]:
    return {"resources": names, "providers": list(providers) or [{"aesgcm": _KEYS}]}


def _with(key: dict[str, str], provider: str = "aescbc") -> bytes:
    return _config(_of(["secrets"], {provider: {"keys": [key]}}))


_RESOURCES, _PROVIDERS = "resources[0].resources", "resources[0].providers"
_OVERLAP = (
    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be "
    "masked"
)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (_config(), "resources: Required value: at least one resources is required"),
        (
            _config({}),
            f"[{_RESOURCES}: Required value: at least one {_RESOURCES} is required, "
            f"{_PROVIDERS}: Required value: at least one {_PROVIDERS} is required]",
        ),
        (
            _config(_of(["secrets", "secrets"])),
            f'{_RESOURCES}: Invalid value: ["secrets","secrets"]: the same resource cannot be specified multiple times',
        ),
        (_config(_of(["secrets", "*."])), f'{_RESOURCES}: Invalid value: ["secrets","*."]: {_OVERLAP}'),
        (_config(_of(["*.*", "pods"])), f'{_RESOURCES}: Invalid value: ["*.*","pods"]: {_OVERLAP}'),
        (
            _config(_of(["Secrets"])),
            f'{_RESOURCES}[0]: Invalid value: "Secrets": resource name should not contain capital letters',
        ),
        (
            _config(_of(["*"])),
            f"{_RESOURCES}[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* "
            "to encrypt all resources",
        ),
        (
            _config(_of(["serviceipallocations"])),
            f'{_RESOURCES}[0]: Invalid value: "serviceipallocations": resources which do not have REST API/s cannot be '
            "encrypted",
        ),
        (
            _config(_of(["events.events.k8s.io"])),
            f"{_RESOURCES}[0]: Invalid value: \"events.events.k8s.io\": '*.events.k8s.io' objects are stored using the "
            "'events' API group in etcd. Use 'events' instead in the config file",
        ),
        (
            _config(_of(["pods.*"])),
            f'{_RESOURCES}[0]: Invalid value: "pods.*": encrypting the same resource across groups is not supported',
        ),
        (
            _config(_of(["secrets"], {"aescbc": _KEYS, "identity": {}})),
            f'{_PROVIDERS}[0]: Invalid value: "REDACTED": more than one provider specified in a single element, should '
            "split into different list elements",
        ),
        (
            _config(_of(["secrets"], {})),
            f"{_PROVIDERS}[0]: Invalid value: "
            '{"AESGCM":null,"AESCBC":null,"Secretbox":null,"Identity":null,"KMS":null}'
            ": provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        (
            _config(_of(["secrets"], {"secretbox": {}})),
            f"{_PROVIDERS}[0].secretbox.keys: Required value: at least one keys is required",
        ),
        (
            _with({"secret": _SECRET}),
            f"{_PROVIDERS}[0].aescbc.keys[0].name: Required value: name is a mandatory field for a key",
        ),
        (
            _with({"name": "one"}),
            f"{_PROVIDERS}[0].aescbc.keys[0].secret: Required value: secret is a mandatory field for a key",
        ),
        (
            _with({"name": "one", "secret": "not base64"}),
            f'{_PROVIDERS}[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secrets must be base64 encoded',
        ),
        (
            _with({"name": "one", "secret": "c2hvcnQ="}),
            f'{_PROVIDERS}[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, '
            "got 5, expected one of [16 24 32]",
        ),
        (
            _with({"name": "one", "secret": _SECRET[:32]}, "secretbox"),
            f'{_PROVIDERS}[0].secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected '
            "length, got 24, expected one of [32]",
        ),
    ],
)
def test_invalid_configurations_are_rejected(document: bytes, why: str) -> None:
    with pytest.raises(EncryptionConfigError) as refusal:
        read_encryption_config(document, "file", urandom)
    assert str(refusal.value) == f"error while parsing file: {why}"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (
            b"",
            'error while parsing file: error while loading file: encryption provider configuration file "f" is empty',
        ),
        (_config(colour="blue"), 'strict decoding error: unknown field "colour"'),
        (b"resources: []", "Object 'Kind' is missing"),
        (
            b"kind: EncryptionConfig\napiVersion: v2",
            'no kind "EncryptionConfig" is registered for version "v2" in scheme ',
        ),
        (
            _config(_of(["*.*"]), _of(["secrets"])),
            'error while building transformers: resource "secrets" is masked by earlier rule "*.*"',
        ),
        (
            _config(_of(["*.apps"]), _of(["deployments.apps"])),
            'error while building transformers: resource "deployments.apps" is masked by earlier rule "*.apps"',
        ),
        (
            _config(_of(["secrets"], {"kms": {"apiVersion": "v2", "name": "vault", "endpoint": "unix:///x"}})),
            'could not configure KMS plugin "vault": key management services are not supported',
        ),
    ],
)
def test_invalid_files_and_masked_rules_are_rejected(document: bytes, why: str) -> None:
    with pytest.raises(EncryptionConfigError) as refusal:
        read_encryption_config(document, "f", urandom)
    assert why in str(refusal.value)
    assert _SECRET not in str(refusal.value)


def test_automatic_reload_needs_a_configuration() -> None:
    with pytest.raises(ConfigError, match="must be set with --encryption-provider-config"):
        ApiServerConfig(NO_DATA_DIR, encryption_provider_config_automatic_reload=True).check()


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ConfigError) as refusal:
        Encryption(str(path), MemoryStore(), SystemClock())
    assert str(refusal.value) == (
        "error while parsing file: error while loading file: error reading encryption provider configuration file "
        f'"{path}": open {path}: no such file or directory'
    )


async def test_valid_changes_of_the_file_take_effect_and_invalid_ones_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path, below = tmp_path / "encryption.json", MemoryStore()
    path.write_bytes(_config(_of(["secrets"])))
    encryption = Encryption(str(path), below, SystemClock())
    api = ApiResources(encryption.store, SystemClock(), RandomIds())
    watcher = encryption.watcher(api)
    await watcher.check()
    path.write_bytes(_with({"name": "two", "secret": "tooshort-and-secret"}))
    await watcher.check()
    await watcher.check()
    await encryption.store.txn([Put(_KEY, b"value")])
    stored = await below.get(_KEY)
    assert stored is not None and stored.value.startswith(b"k8s:enc:aesgcm:v1:one:")
    second = {"name": "two", "secret": _SECRET}
    path.write_bytes(_config(_of(["secrets"], {"aescbc": {"keys": [second]}}, {"aesgcm": _KEYS})))
    await watcher.check()
    assert await encryption.store.stale(_KEY)
    await encryption.store.txn([Put(_KEY, b"value")])
    stored = await below.get(_KEY)
    assert stored is not None and stored.value.startswith(b"k8s:enc:aescbc:v1:two:")
    assert "need a key" not in caplog.text
    path.write_bytes(_config(_of(["secrets"])))
    await watcher.check()
    assert f"stored objects need a key that {path} no longer contains (1, such as {_KEY})" in caplog.text
    counted = {sample.labels["status"]: sample.value for sample in next(iter(encryption.families())).samples}
    assert counted == {"success": 2, "failure": 1}
    assert "tooshort" not in caplog.text and _SECRET not in caplog.text


def test_secretbox_without_pynacl_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nacl.secret", None)
    with pytest.raises(EncryptionConfigError) as failure:
        read_encryption_config(_config(_of(["secrets"], {"secretbox": _KEYS})), "encryption.yaml", urandom)
    assert str(failure.value) == (
        "error while building transformers: the secretbox provider needs PyNaCl: pip install 'setpoint[secretbox]'"
    )


async def test_no_file_of_the_store_contains_plain_text(tmp_path: Path) -> None:
    """Check the data file and its write-ahead log, before and after closing, compaction and reopening."""
    path = tmp_path / "encryption.json"
    path.write_bytes(_config(_of(["secrets"]), _of(["configmaps"], {"secretbox": _KEYS})))
    keys = [_KEY, "core/configmaps/default/c"]

    def check_files() -> None:
        files = [file for file in (tmp_path / "data").iterdir() if file.is_file()]
        assert len(files) >= 1
        for file in files:
            assert b"swordfish" not in file.read_bytes(), file

    (tmp_path / "data").mkdir()
    for number in range(2):
        store = Encryption(str(path), SqliteStore.open(tmp_path / "data" / "state.db"), SystemClock()).store
        for version in range(5):
            await store.txn([Put(key, b'{"data":"swordfish %d"}' % version) for key in keys], b"cause")
        check_files()
        await store.compact(store.revision - 1)
        check_files()
        for key in keys:
            stored = await store.get(key)
            assert stored is not None and stored.value == b'{"data":"swordfish 4"}', number
        await store.close()
        check_files()


async def test_missing_keys_are_reported_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, below = tmp_path / "encryption.json", MemoryStore()
    path.write_bytes(_config(_of(["secrets"])))
    await Encryption(str(path), below, SystemClock()).store.txn([Put(_KEY, b"{}")])
    message = (
        f"stored objects cannot be read (1, such as /{_KEY.removeprefix('core/')}): identity transformer tried to read "
        "encrypted data; see --encryption-provider-config"
    )
    config = ApiServerConfig(tmp_path / "data", port=0, store="memory", insecure_http=True)
    with pytest.raises(ConfigError) as refusal:
        async with apiserver(config, below.fork()):
            pass
    assert str(refusal.value).startswith(f"{message}. Controllers cannot work without them")
    async with apiserver(config, below.fork(), alone=True):
        assert message in caplog.messages


async def test_plain_text_is_gone_after_encryption_and_compaction(tmp_path: Path) -> None:
    path, data = tmp_path / "encryption.json", tmp_path / "state.db"
    path.write_bytes(_config(_of(["secrets"], {"aesgcm": _KEYS}, {"identity": {}})))
    values = {f"{_KEY}-{number}": b'{"data":"swordfish %d"}' % number + b" " * 3000 for number in range(20)}
    clear = SqliteStore.open(data)
    for key, value in values.items():
        await clear.txn([Put(key, value)])
    await clear.close()
    assert b"swordfish" in data.read_bytes()
    store = Encryption(str(path), SqliteStore.open(data), SystemClock()).store
    for key, value in values.items():
        await store.txn([Put(key, value)])
    await store.compact(store.revision)
    await store.close()
    assert b"swordfish" not in data.read_bytes()
