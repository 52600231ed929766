"""Prepares a machine for an API server on etcd: the lock of the data directory, the cluster's keys, and the member of
etcd that the machine runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from setpoint.cluster.config import MEMBER_RECORD, SERVERS_RECORD, ApiServerConfig, ConfigError
from setpoint.cluster.etcd_joining import Step
from setpoint.cluster.etcd_member import EtcdMember, embedded_etcd, fetch_keys
from setpoint.cluster.join_bundle import ENCRYPTION_CONFIG, remove_keys
from setpoint.cluster.private_files import ensure_private_directory, write_private
from setpoint.cluster.supervisor import Supervisor
from setpoint.meta.clock import Clock
from setpoint.store.etcd.store import EtcdStore
from setpoint.store.interface import Store, StoreError
from setpoint.store.sqlite_file import acquire_lock
from setpoint.system import RandomIds, SystemClock
from setpoint.tasks import Flag, child_tasks

Open = Callable[[ApiServerConfig, Clock], Awaitable[Store]]


class Prepared(NamedTuple):
    """A machine that is prepared for an API server on etcd."""

    config: ApiServerConfig
    store: Store
    supervisor: Supervisor
    """The supervisor of the machine's etcd."""
    keep: Callable[[], None]
    """Is called when the server serves requests: a machine that has joined the others for it remains a member."""


@asynccontextmanager
async def on_etcd(config: ApiServerConfig, open_store: Open, step: Step) -> AsyncIterator[Prepared]:
    """Prepare this machine for an API server on etcd. At the end the store is closed, and etcd stops last. Raises
    ConfigError."""
    clock = SystemClock()
    supervisor = Supervisor(clock)
    with _locked(config.data_dir):
        if not config.etcd:
            if (config.data_dir / MEMBER_RECORD).exists():
                raise ConfigError(f"{config.data_dir} contains a member of etcd: start it without --etcd-servers")
            async with _joined(config, clock, step) as keep:
                own = _with_shared_encryption(config)
                async with _opened(own, open_store, clock) as store:
                    write_private(own.data_dir / SERVERS_RECORD, f"{','.join(own.etcd_servers)}\n".encode())
                    yield Prepared(own, store, supervisor, keep)
            return
        async with embedded_etcd(config, clock, RandomIds(), supervisor, step) as member:
            own = _with_shared_encryption(member.server_config)
            async with _opened(own, open_store, clock) as store:
                assert isinstance(store, EtcdStore)
                following = supervisor.run("etcd membership", partial(member.follow, store.set_endpoints))
                async with child_tasks(following):
                    yield Prepared(own, store, supervisor, member.keep)


@asynccontextmanager
async def _joined(config: ApiServerConfig, clock: Clock, step: Step) -> AsyncIterator[Callable[[], None]]:
    """Fetch the keys of the cluster to join, if there is one and they are not there yet. They are removed again if the
    block fails before it has called the function that it receives."""
    serves = Flag()
    if not config.join or (config.pki / "ca.crt").exists():
        yield serves.set
        return
    (await fetch_keys(config, clock, step)).write(config.pki)
    try:
        yield serves.set
    except Exception:
        if not serves.is_set():
            remove_keys(config.pki)
            (config.data_dir / SERVERS_RECORD).unlink(missing_ok=True)
        raise


@asynccontextmanager
async def member_alone(
    config: ApiServerConfig, step: Step, *, force_new_cluster: bool = False
) -> AsyncIterator[EtcdMember]:
    """Run the member of etcd of this machine without an API server, while the block runs. With `force_new_cluster`, it
    continues as the only member. Raises ConfigError."""
    config.check()
    ensure_private_directory(config.data_dir)
    clock = SystemClock()
    with _locked(config.data_dir):
        own = embedded_etcd(config, clock, RandomIds(), Supervisor(clock), step, force_new_cluster=force_new_cluster)
        async with own as member:
            yield member


def _with_shared_encryption(config: ApiServerConfig) -> ApiServerConfig:
    """Return the configuration with the encryption of the cluster that this machine has joined, unless a flag names
    another file."""
    shared = config.pki / ENCRYPTION_CONFIG
    if config.encryption_provider_config or not shared.exists():
        return config
    return replace(config, encryption_provider_config=str(shared))


@asynccontextmanager
async def _opened(config: ApiServerConfig, open_store: Open, clock: Clock) -> AsyncIterator[Store]:
    store = await open_store(config, clock)
    try:
        yield store
    finally:
        with suppress(StoreError):
            await store.close()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of the data directory, as the SQLite store does: it shows that a process runs here."""
    try:
        lock = acquire_lock(directory / "state.db")
    except StoreError as error:
        raise ConfigError(str(error)) from None
    try:
        yield
    finally:
        os.close(lock)
