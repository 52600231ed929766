"""Runs the maintenance loops of one server: those for the server itself, and those for the cluster.

If several servers share the store, each runs the loops for itself, and an election decides which one runs those for the
cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from setpoint.apiserver import health
from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.registry import completes_within
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep import api_services, flow_control, identity, server_objects, service_repair
from setpoint.apiserver.upkeep.event_expiry import EventExpiry
from setpoint.apiserver.upkeep.identity import IdentityLease
from setpoint.apiserver.upkeep.loop import every, run_once
from setpoint.apiserver.upkeep.server_objects import system_namespaces

Task = Callable[[], Coroutine[Any, Any, None]]
Supervise = Callable[[str, Task], Coroutine[Any, Any, None]]
"""Runs the task with this name until it ends by itself or is cancelled, and restarts it when it fails."""
_CLUSTER_HOOKS = (
    health.NAMESPACES,
    health.FLOW_CONSUMER,
    health.SERVICE_REPAIR,
    health.OWN_SERVICE,
    health.IDENTITY_COLLECTION,
    health.TOKEN_TRACKING,
)
"""Post-start hooks that the maintenance of the cluster finishes. A server that another one does it for has no part in
them."""


@asynccontextmanager
async def upkeep(
    server: ApiServer,
    own: server_objects.OwnAddress,
    hostname: str,
    event_ttl: float,
    supervise: Supervise | None = None,
    cluster_tasks: Sequence[tuple[str, Task]] = (),
) -> AsyncIterator[None]:
    """Run the maintenance loops while the block runs; the server must have started, and its first objects must exist.
    `supervise(name, task)` restarts failed tasks; without it a failure ends the block. `cluster_tasks` are more tasks,
    with their names, of which only one server runs each."""
    api, parts = server.resources, server.parts
    identity_lease = IdentityLease(api, hostname, own)
    leases, api.other_servers = identity_lease.leases, identity_lease.others
    maintenance = _Maintenance(server, own, identity_lease, event_ttl, supervise or _unsupervised, cluster_tasks)
    # Remote APIServices may take long to answer; readiness does not depend on them.
    api.post_start.finish(health.LOCAL_SERVICES, health.REMOTE_SERVICES, health.REGISTRATION)
    if leases is not None:
        from setpoint.apiserver.upkeep.election import Election  # few servers share their store

        parts.definitions.stand_by()
        election = Election(api, leases, identity_lease.name)

        async def maintain() -> None:
            parts.definitions.lead(election)
            try:
                async with asyncio.TaskGroup() as tasks:
                    for coroutine in maintenance.for_cluster():
                        tasks.create_task(coroutine)
            finally:
                parts.definitions.stand_by()

        elected = partial(election.run, maintain, on_standby=partial(api.post_start.finish, *_CLUSTER_HOOKS))
        for_cluster = [maintenance.supervise("election of the maintaining server", elected)]
    else:
        for_cluster = maintenance.for_cluster()
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(coroutine) for coroutine in (*for_cluster, *maintenance.for_server())]
        try:
            yield
        finally:
            for task in started:
                task.cancel()
    api.other_servers = None
    if leases is not None:
        leases.close()
        await identity_lease.withdraw()


@asynccontextmanager
async def replica_upkeep(server: ApiServer, supervise: Supervise) -> AsyncIterator[None]:
    """Run the loops that a server needs for itself while the block runs. The process that owns the store maintains the
    objects of the cluster, and identifies this server too."""
    api, parts = server.resources, server.parts
    parts.definitions.stand_by()
    api.other_servers = lambda: 0
    api.post_start.finish(health.LOCAL_SERVICES, health.REMOTE_SERVICES, health.REGISTRATION)
    api.post_start.finish(health.IDENTITY, health.PEERS, *health.BOOTSTRAPPED, *_CLUSTER_HOOKS)
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(supervise(name, run)) for name, run in _own_loops(server)]
        try:
            yield
        finally:
            for task in started:
                task.cancel()


def _own_loops(server: ApiServer) -> list[tuple[str, Task]]:
    """Return the loops that every server runs for itself, with their names."""
    parts = server.parts
    return [
        *((getattr(run, "__qualname__", "background"), run) for run in parts.background),
        ("token use", parts.token_use.run),
    ]


async def _unsupervised(name: str, task: Task) -> None:
    await task()


class _Maintenance(NamedTuple):
    """The loops of one server. Each call returns new ones."""

    server: ApiServer
    own: server_objects.OwnAddress
    identity: IdentityLease
    event_ttl: float
    supervise: Supervise
    cluster_tasks: Sequence[tuple[str, Task]]

    def for_server(self) -> list[Coroutine[Any, Any, None]]:
        """Return the loops that every server runs for itself."""
        api = self.server.resources
        interval = identity.SHARED_RENEW_INTERVAL if api.store.shared else identity.RENEW_INTERVAL
        renewed = partial(api.post_start.finish, health.IDENTITY, health.PEERS)
        renewal = every("identity", api.clock, interval, partial(_synced, api, self.identity.renew), started=renewed)
        return [*(self.supervise(name, run) for name, run in _own_loops(self.server)), renewal]

    def for_cluster(self) -> list[Coroutine[Any, Any, None]]:
        """Return the loops of which only one server runs each."""
        api, parts, services = self.server.resources, self.server.parts, self.server.parts.services
        availability = api_services.ApiServices(api, parts.probe)
        addresses = service_repair.AddressRepair(api, services.ips)
        namespaces, flow_schemas = system_namespaces(api), flow_control.flow_schema_status(api)
        finish = api.post_start.finish
        pending_repairs = {"addresses", "ports"}

        def repaired(what: str) -> None:
            pending_repairs.discard(what)
            if not pending_repairs:
                finish(health.SERVICE_REPAIR)

        namespaces.on_started = partial(finish, health.NAMESPACES)
        flow_schemas.on_started = partial(finish, health.FLOW_CONSUMER)
        addresses.loop.on_started = partial(repaired, "addresses")
        loops: list[tuple[str, Task]] = [
            ("system namespaces", namespaces.run),
            ("flow schemas", flow_schemas.run),
            ("API services", availability.loop.run),
            ("cluster IPs", addresses.loop.run),
            ("own address", self._own_address),
            *self.cluster_tasks,
        ]
        if self.event_ttl > 0:
            loops.append(("event expiry", EventExpiry(api, self.event_ttl).run))
        immediate_tasks: list[tuple[str, float, Task, Callable[[], None]]] = [
            (
                "node ports",
                service_repair.PORT_REPAIR_INTERVAL,
                service_repair.PortRepair(api, services.ports).run,
                partial(repaired, "ports"),
            ),
            (
                "identities",
                identity.COLLECTION_INTERVAL,
                self.identity.collect,
                partial(finish, health.IDENTITY_COLLECTION),
            ),
            (
                "token tracking",
                server_objects.TOKEN_TRACKING_INTERVAL,
                partial(server_objects.ensure_token_tracking, api),
                partial(finish, health.TOKEN_TRACKING),
            ),
        ]
        delayed_tasks: list[tuple[str, float, Task]] = [
            ("API services", api_services.PROBE_INTERVAL, availability.recheck),
            ("cluster IPs", service_repair.ADDRESS_REPAIR_INTERVAL, addresses.recheck),
            (
                "priority and fairness",
                flow_control.FLOW_CONTROL_INTERVAL,
                flow_control.DefaultConfiguration(api).ensure,
            ),
        ]
        synced = partial(_synced, api)
        periodic = [
            every(name, api.clock, seconds, partial(synced, do), started=started)
            for name, seconds, do, started in immediate_tasks
        ]
        periodic += [
            every(name, api.clock, seconds, partial(synced, do), immediately=False)
            for name, seconds, do in delayed_tasks
        ]
        return [*(self.supervise(name, run) for name, run in loops), *periodic]  # the periodic ones never fail

    async def _own_address(self) -> None:
        """Ensure the Service `kubernetes` and its endpoints, periodically and whenever a server comes or goes."""
        api, leases = self.server.resources, self.identity.leases
        finished: Callable[[], None] | None = partial(api.post_start.finish, health.OWN_SERVICE)

        async def ensure() -> None:
            await server_objects.ensure_own_address(api, self.own, self.identity.servers())

        while True:
            changes = leases.changes if leases is not None else 0
            await run_once("own address", partial(_synced, api, ensure))
            if finished is not None:
                finished()
                finished = None
            if leases is None:
                await api.clock.sleep(server_objects.OWN_ADDRESS_INTERVAL)
            else:
                wait = min(server_objects.OWN_ADDRESS_INTERVAL, self.identity.next_expiry())
                await completes_within(api.clock, wait, leases.changed_since(changes))


async def _synced(api: ApiResources, do: Task) -> None:
    """Run the task on the latest state, even if several servers share a store."""
    await api.store.sync()
    await do()
