"""A whole cluster inside another program: without sockets and files, with an injected clock and injected ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.filters.authenticate import AuthenticatorChain, InProcessAuthenticator
from setpoint.apiserver.health import BOOTSTRAPPED
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.remote_servers import (
    NoRemoteServers,
    RemoteServer,
    RemoteServerError,
    RemoteServers,
    SimulatedPodsFirst,
)
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.shared_entries import SharedEntries
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.apiserver.upkeep.server_objects import OwnAddress
from setpoint.client import Client
from setpoint.cluster.components import MASTERS, ComponentOptions, Components, InProcessClients
from setpoint.cluster.config import NO_DATA_DIR, ApiServerConfig, ConfigError
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.wiring import build_server
from setpoint.cluster.write_log import WriteLog
from setpoint.meta.clock import Clock, Ids
from setpoint.store.delayed_replica import Delay, DelayedReplica
from setpoint.store.interface import Store
from setpoint.store.maintenance import compact_forever
from setpoint.store.memory import MemoryStore
from setpoint.store.quota import StoreQuota
from setpoint.system import SystemClock
from setpoint.wire.message import Handler, HttpAnswer, Request, Response

if TYPE_CHECKING:
    from hashlib import _Hash as Digest

    from setpoint.apiserver.audit.auditor import Auditor
    from setpoint.apiserver.audit.sinks import MemorySink


Answers = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Function from path and body of a request to status and body of the response."""
_JSON_HEADERS = [("Content-Type", "application/json")]
_ADDRESS, _SECOND_ADDRESS = (OwnAddress(f"192.0.2.{number}", 6443, ["10.96.0.0/12"]) for number in (1, 2))
"""Addresses of the documentation range, where no server listens."""


class _Host:
    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.stopped = False
        self.timeouts: set[asyncio.Timeout] = set()
        """The time limits of the requests in progress."""


class InProcessHosts:
    """Sends requests to hosts in this process, and all others to `others`. A host that has stopped refuses connections,
    and its requests in progress end without a response."""

    def __init__(self, others: RemoteServers) -> None:
        self._others = others
        self._hosts: dict[str, _Host | None] = {}

    @contextmanager
    def serving(self, host: str, answers: Answers) -> Iterator[None]:
        """Serve `answers` under the name `host` while the block runs."""
        server = self._hosts[host] = _Host(answers)
        try:
            yield
        finally:
            self._hosts[host] = None
            server.stopped = True
            for limit in server.timeouts:
                if not limit.expired():
                    limit.reschedule(asyncio.get_running_loop().time())

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        if server.host in self._hosts:
            return await self._call_in_process(server, request, timeout)
        return await self._others.forward(server, request, timeout)

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        if server.host in self._hosts:
            return await self._call_in_process(server, request, timeout)
        return await self._others.call(server, request, timeout)

    async def _call_in_process(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        host = self._hosts[server.host]
        if host is None:
            raise RemoteServerError(f"dial tcp {server.address}: connect: connection refused")
        limit = asyncio.timeout(timeout)
        host.timeouts.add(limit)
        try:
            async with limit:
                status, body = await host.answers(request.path, request.body)
        except TimeoutError:
            raise RemoteServerError("EOF" if host.stopped else "context deadline exceeded") from None
        finally:
            host.timeouts.discard(limit)
        return Response(status, body, list(_JSON_HEADERS))


def _config() -> ApiServerConfig:
    return ApiServerConfig(NO_DATA_DIR, store="memory", authorization_mode=["Node", "RBAC"])


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """The configuration of an embedded cluster."""

    components: ComponentOptions = field(default_factory=ComponentOptions)
    config: ApiServerConfig = field(default_factory=_config)
    audit: bytes = b""
    """An audit policy, in YAML or JSON, whose events are stored in memory; empty means no audit log."""
    replica_delay: Delay | None = None
    """The delay with which a second API server, which the controllers use, sees the commits of the first; None means
    that there is one server. The second server serves no metrics of nodes."""
    address: OwnAddress = _ADDRESS
    """The address in the endpoints of the Service `kubernetes`, and the CIDRs of Services."""
    repair: bool = False
    """Whether initial objects that the start state lacks are created, as at the start of a server."""
    quota: StoreQuota | None = None
    """The largest content of the cluster; None means no limit."""
    isolated: bool = False
    """Whether the server refuses to connect to webhooks and other servers on the network."""


@dataclass(frozen=True, slots=True)
class State:
    """The immutable state of a cluster at one moment, from which any number of clusters can start."""

    store: MemoryStore
    digest: Digest
    """The digest of all writes that led to this state."""
    shared: SharedEntries = field(default_factory=SharedEntries)
    """Decoded objects that the clusters which start from this state share."""


class SecondServer(NamedTuple):
    """An API server that sees the commits of the first one late."""

    store: DelayedReplica
    handle: Handler
    client: Client
    """A client with an administrator's rights."""


@dataclass(slots=True)
class EmbeddedCluster:
    """A running embedded cluster."""

    api: ApiServer
    store: MemoryStore
    """The store that all writes reach."""
    components: Components
    client: Client
    """A client with an administrator's rights."""
    write_log: WriteLog
    hosts: InProcessHosts
    """Servers in this process that the API server can call, such as webhooks."""
    audit: MemorySink | None = None
    second: SecondServer | None = None
    """The second API server; None if there is one."""
    shared: SharedEntries = field(default_factory=SharedEntries)
    """Decoded objects that other clusters which started from the same state have too."""

    def state(self) -> State:
        return State(self.store.fork(), self.write_log.digest(), self.shared)


def open_stores(
    start: MemoryStore | None, *, shared: bool = False, quota: StoreQuota | None = None
) -> tuple[MemoryStore, Store]:
    """Return the medium of a new cluster with the content of `start`, and the store of its API server.

    They are the same store. The tests of this project replace this function to run on a store that lags."""
    medium = MemoryStore(shared=shared, quota=quota) if start is None else start.fork(shared=shared, quota=quota)
    return medium, medium


def _administrator(clients: InProcessClients) -> Client:
    return clients.copying_client("kubernetes-admin", (MASTERS,), agent="setpoint")


@asynccontextmanager
async def _second_server(
    first: ApiServer,
    medium: MemoryStore,
    clock: Clock,
    ids: Ids,
    options: EmbeddedOptions,
    write_log: WriteLog,
    hosts: InProcessHosts,
) -> AsyncIterator[SecondServer | None]:
    """Run a second API server on the medium of the first, if the options say so."""
    if options.replica_delay is None:
        yield None
        return
    store = DelayedReplica(medium, options.replica_delay)
    authenticator = AuthenticatorChain([InProcessAuthenticator()], True)
    resources = ApiResources(store, clock, ids)
    api = build_server(resources, options.config, authenticator, nodes=first.parts.nodes, servers=hosts)
    await api.start()
    resources.post_start.finish(*BOOTSTRAPPED)
    handle = write_log.recording(api.handle)
    try:
        async with upkeep(api, _SECOND_ADDRESS, "embedded-2", options.config.event_ttl), InProcess(handle) as server:
            yield SecondServer(store, handle, _administrator(InProcessClients(server, clock)))
    finally:
        await api.stop()
        await store.close()


def _server(
    store: Store,
    clock: Clock,
    ids: Ids,
    config: ApiServerConfig,
    auditor: Auditor | None = None,
    *,
    isolated: bool = False,
    shared: SharedEntries | None = None,
) -> tuple[ApiServer, InProcessHosts]:
    resources, nodes = ApiResources(store, clock, ids, shared=shared), NodeRoutes()
    # Servers on the network use real time, even if the cluster's time is virtual.
    network: RemoteServers = NoRemoteServers() if isolated else NetworkServers(SystemClock())
    hosts = InProcessHosts(SimulatedPodsFirst(network, nodes, CacheReader(resources), clock))
    authenticator = AuthenticatorChain([InProcessAuthenticator()], True)
    return build_server(resources, config, authenticator, nodes=nodes, servers=hosts, auditor=auditor), hosts


async def bootstrapped(clock: Clock, ids: Ids) -> State:
    """Return the state after the server has created its initial objects. It can be the start of many clusters."""
    store = MemoryStore()
    write_log = WriteLog(store, clock)
    api, _ = _server(store, clock, ids, _config())
    await api.start()
    await bootstrap(api.resources, _ADDRESS)
    await api.stop()
    return State(store, write_log.digest(), SharedEntries(store.entries().values()))


def _audit(policy: bytes, clock: Clock, ids: Ids) -> tuple[Auditor, MemorySink]:
    """Return an auditor and the sink in memory to which it writes. Raises ConfigError."""
    from setpoint.apiserver.audit.auditor import Auditor  # few clusters have one
    from setpoint.apiserver.audit.policy import PolicyError, read_policy
    from setpoint.apiserver.audit.sinks import MemorySink

    sink = MemorySink()
    try:
        return Auditor(read_policy(policy), sink, clock, ids), sink
    except PolicyError as error:
        raise ConfigError(f"audit policy: {error}") from None


@asynccontextmanager
async def embedded_cluster(
    clock: Clock, ids: Ids, options: EmbeddedOptions | None = None, start: State | None = None
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster from `start`, or a new one. The block begins when its nodes are ready."""
    options = options or EmbeddedOptions()
    config = options.config
    is_shared = options.replica_delay is not None
    medium, store = open_stores(None if start is None else start.store, shared=is_shared, quota=options.quota)
    write_log = WriteLog(medium, clock, None if start is None else start.digest)
    auditor, audit = _audit(options.audit, clock, ids) if options.audit else (None, None)
    shared = SharedEntries() if start is None else start.shared
    api, hosts = _server(store, clock, ids, config, auditor, isolated=options.isolated, shared=shared)
    await api.start()
    is_new, start = start is None, None  # its containers are not needed any more
    if is_new or options.repair:
        await bootstrap(api.resources, options.address)
    else:
        api.resources.post_start.finish(*BOOTSTRAPPED)
    async with asyncio.TaskGroup() as tasks:
        compactor = tasks.create_task(compact_forever(store, clock, config.compaction_interval))
        try:
            async with (
                upkeep(api, options.address, "embedded", config.event_ttl),
                _second_server(api, medium, clock, ids, options, write_log, hosts) as second,
                Components(
                    api,
                    clock,
                    ids,
                    options.components,
                    write_log.recording(api.handle),
                    None if second is None else second.handle,
                ) as components,
            ):
                client = _administrator(components.clients)
                yield EmbeddedCluster(api, medium, components, client, write_log, hosts, audit, second, shared)
        finally:
            compactor.cancel()
            await api.stop()
            await store.close()
            await medium.close()
