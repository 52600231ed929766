"""A whole cluster inside another program: no socket, no file, and time and chance as they are handed in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.far_server import NearFirst
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.post_start import BOOTSTRAPPED
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.server import ApiServer, Options
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.client import Client
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.config import NOWHERE, ApiServerConfig, ConfigError
from setpoint.cluster.far_servers import NetworkServers
from setpoint.cluster.identities import MASTERS
from setpoint.cluster.journal import Journal
from setpoint.cluster.near_hosts import NearHosts
from setpoint.cluster.wiring import wire
from setpoint.meta.clock import Clock, Ids
from setpoint.store.compactor import compact_forever
from setpoint.store.memory import MemoryStore
from setpoint.system import SystemClock

if TYPE_CHECKING:
    from hashlib import _Hash as Digest

    from setpoint.apiserver.audit.kept import Kept

_ADDRESS = OwnAddress("192.0.2.1", 6443, ["10.96.0.0/12"])
"""From the range for examples: nobody listens there."""


def _config() -> ApiServerConfig:
    return ApiServerConfig(NOWHERE, store="memory", authorization_mode=["Node", "RBAC"])


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    components: ComponentOptions = field(default_factory=ComponentOptions)
    config: ApiServerConfig = field(default_factory=_config)
    audit: bytes = b""
    """An audit policy, in YAML or JSON; what it wants told stays in memory."""


@dataclass(frozen=True, slots=True)
class State:
    """All that a cluster is at one moment. It never changes: any number of clusters can begin with it."""

    store: MemoryStore
    digest: Digest
    """Of how it came to be."""


@dataclass(slots=True)
class EmbeddedCluster:
    api: ApiServer
    store: MemoryStore
    components: Components
    client: Client
    """As an administrator."""
    journal: Journal
    hosts: NearHosts
    """Servers in this process that the API server can call, such as webhooks."""
    audit: Kept | None = None

    def state(self) -> State:
        return State(self.store.fork(), self.journal.digest())


def _server(
    store: MemoryStore, clock: Clock, ids: Ids, config: ApiServerConfig
) -> tuple[ApiServer, ServiceHooks, NearHosts]:
    server = Options(AuthenticatorChain([], True), AuthorizerChain(()), max_reads=config.max_requests_inflight,
                     max_writes=config.max_mutating_requests_inflight)  # fmt: skip
    api = ApiServer(store, clock, ids, server)
    # Servers on the network live in real time, whatever the time of the cluster.
    network = NetworkServers(SystemClock())
    hosts = NearHosts(NearFirst(network, api.nodes, CacheReader(api), clock))
    return api, wire(api, config, None, hosts), hosts


async def bootstrapped(clock: Clock, ids: Ids) -> State:
    """What the server makes before anything else happens. Whoever starts many clusters need have it made only once."""
    store = MemoryStore()
    journal = Journal(store, clock)
    api, _, _ = _server(store, clock, ids, _config())
    await api.start()
    await bootstrap(api, _ADDRESS)
    await api.stop()
    return State(store, journal.digest())


def _audit(api: ApiServer, policy: bytes) -> Kept:
    """Raises ConfigError."""
    from setpoint.apiserver.audit.auditor import Auditor  # few clusters have one
    from setpoint.apiserver.audit.kept import Kept
    from setpoint.apiserver.audit.policy import PolicyError, read_policy

    kept = Kept()
    try:
        api.auditor = Auditor(read_policy(policy), kept, api.clock, api.ids)
    except PolicyError as error:
        raise ConfigError(f"audit policy: {error}") from None
    return kept


@asynccontextmanager
async def embedded_cluster(
    clock: Clock, ids: Ids, options: EmbeddedOptions | None = None, start: State | None = None
) -> AsyncIterator[EmbeddedCluster]:
    """From nothing (or from where another one was) to nodes that are ready, and back."""
    options = options or EmbeddedOptions()
    config = options.config
    store = MemoryStore() if start is None else start.store.fork()
    journal = Journal(store, clock, None if start is None else start.digest)
    api, services, hosts = _server(store, clock, ids, config)
    audit = _audit(api, options.audit) if options.audit else None
    await api.start()
    if start is None:
        await bootstrap(api, _ADDRESS)
    else:
        api.post_start.finish(*BOOTSTRAPPED)
    async with asyncio.TaskGroup() as tasks:
        compactor = tasks.create_task(compact_forever(store, clock, config.compaction_interval))
        try:
            async with (
                upkeep(api, services, _ADDRESS, "embedded", config.event_ttl),
                Components(api, clock, ids, options.components, journal.listening(api.handle)) as parts,
            ):
                client = parts.who.guest("kubernetes-admin", (MASTERS,), agent="setpoint")
                yield EmbeddedCluster(api, store, parts, client, journal, hosts, audit)
        finally:
            compactor.cancel()
            await api.stop()
            await store.close()
