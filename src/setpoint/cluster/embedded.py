"""A whole cluster inside another program: no socket, no file, and time and chance as they are handed in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.far_server import NearFirst
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.server import ApiServer, Options
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress
from setpoint.apiserver.upkeep.running import upkeep
from setpoint.client import Client
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.config import NOWHERE, ApiServerConfig
from setpoint.cluster.far_servers import NetworkServers
from setpoint.cluster.identities import MASTERS
from setpoint.cluster.near_hosts import NearHosts
from setpoint.cluster.wiring import wire
from setpoint.meta.clock import Clock, Ids
from setpoint.store.compactor import compact_forever
from setpoint.store.interface import Event, Store
from setpoint.store.memory import MemoryStore

_ADDRESS = OwnAddress("192.0.2.1", 6443, ["10.96.0.0/12"])
"""From the range for examples: nobody listens there."""


def _config() -> ApiServerConfig:
    return ApiServerConfig(NOWHERE, store="memory", authorization_mode=["Node", "RBAC"])


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    components: ComponentOptions = field(default_factory=ComponentOptions)
    config: ApiServerConfig = field(default_factory=_config)


_HEARTBEATS = ("coordination.k8s.io/leases/", "core/nodes/", "core/events/")


class Journal:
    """A digest of every revision since it began: two runs that did the same have the same; and whether there is any
    unrest."""

    def __init__(self, store: Store) -> None:
        self._digest = sha256()
        self.news = 0
        """How much was written that is no heartbeat and no event."""
        self.newest: deque[str] = deque(maxlen=5)
        """Where that was, lately."""
        store.watch("", store.revision, self._see)

    def _see(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            if not event.key.startswith(_HEARTBEATS):
                self.news += 1
                self.newest.append(event.key)
            value = b"" if event.now is None else event.now.value
            self._digest.update(b"%d %s %d\n%s" % (event.revision, event.key.encode(), len(value), value))

    def digest(self) -> str:
        return self._digest.hexdigest()


@dataclass(slots=True)
class EmbeddedCluster:
    api: ApiServer
    store: Store
    components: Components
    client: Client
    """As an administrator."""
    journal: Journal
    hosts: NearHosts
    """Servers in this process that the API server can call, such as webhooks."""


@asynccontextmanager
async def embedded_cluster(
    clock: Clock, ids: Ids, options: EmbeddedOptions | None = None, store: Store | None = None
) -> AsyncIterator[EmbeddedCluster]:
    """From nothing (or from what `store` holds) to nodes that are ready, and back. A store that is handed in is left
    open."""
    options = options or EmbeddedOptions()
    config, kept = options.config, store
    store = store if store is not None else MemoryStore()
    journal = Journal(store)
    server = Options(AuthenticatorChain([], True), AuthorizerChain(()), max_reads=config.max_requests_inflight,
                     max_writes=config.max_mutating_requests_inflight)  # fmt: skip
    api = ApiServer(store, clock, ids, server)
    hosts = NearHosts(NearFirst(NetworkServers(), api.nodes, CacheReader(api), clock))
    services = wire(api, config, None, hosts)
    await api.start()
    await bootstrap(api, _ADDRESS)
    async with asyncio.TaskGroup() as tasks:
        compactor = tasks.create_task(compact_forever(store, clock, config.compaction_interval))
        try:
            async with (
                upkeep(api, services, _ADDRESS, "embedded", config.event_ttl),
                Components(api, clock, ids, options.components) as parts,
            ):
                client = parts.who.guest("kubernetes-admin", (MASTERS,), agent="setpoint")
                yield EmbeddedCluster(api, store, parts, client, journal, hosts)
        finally:
            compactor.cancel()
            await api.stop()
            if kept is None:
                await store.close()
