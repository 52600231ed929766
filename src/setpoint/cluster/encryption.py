"""Encryption at rest: reads and validates the EncryptionConfiguration, wraps the store, and reloads the file.

Messages about keys are upstream's, and never contain a key.
"""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import sha256
from os import urandom
from pathlib import Path

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.config_files import DURATION, NUMBER, TEXT, Explicit, document, many, struct
from setpoint.cluster.config import ConfigError
from setpoint.cluster.file_watcher import FileWatcher
from setpoint.meta.body import BodyError, parse_yaml, type_meta
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.exposition import Family, counter, gauge
from setpoint.meta.field import Errors, aggregate_message, invalid, required
from setpoint.meta.objects import Obj
from setpoint.store.encryption import (
    AesCbc,
    AesGcm,
    Cipher,
    CipherUnavailable,
    EncryptedStore,
    Identity,
    KeyedProvider,
    NamedKey,
    Provider,
    Random,
    Secretbox,
    Transformer,
    Transformers,
)
from setpoint.store.interface import Store

log = logging.getLogger("setpoint.cluster")

_KINDS = (("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig"))
"""The accepted pairs of apiVersion and kind; the second pair is a former name."""
_SCHEME = "pkg/server/options/encryptionconfig/config.go:139"
_AES_KEY_SIZES, _SECRETBOX_KEY_SIZES = (16, 24, 32), (32,)
_NO_PROVIDER = "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
_SEVERAL_PROVIDERS = "more than one provider specified in a single element, should split into different list elements"
_WITHOUT_REST_API = ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")
_CIPHERS: dict[str, tuple[Callable[[bytes, Random], Cipher], str, tuple[int, ...]]] = {
    "aesgcm": (AesGcm, "AES", _AES_KEY_SIZES),
    "aescbc": (AesCbc, "AES", _AES_KEY_SIZES),
    "secretbox": (Secretbox, "Secretbox", _SECRETBOX_KEY_SIZES),
}
_KEYS = struct("v1.AESConfiguration", keys=many(struct("v1.Key", name=TEXT, secret=TEXT)))
_KMS = struct("v1.KMSConfiguration", apiVersion=TEXT, name=TEXT, cachesize=NUMBER, endpoint=TEXT, timeout=DURATION)
_PROVIDER = struct(
    "v1.ProviderConfiguration",
    aesgcm=Explicit(_KEYS),
    aescbc=Explicit(_KEYS),
    secretbox=Explicit(_KEYS),
    identity=Explicit(struct("v1.IdentityConfiguration")),
    kms=Explicit(_KMS),
)
_RESOURCE = struct("v1.ResourceConfiguration", resources=many(TEXT), providers=many(_PROVIDER))
_CONFIGURATION = document("v1.EncryptionConfiguration", resources=many(_RESOURCE))


class EncryptionConfigError(ValueError):
    """The configuration is invalid. The message never contains a key."""


# -- reading ----------------------------------------------------------------------------------------------------------


def read_encryption_config(data: bytes, path: str, random: Random) -> Transformers:
    """Raises EncryptionConfigError."""
    configuration = _decode_config(data, path)
    errs = _validate(configuration.get("resources") or [])
    if errs:
        raise EncryptionConfigError(f"error while parsing file: {aggregate_message(errs)}")
    return Transformers(_transformers(configuration["resources"], random))


def _decode_config(data: bytes, path: str) -> Obj:
    if not data:
        why = f'encryption provider configuration file "{path}" is empty'
        raise EncryptionConfigError(f"error while parsing file: error while loading file: {why}")
    try:
        value, found = parse_yaml(data)
        api_version, kind = type_meta({} if value is None else value)
        if not kind:
            # Unlike upstream, the message does not quote the file, which contains keys.
            raise DecodeError("Object 'Kind' is missing")
        if not api_version:
            raise DecodeError("Object 'apiVersion' is missing")
        if (api_version, kind) not in _KINDS:
            raise DecodeError(f'no kind "{kind}" is registered for version "{api_version}" in scheme "{_SCHEME}"')
        configuration: Obj = decode(_CONFIGURATION, value, strict=found)
        if found:
            raise DecodeError(f"strict decoding error: {', '.join(found)}")
    except (BodyError, DecodeError) as error:
        raise EncryptionConfigError(
            f'error while parsing file: error decoding encryption provider configuration file "{path}": {error}'
        ) from None
    return configuration


def _transformers(resources: Sequence[Obj], random: Random) -> dict[tuple[str, str], Transformer]:
    providers: dict[tuple[str, str], list[Provider]] = {}
    for each in resources:
        built = [_provider(provider, random) for provider in each["providers"]]
        for resource in each["resources"]:
            wanted = _group_resource(resource)
            for masking in ((wanted[0], "*"), ("*", "*")):
                if masking in providers:
                    raise EncryptionConfigError(
                        f'error while building transformers: resource "{_shown(wanted)}" is masked by earlier rule '
                        f'"{_shown(masking)}"'
                    )
            providers.setdefault(wanted, []).extend(built)
    return {resource: Transformer(found) for resource, found in providers.items()}


def _provider(provider: Obj, random: Random) -> Provider:
    for name, (cipher, shown, _) in _CIPHERS.items():
        if provider.get(name) is not None:
            keys = provider[name]["keys"]
            try:
                named = [NamedKey(key["name"], cipher(b64decode(key["secret"]), random)) for key in keys]
            except CipherUnavailable as error:
                raise EncryptionConfigError(f"error while building transformers: {error}") from None
            return KeyedProvider(name, shown, named)
    if provider.get("kms") is not None:
        raise EncryptionConfigError(
            f'error while building transformers: could not configure KMS plugin "{provider["kms"].get("name", "")}": '
            "key management services are not supported; aesgcm, aescbc, secretbox and identity are"
        )
    return Identity()


def _group_resource(text: str) -> tuple[str, str]:
    resource, _, group = text.partition(".")
    return group, resource


def _shown(wanted: tuple[str, str]) -> str:
    group, resource = wanted
    return f"{resource}.{group}" if group or resource == "*" else resource


# -- validating -------------------------------------------------------------------------------------------------------


def _validate(resources: Sequence[Obj]) -> Errors:
    errs: Errors = []
    if not resources:
        return [required("resources", "at least one resources is required")]
    for at, each in enumerate(resources):
        names, providers = each.get("resources") or [], each.get("providers") or []
        path = f"resources[{at}].resources"
        if not names:
            errs.append(required(path, f"at least one {path} is required"))
        _validate_overlap(names, path, errs)
        for place, name in enumerate(names):
            why = _name_problem(name)
            if why:
                errs.append(invalid(f"{path}[{place}]", name, why))
        path = f"resources[{at}].providers"
        if not providers:
            errs.append(required(path, f"at least one {path} is required"))
        for place, provider in enumerate(providers):
            _validate_provider(provider, f"{path}[{place}]", errs)
    return errs


def _validate_overlap(names: Sequence[str], path: str, errs: Errors) -> None:
    wanted = [_group_resource(name) for name in names]
    if len(set(wanted)) < len(wanted):
        errs.append(invalid(path, names, "the same resource cannot be specified multiple times"))
    distinct = set(wanted)
    overlap = ("*", "*") in distinct and len(wanted) > 1
    for group in {group for group, _ in distinct}:
        of_group = {resource for other, resource in distinct if other == group}
        overlap = overlap or ("*" in of_group and len(of_group) > 1)
    if overlap:
        text = (
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they "
            "will be masked"
        )
        errs.append(invalid(path, names, text))


def _name_problem(name: str) -> str:
    group, resource = _group_resource(name)
    if name.lower() != name:
        return "resource name should not contain capital letters"
    if name == "*":
        return "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"
    if name in _WITHOUT_REST_API:
        return "resources which do not have REST API/s cannot be encrypted"
    if group == "events.k8s.io":
        return (
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. "
            "Use 'events' instead in the config file"
        )
    if group == "extensions":
        return "'extensions' group has been removed and cannot be used for encryption"
    if group == "*" and resource != "*":
        return "encrypting the same resource across groups is not supported"
    return ""


def _validate_provider(provider: Obj, path: str, errs: Errors) -> None:
    found = [name for name in ("kms", "aesgcm", "aescbc", "secretbox", "identity") if provider.get(name) is not None]
    if len(found) > 1:
        errs.append(invalid(path, "REDACTED", _SEVERAL_PROVIDERS))  # upstream shows it, keys and all
    elif not found:
        errs.append(invalid(path, dict.fromkeys(("AESGCM", "AESCBC", "Secretbox", "Identity", "KMS")), _NO_PROVIDER))
    for name in found[:1]:
        if name in _CIPHERS:
            _validate_keys(provider[name].get("keys") or [], f"{path}.{name}.keys", _CIPHERS[name][2], errs)


def _validate_keys(keys: Sequence[Obj], path: str, sizes: Sequence[int], errs: Errors) -> None:
    if not keys:
        errs.append(required(path, "at least one keys is required"))
    for at, key in enumerate(keys):
        where = f"{path}[{at}]"
        if not key.get("name"):
            errs.append(required(f"{where}.name", "name is a mandatory field for a key"))
        if not key.get("secret"):
            errs.append(required(f"{where}.secret", "secret is a mandatory field for a key"))
            continue
        try:
            size = len(b64decode(key["secret"], validate=True))
        except ValueError:
            errs.append(invalid(f"{where}.secret", "REDACTED", "secrets must be base64 encoded"))
            continue
        if size not in sizes:
            allowed = " ".join(map(str, sizes))
            text = f"secret is not of the expected length, got {size}, expected one of [{allowed}]"
            errs.append(invalid(f"{where}.secret", "REDACTED", text))


class Encryption:
    """Encryption as a configuration file says: `store` wraps the store of the server, `watcher` reloads the file."""

    def __init__(self, path: str, below: Store, clock: Clock) -> None:
        """Raises ConfigError."""
        self._path = path
        self._clock = clock
        self._reloads = {"success": 0, "failure": 0}
        self._last_reload: dict[str, float] = {}
        try:
            self._data = Path(path).read_bytes()
            transformers = read_encryption_config(self._data, path, urandom)
        except OSError as error:
            why = f'error reading encryption provider configuration file "{path}": open {path}'
            raise ConfigError(
                f"error while parsing file: error while loading file: {why}: {(error.strerror or '').lower()}"
            ) from None
        except EncryptionConfigError as error:
            raise ConfigError(str(error)) from None
        self.store = EncryptedStore(below, transformers)

    def watcher(self, api: ApiResources) -> FileWatcher:
        """Return a watcher that applies changes of the file while it runs. An invalid file changes nothing, and objects
        that were decrypted before stay readable in memory."""
        return FileWatcher(self._path, self._data, partial(self._reload, api), self._clock)

    async def _reload(self, api: ApiResources, data: bytes) -> bool:
        try:
            self.store.transformers = read_encryption_config(data, self._path, urandom)
        except EncryptionConfigError as error:
            self._count_reload("failure")
            log.error("error processing encryption config file %s: %s", self._path, error)
            return True
        self._data = data
        for cache in list(api.caches.values()):
            if cache.corrupt:
                await cache.retry_corrupt()
        self._count_reload("success")
        log.info("reloaded the encryption configuration %s", self._path)
        if lost := await self.store.unreadable():
            log.error(
                "stored objects need a key that %s no longer contains (%d, such as %s): add the key again before the "
                "server restarts",
                self._path,
                len(lost),
                lost[0],
            )
        return True

    def _count_reload(self, status: str) -> None:
        self._reloads[status] += 1
        self._last_reload[status] = self._clock.now().timestamp()

    def families(self) -> Iterable[Family]:
        yield counter(
            "apiserver_encryption_config_controller_automatic_reloads_total",
            "Total number of reload successes and failures of encryption configuration.",
            [({"status": status}, count) for status, count in self._reloads.items()],
        )
        yield gauge(
            "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
            "Timestamp of the last successful or failed automatic reload of encryption configuration.",
            [({"status": status}, moment) for status, moment in self._last_reload.items()],
        )
        yield gauge(
            "apiserver_encryption_config_controller_last_config_info",
            "Information about the last applied encryption configuration with hash as label.",
            [({"hash": f"sha256:{sha256(self._data).hexdigest()}"}, 1.0)],
        )
