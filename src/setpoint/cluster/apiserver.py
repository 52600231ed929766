"""Puts an API server together from its configuration and runs it until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.corrupt import summary
from setpoint.apiserver.filters.authenticate import (
    Authenticator,
    AuthenticatorChain,
    LoopbackAuthenticator,
    TokenFileAuthenticator,
)  # fmt: skip
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.http.certificates import (
    CertificateFiles,
    ensure_certificates,
    server_context,
)  # fmt: skip
from setpoint.apiserver.http.server import Server
from setpoint.apiserver.metrics_api.serving import retire_metrics
from setpoint.apiserver.server import ApiServer, Options
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.cluster.backups import BACKUP_PATH, serve_backup
from setpoint.cluster.client_trust import ClientTrust
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.far_nodes import FarNodes
from setpoint.cluster.issued_kubeconfigs import write_kubeconfigs
from setpoint.cluster.kubelet_client import kubelet_tls
from setpoint.cluster.private_files import keep_private, make_private
from setpoint.cluster.supervisor import Supervisor
from setpoint.cluster.wiring import wire
from setpoint.meta.clock import Clock
from setpoint.store.compactor import compact_forever
from setpoint.store.interface import Store, StoreError
from setpoint.store.memory import MemoryStore
from setpoint.store.periodic_check import check_forever
from setpoint.store.sqlite import SqliteStore
from setpoint.system import RandomIds, SystemClock, hostname, outward_address

if TYPE_CHECKING:
    from setpoint.cluster.auditing import AuditLog
    from setpoint.cluster.encryption import Encryption

log = logging.getLogger("setpoint.cluster")

_LOOK_EVERY = 1.0


@dataclass(slots=True)
class RunningApiServer:
    api: ApiServer
    address: str
    """host:port"""
    url: str
    kubeconfig: Path
    loopback_token: str
    certificates: CertificateFiles | None
    supervisor: Supervisor


def open_store(config: ApiServerConfig) -> Store:
    if config.store == "memory":
        return MemoryStore()
    try:
        return SqliteStore.open(config.data_dir / "state.db", accept_data_loss=config.accept_data_loss)
    except StoreError as error:
        raise ConfigError(str(error)) from None


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


def _tls(config: ApiServerConfig, clock: Clock) -> tuple[ssl.SSLContext, CertificateFiles]:
    directory = config.cert_dir or config.data_dir / "pki"
    names = () if config.bind_address in ("0.0.0.0", "::") else (config.bind_address,)
    files = ensure_certificates(
        directory, clock.now(), service_ip=_first_address(config.service_cidrs[0]), extra_names=names
    )
    context = server_context(files, files.ca)
    if config.tls_cert_file:
        try:
            context.load_cert_chain(config.tls_cert_file, config.tls_private_key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot use --tls-cert-file {config.tls_cert_file}: {error}") from None
    return context, files


def _advertised(config: ApiServerConfig) -> str:
    if config.advertise_address:
        return config.advertise_address
    bound = ip_address("127.0.0.1" if config.bind_address == "localhost" else config.bind_address)
    if bound.is_loopback or bound.is_unspecified:
        # Endpoints cannot hold such an address; the one with which the machine speaks to others will do.
        return outward_address(bound.version)
    return config.bind_address


def _first_address(cidr: str) -> str:
    return str(ip_network(cidr).network_address + 1)


def _lets_anybody_in(config: ApiServerConfig) -> bool:
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
    config: ApiServerConfig, store: Store | None = None, *, alone: bool = False
) -> AsyncIterator[RunningApiServer]:
    """A served API, from before the first request to after the last. `alone`: no nodes in this process. Raises
    ConfigError."""
    config.check()
    make_private(config.data_dir)
    keep_private(config.data_dir, config.cert_dir or config.data_dir / "pki")
    clock, ids = SystemClock(), RandomIds()
    token = ids.secret()
    context, files = (None, None) if config.insecure_http else _tls(config, clock)
    anonymous = _lets_anybody_in(config)
    trust = ClientTrust(config, files.ca, context, clock) if context is not None and files is not None else None
    authenticators = _authenticators(config, token, trust)
    store = medium = store or open_store(config)
    try:
        options = Options(
            authenticator=AuthenticatorChain(authenticators, anonymous),
            authorizer=AuthorizerChain(()),
            max_reads=config.max_requests_inflight,
            max_writes=config.max_mutating_requests_inflight,
        )
        encryption = _encryption(config, store, clock)
        if encryption is not None:
            store = encryption.store
        api = ApiServer(store, clock, ids, options)
        api.worker.use_threads()
        if encryption is not None:
            _follow_encryption(api, config, encryption)
        services = wire(api, config, files)
        supervisor = Supervisor(clock)
        api.metrics.sources.append(supervisor.families)
        if trust is not None:
            api.background += trust.background
        audit = _audit_log(api, config)
        api.nodes.otherwise = FarNodes(kubelet_tls(config, files, clock))
        api.unlisted[BACKUP_PATH] = serve_backup(medium)
        server = Server(api.handle, clock=clock, turns=api.turns, ssl=context, on_error=api.unexpected)
        host, port = await _listen(server, config)
        shown = f"[{host}]" if ":" in host else host
        address = f"{shown}:{port}"
        api.address = address
        await api.start()
        if corrupt := {key: why for cache in api.caches.values() for key, why in cache.corrupt.items()}:
            if not alone:
                await api.stop()
                await server.stop(0.0)
                raise ConfigError(
                    f"{summary(corrupt)}. Controllers cannot work without them; `setpoint apiserver` serves the rest"
                )
            log.error(summary(corrupt))
        own = OwnAddress(_advertised(config), port, config.service_cidrs)
        await bootstrap(api, own)
        if alone:
            await retire_metrics(api)
        log.info("serving on %s", address)
        url = f"{'http' if config.insecure_http else 'https'}://{address}"
        kubeconfig = write_kubeconfigs(config.data_dir, config.name, url, files, clock, token)
        async with asyncio.TaskGroup() as tasks:
            keep, interval = supervisor.run, config.compaction_interval
            helpers = [tasks.create_task(keep("compaction", partial(compact_forever, store, clock, interval)))]
            if isinstance(medium, SqliteStore):
                helpers.append(
                    tasks.create_task(keep("check of the data files", partial(check_forever, medium, clock)))
                )
            auditing = tasks.create_task(keep("audit log", audit.run)) if audit is not None else None
            try:
                async with upkeep(api, services, own, hostname(), config.event_ttl, keep):
                    await api.post_start.finished.wait()
                    yield RunningApiServer(api, address, url, kubeconfig, token, files, supervisor)
            finally:
                for helper in helpers:
                    helper.cancel()
                await api.stop()
                await server.stop(10.0)
                api.worker.stop()
                if auditing is not None:
                    auditing.cancel()
    finally:
        # A store that failed has said so; what matters is that the process ends.
        with contextlib.suppress(StoreError):
            await store.close()


def _encryption(config: ApiServerConfig, store: Store, clock: Clock) -> Encryption | None:
    if not config.encryption_provider_config:
        return None
    from setpoint.cluster.encryption import Encryption  # most servers have none

    return Encryption(config.encryption_provider_config, store, clock)


def _follow_encryption(api: ApiServer, config: ApiServerConfig, encryption: Encryption) -> None:
    api.env.stale = encryption.store.stale
    api.metrics.sources.append(encryption.families)
    if config.encryption_provider_config_automatic_reload:
        api.background.append(encryption.follow(api).run)


def _audit_log(api: ApiServer, config: ApiServerConfig) -> AuditLog | None:
    if not config.audit.mentioned:
        return None
    from setpoint.cluster.auditing import audit_log  # most servers have none

    audit = audit_log(config.audit, api.clock, api.ids)
    if audit is None:
        return None
    api.auditor = audit.auditor
    api.metrics.sources.append(audit.families)
    return audit


async def _listen(server: Server, config: ApiServerConfig) -> tuple[str, int]:
    try:
        return await server.start(config.bind_address, config.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            from setpoint.cluster.port_holder import port_holder

            holder = port_holder(config.port)
            raise ConfigError(
                f"port {config.port} on {config.bind_address} is in use"
                + (f" by {holder}; stop it" if holder else "; stop what uses it")
                + ", choose another port with --port, or say --port 0 for any free one"
            ) from None
        raise ConfigError(f"cannot listen on {config.bind_address}:{config.port}: {error.strerror}") from None


async def until(stop: asyncio.Event, api: ApiServer) -> None:
    """Until told to stop. A store that has failed cannot serve any more: that ends the wait too, with an error."""
    while True:
        if api.store.failure:
            raise ConfigError(api.store.failure)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_EVERY)
            return


__all__ = ["RunningApiServer", "apiserver", "open_store", "until"]
