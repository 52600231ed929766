"""Verification of a whole store: every object decodes and is stored under its key, and what depends on others agrees.

It reads one revision and changes nothing. References to owners that do not exist are no problem, because the garbage
collector handles them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from setpoint.apiserver.corrupt_objects import corruption
from setpoint.cluster.allocation_check import allocation_problems
from setpoint.cluster.backups import INCOMPLETE
from setpoint.cluster.config import ConfigError
from setpoint.cluster.encryption import Encryption
from setpoint.cluster.store_location import StoreLocation, opened
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.store.encryption import ENCRYPTED
from setpoint.store.interface import KeyValue, Store, StoreError, Unreadable
from setpoint.store.snapshot import Snapshot

_DEFINITIONS, _NAMESPACES = "apiextensions.k8s.io/customresourcedefinitions/", "core/namespaces/"
_NODE_PORTS = "ranges/nodeports/"
_OWN = "setpoint/"
"""The prefix of keys that the server stores for itself."""
_KEPT = (_DEFINITIONS, "core/services/", "networking.k8s.io/ipaddresses/", "networking.k8s.io/servicecidrs/")
"""The resources whose objects are compared with others."""
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_MAX_PROBLEMS = 1_000


class Problem(NamedTuple):
    key: str
    reason: str
    """A sentence that says what is wrong."""


@dataclass(slots=True)
class Report:
    """The result of examining a store."""

    revision: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """The number of objects of each resource."""
    encrypted: int = 0
    """The number of values that were not examined because they are encrypted and no configuration was given."""
    problems: list[Problem] = field(default_factory=list)
    """The problems by key, at most a thousand of them."""
    omitted: int = 0
    """The number of problems beyond those."""


async def check_location(location: StoreLocation, clock: Clock, encryption_config: str) -> Report:
    """Examine a store without a server; values are decrypted with the keys of a configuration file, if one is given.

    Raises ConfigError."""
    try:
        async with opened(location, clock) as store:
            if encryption_config:
                report = await check_store(Encryption(encryption_config, store, clock).store, decrypts=True)
            else:
                report = await check_store(store, decrypts=False)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    if not report.counts and not report.problems:
        raise ConfigError(f"there are no objects at {location}")
    return report


async def check_store(store: Store, *, decrypts: bool) -> Report:
    """Examine all objects of a store. `decrypts` says that `store` decrypts values. Raises StoreError."""
    check = _Check(decrypts)
    async with Snapshot(store) as snapshot:
        check.report.revision = snapshot.revision
        async for page in snapshot.pages():
            for item in page:
                check.examine(item)
    return check.finish()


class _Check:
    def __init__(self, decrypts: bool) -> None:
        self.report = Report()
        self._decrypts = decrypts
        self._found: list[Problem] = []
        self._resources = {each.storage_prefix: each for each in _stored_resources()}
        self._kept: dict[str, dict[str, Obj]] = {prefix: {} for prefix in (*_KEPT, _NODE_PORTS)}
        """Objects that are compared at the end, by prefix and key."""
        self._custom: list[tuple[str, Obj | None]] = []
        """Keys that belong to no built-in resource, with the identifying fields of objects that could be read."""
        self._keys_by_uid: dict[str, str] = {}
        self._namespaces: set[str] = set()
        self._used_namespaces: dict[str, str] = {}
        """The first key in each namespace."""

    # -- single objects -----------------------------------------------------------------------------------------------

    def examine(self, item: KeyValue) -> None:
        key = item.key
        if not 0 < item.create_revision <= item.mod_revision <= self.report.revision:
            self._problem(
                key,
                f"it was created at revision {item.create_revision} and changed at {item.mod_revision}, "
                f"but the store is at {self.report.revision}",
            )
        if key == INCOMPLETE:
            self._problem(key, "a copy or a restore was interrupted: repeat it")
        elif key.startswith(_OWN):
            self.report.counts["(of the server itself)"] += 1
        elif key.startswith(_NODE_PORTS):
            self.report.counts["(node port reservations)"] += 1
            obj = self._read(item)
            if obj is not None:
                self._kept[_NODE_PORTS][key] = obj
        else:
            self._examine_object(item)

    def _read(self, item: KeyValue) -> Obj | None:
        """Return the value as a JSON object, or None if it cannot be read or is encrypted."""
        value = item.value
        if value.startswith(ENCRYPTED) and not self._decrypts:
            self.report.encrypted += 1
            return None
        if isinstance(value, Unreadable) or value.startswith(ENCRYPTED):
            self._problem(item.key, f"it cannot be decrypted: {corruption(item)}")
            return None
        try:
            obj = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            self._problem(item.key, f"it is not JSON: {error}")
            return None
        if not isinstance(obj, dict):
            self._problem(item.key, "it is not a JSON object")
            return None
        return obj

    def _examine_object(self, item: KeyValue) -> None:
        group, _, rest = item.key.partition("/")
        prefix = f"{group}/{rest.partition('/')[0]}/"
        resource, obj = self._resources.get(prefix), self._read(item)
        if resource is None:
            self._custom.append((item.key, _identifying_fields(obj) if obj is not None else None))
        else:
            self.report.counts[str(resource)] += 1
        if prefix == _NAMESPACES:
            self._namespaces.add(item.key[len(_NAMESPACES) :])
        if obj is None:
            return
        meta = obj.get("metadata")
        if not isinstance(meta, dict):
            self._problem(item.key, "it has no metadata")
            return
        for reason in self._metadata_problems(item, meta):
            self._problem(item.key, reason)
        if resource is not None:
            self._check_key(item.key, prefix, resource.namespaced, meta)
            try:
                decoded = decode(resource.type, obj)
            except DecodeError as error:
                self._problem(item.key, f"it is not a {resource.kind}: {error}")
            else:
                if prefix in self._kept:
                    self._kept[prefix][item.key] = decoded

    def _metadata_problems(self, item: KeyValue, meta: Obj) -> Iterator[str]:
        uid, version = meta.get("uid"), meta.get("resourceVersion")
        if not isinstance(uid, str) or not uid:
            yield "it has no uid"
        elif (other := self._keys_by_uid.setdefault(uid, item.key)) != item.key:
            yield f"its uid {uid} is also that of {other}"
        if version != str(item.mod_revision):
            yield f"its resourceVersion is {version}, but it was changed at revision {item.mod_revision}"
        for name in ("creationTimestamp", "deletionTimestamp"):
            time = meta.get(name) or ""
            if time or name == "creationTimestamp":
                try:
                    parse_time(time)
                except (ValueError, TypeError, AttributeError):
                    yield f"its {name} {time!r} is not a time"
        finalizers = meta.get("finalizers") or []
        if not isinstance(finalizers, list) or not all(isinstance(one, str) and one for one in finalizers):
            yield "its finalizers are not a list of names"
        owners = meta.get("ownerReferences") or []
        for owner in owners if isinstance(owners, list) else [None]:
            if not isinstance(owner, dict) or not all(owner.get(name) for name in _OWNER_FIELDS):
                yield "a reference to an owner is incomplete"

    def _check_key(self, key: str, prefix: str, namespaced: bool, meta: Obj) -> None:
        namespace, name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
        expected = f"{prefix}{namespace}/{name}" if namespaced else f"{prefix}{name}"
        if key != expected:
            self._problem(key, f"its object belongs under the key {expected}")
        if not namespaced and namespace:
            self._problem(key, f"it has the namespace {namespace}, but its kind has none")
        if namespaced and namespace:
            self._used_namespaces.setdefault(namespace, key)

    # -- what depends on several objects ------------------------------------------------------------------------------

    def finish(self) -> Report:
        self._check_custom()
        for namespace, key in self._used_namespaces.items():
            if namespace not in self._namespaces:
                self._problem(key, f"its namespace {namespace} does not exist")
        found = allocation_problems(
            self._kept["core/services/"],
            self._kept["networking.k8s.io/ipaddresses/"],
            self._kept["networking.k8s.io/servicecidrs/"],
            self._kept[_NODE_PORTS],
            complete=not self.report.encrypted,
        )
        for key, reason in found:
            self._problem(key, reason)
        self._found.sort()
        self.report.problems = self._found[:_MAX_PROBLEMS]
        self.report.omitted = len(self._found) - len(self.report.problems)
        return self.report

    def _check_custom(self) -> None:
        """Compare custom objects with their definitions."""
        definitions: dict[str, Obj] = {}
        for definition in self._kept[_DEFINITIONS].values():
            spec = definition.get("spec") or {}
            definitions[f"{spec.get('group')}/{(spec.get('names') or {}).get('plural')}/"] = spec
        for key, obj in self._custom:
            group, _, rest = key.partition("/")
            plural = rest.partition("/")[0]
            defined = definitions.get(f"{group}/{plural}/")
            self.report.counts[f"{plural}.{group}"] += 1
            if defined is None:
                if not self.report.encrypted:  # otherwise its definition may be encrypted
                    self._problem(key, "no kind of the server and no CustomResourceDefinition has such keys")
            elif obj is not None:
                self._check_key(key, f"{group}/{plural}/", defined.get("scope") == "Namespaced", obj["metadata"])
                versions = [f"{group}/{one.get('name')}" for one in defined.get("versions") or []]
                if obj.get("apiVersion") not in versions or obj.get("kind") != defined["names"].get("kind"):
                    self._problem(key, f"its definition has no {obj.get('kind')} in version {obj.get('apiVersion')}")

    def _problem(self, key: str, reason: str) -> None:
        self._found.append(Problem(key, reason))


def _stored_resources() -> Iterator[Resource]:
    """Yield the built-in resources in the versions in which they are stored."""
    return (each for each in RESOURCES if each.is_stored and each.storage == (each.group, each.version))


def _identifying_fields(obj: Obj) -> Obj:
    """Return what the key of an object depends on."""
    meta = obj.get("metadata")
    named = {name: meta.get(name) for name in ("name", "namespace")} if isinstance(meta, dict) else {}
    return {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": named}
