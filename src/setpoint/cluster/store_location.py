"""The location of a store, a SQLite database or a prefix of etcd, and access to it without a server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

from setpoint.cluster.config import MEMBER_RECORD, NO_DATA_DIR, ApiServerConfig, ConfigError
from setpoint.meta.clock import Clock
from setpoint.meta.times import parse_time
from setpoint.store.interface import Store

DATABASE = "state.db"
"""The name of the database in a data directory."""
_LEASES = "coordination.k8s.io/leases/kube-system/"
_IDENTITY_LABEL, _SERVER = "apiserver.kubernetes.io/identity", "kube-apiserver"
_RENEWED_WITHIN = 12.0
"""Seconds within which a running API server renews its Lease."""
_LIVE_SECONDS = 30.0
"""Age of a Lease up to which its API server is taken for running: they are renewed every 10 s."""


class EtcdAccess(NamedTuple):
    """The flags that say how etcd is used."""

    prefix: str = "/registry"
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""


_DEFAULT_ACCESS = EtcdAccess()
_ADDRESSES = re.compile(r"[\w.\[\]:-]+:\d+([,/].*)?")
"""Hosts with ports, which are no name of a directory."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The place of a store: either a database or a prefix of etcd."""

    database: Path | None
    """The path of the SQLite database; None for etcd."""
    servers: tuple[str, ...] = ()
    """The URLs of etcd's members."""
    access: EtcdAccess = _DEFAULT_ACCESS

    def __str__(self) -> str:
        if self.database is not None:
            return str(self.database)
        return f"{','.join(self.servers)}/{self.access.prefix.strip('/')}"

    def config(self) -> ApiServerConfig:
        """Return the configuration of a server on this prefix of etcd."""
        return ApiServerConfig(
            NO_DATA_DIR,
            store="etcd",
            etcd_servers=[*self.servers],
            etcd_prefix=self.access.prefix,
            etcd_cafile=self.access.cafile,
            etcd_certfile=self.access.certfile,
            etcd_keyfile=self.access.keyfile,
        )

    def overlaps(self, other: StoreLocation) -> bool:
        """Return whether the two may have keys in common."""
        if self.database is not None or other.database is not None:
            paths = [each.database.resolve() for each in (self, other) if each.database is not None]
            return len(paths) == 2 and paths[0] == paths[1]
        one, two = (f"{each.access.prefix.strip('/')}/" for each in (self, other))
        return bool({*self.servers} & {*other.servers}) and (one.startswith(two) or two.startswith(one))


def parse_location(text: str, access: EtcdAccess) -> StoreLocation:
    """Return the location for a data directory, a database or URLs of etcd, separated by commas.

    A path after the last URL is the prefix of the keys. Raises ConfigError."""
    if _ADDRESSES.fullmatch(text):
        raise ConfigError(f"{text}: URLs of etcd must begin with https:// or http://, and such a directory with ./")
    if "://" not in text:
        path = Path(text)
        if (path / MEMBER_RECORD).exists():
            raise ConfigError(
                f"{path} contains a member of etcd: run `setpoint member run`, and name the URL that it prints"
            )
        is_file = path.is_file() or (path.suffix == ".db" and not path.is_dir())
        return StoreLocation(path if is_file else path / DATABASE)
    servers, prefix = list[str](), access.prefix
    for one in text.split(","):
        url = urlsplit(one)
        if prefix != access.prefix or url.query or url.fragment:
            raise ConfigError(f"{text} must be URLs of etcd separated by commas; a prefix follows the last one")
        prefix = url.path.strip("/") or prefix
        servers.append(f"{url.scheme}://{url.netloc}")
    location = StoreLocation(None, tuple(servers), access._replace(prefix=prefix))
    location.config().check()
    return location


@asynccontextmanager
async def opened(location: StoreLocation, clock: Clock) -> AsyncIterator[Store]:
    """Yield the store for reading. Raises ConfigError.

    A database is not changed, and no server can start on it meanwhile; its content is read into memory."""
    if location.database is None:
        from setpoint.cluster.apiserver import open_etcd  # only for etcd

        try:
            store = await open_etcd(location.config(), clock)
        except ValueError as error:
            raise ConfigError(f"{location} has values that Setpoint did not write: {error}") from None
        try:
            yield store
        finally:
            await store.close()
        return
    check_no_member(location.database)
    from setpoint.store.memory import MemoryStore
    from setpoint.store.sqlite_reading import stopped_database

    with stopped_database(location.database) as history:
        yield MemoryStore(history)


def check_no_member(database: Path) -> None:
    """Raise ConfigError if the objects of a data directory are in its member of etcd, and not in a database."""
    if (database.parent / MEMBER_RECORD).exists() and not database.exists():
        raise ConfigError(
            f"the objects of {database.parent} are in its member of etcd: `setpoint member run` starts that alone and "
            "prints the flags with which it is reached"
        )


async def running_servers(store: Store, clock: Clock) -> Sequence[str]:
    """Return the names of the Leases of API servers that were renewed seconds ago.

    If Leases cannot be read, because they are encrypted, this waits to see whether one is renewed."""
    found, unreadable = [], dict[str, int]()
    for item in (await store.list(_LEASES)).items:
        try:
            lease = orjson.loads(item.value)
            if (lease["metadata"].get("labels") or {}).get(_IDENTITY_LABEL) != _SERVER:
                continue
            age = (clock.now() - parse_time(lease["spec"]["renewTime"])).total_seconds()
        except (ValueError, LookupError, TypeError):
            unreadable[item.key] = item.mod_revision
            continue
        if abs(age) < _LIVE_SECONDS:
            found.append(item.key[len(_LEASES) :])
    if unreadable and not found:
        await clock.sleep(_RENEWED_WITHIN)
        await store.sync()
        for item in (await store.list(_LEASES)).items:
            if unreadable.get(item.key, item.mod_revision) != item.mod_revision:
                found.append(item.key[len(_LEASES) :])
    return found


async def check_stopped(store: Store, location: StoreLocation, clock: Clock, otherwise: str = "") -> None:
    """Raise ConfigError if API servers seem to use this prefix of etcd. A database is protected by its lock.

    `otherwise` continues the message with another way out."""
    if location.database is None and (running := await running_servers(store, clock)):
        raise ConfigError(
            f"API servers use {location}: {', '.join(running)} renewed their Leases within the last "
            f"{_LIVE_SECONDS:g} s; stop them and try again after that time{otherwise}"
        )
