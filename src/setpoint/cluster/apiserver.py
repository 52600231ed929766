"""Builds an API server from its configuration and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.cache_upkeep import settle_forever
from setpoint.apiserver.corrupt_objects import summary
from setpoint.apiserver.filters.authenticate import (
    Authenticator,
    AuthenticatorChain,
    InProcessAuthenticator,
    LoopbackAuthenticator,
    TokenFileAuthenticator,
)
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.when import MARKS
from setpoint.apiserver.metrics_api import retire_metrics
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.identity import server_id
from setpoint.apiserver.upkeep.running import replica_upkeep, upkeep
from setpoint.apiserver.upkeep.server_objects import OwnAddress
from setpoint.apiserver.worker import Worker
from setpoint.cluster.authentication import ClientTrust
from setpoint.cluster.backups import BACKUP_PATH, INCOMPLETE, serve_backup
from setpoint.cluster.certificates import (
    CertificateFiles,
    ensure_certificates,
    server_context,
)
from setpoint.cluster.config import SERVERS_RECORD, ApiServerConfig, ConfigError
from setpoint.cluster.etcd_packages import check_etcd_packages
from setpoint.cluster.fork_endpoints import ForkEndpoints
from setpoint.cluster.heap import trim_while_quick
from setpoint.cluster.kubeconfigs import ADMIN_KUBECONFIG, write_kubeconfigs
from setpoint.cluster.outgoing_tls import kubelet_tls
from setpoint.cluster.private_files import ensure_private_directory, restrict_secrets
from setpoint.cluster.remote_nodes import RemoteNodes
from setpoint.cluster.supervisor import Supervisor
from setpoint.cluster.wiring import build_server
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta import quantity
from setpoint.meta.clock import Clock, Ids
from setpoint.store.in_memory_reads import InMemoryReads
from setpoint.store.interface import Store, StoreError
from setpoint.store.maintenance import check_forever, compact_forever, pack_forever
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore
from setpoint.system import RandomIds, SystemClock, hostname, outward_address, trim_heap
from setpoint.wire.listener import listen, reserve
from setpoint.wire.server import Server
from setpoint.wire.tls import TlsClient, Trust

if TYPE_CHECKING:
    from setpoint.apiserver.history.marks import MarkKeeper
    from setpoint.cluster.api_workers import WorkerRole
    from setpoint.cluster.audit_log import AuditLog
    from setpoint.cluster.encryption import Encryption
    from setpoint.cluster.scheduled_backups import ScheduledBackups
    from setpoint.cluster.trace_export import TraceExporter
    from setpoint.store.archive import FileArchive

log = logging.getLogger("setpoint.cluster")

_EVERYWHERE = ("0.0.0.0", "::")
_CHECK_INTERVAL = 1.0
"""Seconds between two checks whether the store has failed."""
_DRAIN_TIMEOUT = 10.0
"""Seconds that requests in flight have to end when the server stops."""


@dataclass(slots=True)
class RunningApiServer:
    """A server that listens, and what its clients need."""

    api: ApiServer
    address: str
    """Host and port, separated by a colon."""
    url: str
    kubeconfig: Path
    loopback_token: str
    certificates: CertificateFiles | None
    """Files of the authority and the serving certificate; None without TLS."""
    supervisor: Supervisor


async def open_store(config: ApiServerConfig, clock: Clock) -> Store:
    """Return the store of the configuration. Raises ConfigError."""
    if config.store == "memory":
        return MemoryStore()
    try:
        if config.store == "etcd":
            return await _complete(await open_etcd(config, clock))
        found = SqliteStore.open(config.data_dir / "state.db", accept_data_loss=config.accept_data_loss)
        (config.data_dir / SERVERS_RECORD).unlink(missing_ok=True)  # the cluster has moved back from etcd
        return found
    except StoreError as error:
        raise ConfigError(str(error)) from None


async def _complete(store: Store) -> Store:
    """Return the store unless its content is incomplete. Raises ConfigError."""
    if await store.get(INCOMPLETE) is None:
        return store
    await store.close()
    raise ConfigError("etcd holds a part of a cluster only: repeat the `setpoint store copy` or `restore` that failed")


async def open_etcd(config: ApiServerConfig, clock: Clock) -> Store:
    """Return the store on etcd. Raises ConfigError, StoreError."""
    check_etcd_packages("--store etcd")
    from setpoint.store.etcd.store import EtcdStore  # an optional dependency

    tls, prefix, number = etcd_tls(config, clock), config.etcd_key_prefix, partial(os.urandom, 16)
    return await EtcdStore.open(config.etcd_servers, prefix=prefix, tls=tls, number=number)


def etcd_tls(config: ApiServerConfig, clock: Clock) -> TlsClient | None:
    """Return the TLS side of connections to etcd, or None for plain connections. Raises ConfigError."""
    if not config.etcd_servers[0].startswith("https:"):
        return None
    try:
        roots = Path(config.etcd_cafile).read_bytes() if config.etcd_cafile else b""
        own = None
        if config.etcd_certfile:
            own = Path(config.etcd_certfile).read_bytes(), Path(config.etcd_keyfile).read_bytes()
        return TlsClient(Trust(clock, roots), own, protocol="h2")
    except (OSError, ValueError) as error:  # OSError includes ssl.SSLError
        raise ConfigError(f"cannot use the certificates for etcd: {error}") from None


def _authenticators(config: ApiServerConfig, token: str, trust: ClientTrust | None) -> list[Authenticator]:
    found: list[Authenticator] = [LoopbackAuthenticator(token), *(trust.authenticators if trust is not None else ())]
    if config.token_auth_file:
        try:
            found.append(TokenFileAuthenticator.read(config.token_auth_file))
        except OSError as error:
            raise ConfigError(f"cannot read --token-auth-file {config.token_auth_file}: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(str(error)) from None
    return found


def serving_tls(config: ApiServerConfig, clock: Clock) -> tuple[ssl.SSLContext, CertificateFiles]:
    """Return the TLS side of a server, and the files of its authority and certificate. Raises ConfigError."""
    names = [config.bind_address]
    if config.bind_address in _EVERYWHERE:
        names = [name for name in (_advertised(config), hostname()) if name]
    names += config.apiserver_cert_extra_sans
    files = ensure_certificates(
        config.pki, clock.now(), service_ip=_first_address(config.service_cidrs[0]), extra_names=names
    )
    context = server_context(files, files.ca)
    if config.tls_cert_file:
        try:
            context.load_cert_chain(config.tls_cert_file, config.tls_private_key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot use --tls-cert-file {config.tls_cert_file}: {error}") from None
    return context, files


def _advertised(config: ApiServerConfig) -> str:
    """Return the address for endpoints; empty if the server can be reached only from this machine."""
    if config.advertise_address:
        return "" if ip_address(config.advertise_address).is_loopback else config.advertise_address
    bound = ip_address("127.0.0.1" if config.bind_address == "localhost" else config.bind_address)
    if bound.is_loopback or bound.is_unspecified:
        # Such an address is not valid in Endpoints: use that of the default route.
        return outward_address(bound.version)
    return config.bind_address


def _first_address(cidr: str) -> str:
    return str(ip_network(cidr).network_address + 1)


def _allows_anonymous(config: ApiServerConfig) -> bool:
    if "AlwaysAllow" not in config.authorization_mode:
        return config.anonymous_auth is not False
    if config.anonymous_auth:
        log.warning(
            "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. "
            "You should use a different authorizer"
        )
    return False


@asynccontextmanager
async def apiserver(
    config: ApiServerConfig,
    store: Store | None = None,
    *,
    alone: bool = False,
    step: Callable[[str], None] = lambda _: None,
    role: WorkerRole | None = None,
) -> AsyncIterator[RunningApiServer]:
    """Serve the API while the block runs. `alone` means that no other component runs in this process. `step` is called
    with what is started next. `role` is that of a worker, whose store is a replica. Raises ConfigError."""
    config.check()
    ensure_private_directory(config.data_dir)
    restrict_secrets(config.data_dir, config.pki)
    if config.store != "etcd" or store is not None:
        async with _serving(config, store, Supervisor(SystemClock()), alone, role) as running:
            yield running
        return
    check_etcd_packages("--store etcd")
    from setpoint.cluster.etcd_server import on_etcd  # an optional dependency

    async with on_etcd(config, open_store, step) as prepared:
        step("the API server")
        async with _serving(prepared.config, prepared.store, prepared.supervisor, alone) as running:
            prepared.keep()
            yield running


@asynccontextmanager
async def _serving(
    config: ApiServerConfig,
    store: Store | None,
    supervisor: Supervisor,
    alone: bool,
    role: WorkerRole | None = None,
) -> AsyncIterator[RunningApiServer]:
    clock, ids = SystemClock(), RandomIds()
    token = role.token if role is not None else ids.secret()
    context, files = (None, None) if config.insecure_http else serving_tls(config, clock)
    anonymous = _allows_anonymous(config)
    trust = ClientTrust(config, files.ca, context, clock) if context is not None and files is not None else None
    authenticators = _authenticators(config, token, trust)
    if not alone:
        authenticators.append(InProcessAuthenticator())
    store = backend = store or await open_store(config, clock)
    archive: FileArchive | None = None
    reserved: list[socket.socket] = []
    try:
        archive = await _attach_archive(config, backend, clock)
        encryption = _encryption(config, store, clock)
        if encryption is not None:
            store = encryption.store
        resources = ApiResources(store, clock, ids, Worker(threads=True))
        audit, background = _audit_log(config, clock, ids), []
        sources = resources.metrics.sources
        sources.append(supervisor.families)
        if encryption is not None:
            sources.append(encryption.families)
            if config.encryption_provider_config_automatic_reload:
                background.append(encryption.watcher(resources).run)
        if audit is not None:
            sources.append(audit.families)
        tracing = _tracing(config, clock, ids)
        if tracing is not None:
            background.append(tracing.run)
        backups = _scheduled_backups(config, backend, clock) if role is None else None
        if backups is not None:
            sources.append(backups.families)
        if archive is not None:
            background.append(_mark_keeper(resources, backend, archive, clock).run)
        tolerations = config.default_not_ready_toleration_seconds, config.default_unreachable_toleration_seconds
        forks = ForkEndpoints(resources, tolerations)
        api = build_server(
            resources,
            config,
            AuthenticatorChain(authenticators, anonymous),
            certificates=files,
            nodes=NodeRoutes(RemoteNodes(kubelet_tls(config, files, clock))),
            auditor=audit.auditor if audit is not None else None,
            tracer=tracing.tracer if tracing is not None else None,
            needs_rewrite=encryption.store.stale if encryption is not None else None,
            unlisted_paths={BACKUP_PATH: serve_backup(backend, clock), **(forks.paths if role is None else forks.plan)},
            background=[*background, *(trust.background if trust is not None else ()), forks.run],
        )
        server = Server(api.handle, clock=clock, slicer=resources.slicer, ssl=context, on_error=api.unexpected)
        bound = (role.host, role.port) if role is not None else await _listen(server, config, reserved)
        host, port = bound
        if host in _EVERYWHERE:
            host = _advertised(config) or ("::1" if host == "::" else "127.0.0.1")
        shown = f"[{host}]" if ":" in host else host
        address = f"{shown}:{port}"
        await api.start(address)
        if corrupt := {key: why for cache in resources.caches.values() for key, why in cache.corrupt.items()}:
            if not alone:
                await api.stop()
                await server.stop(0.0)
                raise ConfigError(
                    f"{summary(corrupt)}. Controllers cannot work without them; `setpoint apiserver` serves the rest"
                )
            log.error(summary(corrupt))
        own = OwnAddress(_advertised(config), port, config.service_cidrs)
        url = f"{'http' if config.insecure_http else 'https'}://{address}"
        kubeconfig = config.data_dir / ADMIN_KUBECONFIG
        if role is None:
            await bootstrap(resources, own)
            if alone and not store.shared:
                await retire_metrics(resources)
            log.info("serving on %s", address)
            kubeconfig = write_kubeconfigs(config.data_dir, config.name, url, files, clock, token)
        async with asyncio.TaskGroup() as tasks:
            supervise, maintenance = supervisor.run, list[asyncio.Task[None]]()
            if role is None:
                compaction = partial(compact_forever, store, clock, config.compaction_interval)
                maintenance.append(tasks.create_task(supervise("compaction", compaction)))
            settling = partial(settle_forever, lambda: [*resources.caches.values()], clock)
            maintenance.append(tasks.create_task(supervise("memory of the watch caches", settling)))
            if isinstance(backend, InMemoryReads):
                packing = partial(pack_forever, backend, clock)
                maintenance.append(tasks.create_task(supervise("compression of values", packing)))
                trimming = partial(trim_while_quick, lambda: backend.packed_size, trim_heap, clock)
                maintenance.append(tasks.create_task(supervise("return of free memory", trimming)))
            if isinstance(backend, SqliteStore):
                check = partial(check_forever, backend, clock)
                maintenance.append(tasks.create_task(supervise("check of the data files", check)))
            auditing = tasks.create_task(supervise("audit log", audit.run)) if audit is not None else None
            try:
                more = [("backups", backups.run)] if backups is not None else []
                if role is not None:
                    loops = replica_upkeep(api, supervise)
                else:
                    loops = upkeep(api, own, hostname(), config.event_ttl, supervise, more)
                async with loops:
                    await resources.post_start.finished.wait()
                    if role is not None:  # the kernel chooses among those that listen
                        server.serve(await listen(config.bind_address, port, shared=True))
                    async with _workers(config, backend, bound, token, supervisor):
                        yield RunningApiServer(api, address, url, kubeconfig, token, files, supervisor)
                        api.begin_stop()
                        server.drain()
                await clock.sleep(config.shutdown_delay_duration)
            finally:
                for task in maintenance:
                    task.cancel()
                await server.stop(_DRAIN_TIMEOUT)
                await api.stop()
                resources.worker.stop()
                if auditing is not None:
                    auditing.cancel()
    finally:
        for each in reserved:
            each.close()
        # The failure of a store was logged already; it must not prevent the process from ending.
        with contextlib.suppress(StoreError):
            if archive is not None and isinstance(backend, InMemoryReads) and backend.shared:
                # Others may compact the medium before this server reads it again.
                await backend.archive_until(backend.revision)
            await store.close()
        if archive is not None:
            await archive.close()


async def _attach_archive(config: ApiServerConfig, store: Store, clock: Clock) -> FileArchive | None:
    """Keep what the store compacts in a file, if the configuration says so. Raises ConfigError."""
    if not config.history_retention or config.store == "memory" or not isinstance(store, InMemoryReads):
        return None
    from setpoint.store.archive import FileArchive, Retention  # many servers keep no history

    excluded = tuple(map(_storage_prefix, config.history_exclude))
    retention = Retention(config.history_retention, quantity.value(config.history_max_size), excluded)
    try:
        archive = FileArchive(config.data_dir / "history.db", retention, clock)
        await archive.follow(store)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    return archive


def _mark_keeper(resources: ApiResources, backend: Store, archive: FileArchive, clock: Clock) -> MarkKeeper:
    from setpoint.apiserver.history.marks import MarkKeeper  # many servers keep no history

    def marks() -> Mapping[str, Any] | None:
        cache = resources.caches.get("core/configmaps/")
        if cache is None:
            return None
        entry = cache.get(f"core/configmaps/{'/'.join(MARKS)}")
        return (entry.obj.get("data") or {}) if entry is not None else {}

    return MarkKeeper(HistoryReader(backend), archive, marks, clock)


def _storage_prefix(name: str) -> str:
    """Return the prefix of the keys of a resource, given as RESOURCE or RESOURCE.GROUP."""
    plural, _, group = name.partition(".")
    for resource in RESOURCES:
        if (resource.plural, resource.group) == (plural, group) and resource.is_stored:
            return resource.storage_prefix
    return f"{group or 'core'}/{plural}/"


def _encryption(config: ApiServerConfig, store: Store, clock: Clock) -> Encryption | None:
    if not config.encryption_provider_config:
        return None
    from setpoint.cluster.encryption import Encryption  # most servers have none

    return Encryption(config.encryption_provider_config, store, clock)


def _scheduled_backups(config: ApiServerConfig, store: Store, clock: Clock) -> ScheduledBackups | None:
    if not config.backup_interval:
        return None
    from setpoint.cluster.scheduled_backups import ScheduledBackups  # most servers have none

    directory = Path(config.backup_dir) if config.backup_dir else config.data_dir / "backups"
    interval, keep = config.backup_interval, config.backup_keep
    return ScheduledBackups(store, clock, Worker(threads=True), directory, interval=interval, keep=keep)


def _audit_log(config: ApiServerConfig, clock: Clock, ids: Ids) -> AuditLog | None:
    if not config.audit.is_configured:
        return None
    from setpoint.cluster.audit_log import audit_log  # most servers have none

    return audit_log(config.audit, clock, ids)


def _tracing(config: ApiServerConfig, clock: Clock, ids: Ids) -> TraceExporter | None:
    if not config.tracing_config_file:
        return None
    try:
        import hpack  # noqa: F401  # an optional dependency, which is used when the first spans are sent

        from setpoint.cluster.trace_export import trace_exporter  # most servers have none
    except ImportError as error:
        raise ConfigError(f"--tracing-config-file needs {error.name}: pip install 'setpoint[etcd]'") from None
    return trace_exporter(config.tracing_config_file, server_id(hostname()), clock, ids)


def _workers(
    config: ApiServerConfig, store: Store, address: tuple[str, int], token: str, supervisor: Supervisor
) -> AbstractAsyncContextManager[None]:
    """Run the workers of the configuration, if there are any, while the block runs."""
    if not config.workers or not isinstance(store, MemoryStore | SqliteStore):
        return contextlib.nullcontext()
    from setpoint.cluster.api_workers import api_workers  # most servers have none

    return api_workers(config, store, address, token, supervisor)


async def _listen(server: Server, config: ApiServerConfig, reserved: list[socket.socket]) -> tuple[str, int]:
    """Listen, or reserve the port for the workers with sockets that are added to `reserved`."""
    try:
        if not config.workers:
            return await server.start(config.bind_address, config.port)
        reserved += await reserve(config.bind_address, config.port)
        host, port, *_ = reserved[0].getsockname()
        return host, port
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            from setpoint.cluster.procfs import listening_process

            process = listening_process(config.port)
            raise ConfigError(
                f"port {config.port} on {config.bind_address} is in use"
                + (f" by {process}; stop it" if process else "; stop the process that uses it")
                + ", or choose another port: --port 0 picks a free one"
            ) from None
        raise ConfigError(f"cannot listen on {config.bind_address}:{config.port}: {error.strerror}") from None


async def serve_until(stop: asyncio.Event, api: ApiServer) -> None:
    """Return when `stop` is set; `/readyz` fails from then on. Raises ConfigError if the store fails, because the
    server cannot work without it."""
    while True:
        if api.resources.store.failure:
            raise ConfigError(api.resources.store.failure)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _CHECK_INTERVAL)
            api.begin_stop()
            return


__all__ = ["RunningApiServer", "apiserver", "etcd_tls", "open_etcd", "open_store", "serve_until"]
