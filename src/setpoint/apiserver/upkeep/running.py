"""All of the upkeep of one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from setpoint.apiserver import post_start
from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep import (
    address_repair,
    api_services,
    flow_control,
    identity,
    kubernetes_service,
    port_repair,
    token_tracking,
)  # fmt: skip
from setpoint.apiserver.upkeep.event_expiry import EventExpiry
from setpoint.apiserver.upkeep.loop import every
from setpoint.apiserver.upkeep.system_namespaces import system_namespaces

Turn = Callable[[], Coroutine[Any, Any, None]]
Keep = Callable[[str, Turn], Coroutine[Any, Any, None]]
"""Does the work with this name until it ends by itself or is cancelled, however often it fails."""


@asynccontextmanager
async def upkeep(
    api: ApiServer,
    services: ServiceHooks,
    own: kubernetes_service.OwnAddress,
    hostname: str,
    event_ttl: float,
    keep: Keep | None = None,
) -> AsyncIterator[None]:
    """Runs while the block does; the server is started and its first objects are there. `keep(name, work)` does the
    work again when it has failed; without it a failure ends the block."""
    availability = api_services.ApiServices(api, api.probe)
    addresses = address_repair.AddressRepair(api, services.ips)
    namespaces, flow_schemas = system_namespaces(api), flow_control.flow_schema_status(api)
    who = identity.Identity(api, hostname)
    finish = api.post_start.finish
    unrepaired = {"addresses", "ports"}

    def repaired(what: str) -> None:
        unrepaired.discard(what)
        if not unrepaired:
            finish(post_start.SERVICE_REPAIR)

    namespaces.on_started = partial(finish, post_start.NAMESPACES)
    flow_schemas.on_started = partial(finish, post_start.FLOW_CONSUMER)
    addresses.loop.on_started = partial(repaired, "addresses")
    # Servers behind APIServices may take long to answer, and nobody else waits for them.
    finish(post_start.LOCAL_SERVICES, post_start.REMOTE_SERVICES, post_start.REGISTRATION)
    running: list[tuple[str, Turn]] = [
        ("system namespaces", namespaces.run), ("flow schemas", flow_schemas.run),
        ("API services", availability.loop.run), ("cluster IPs", addresses.loop.run),
        *((getattr(run, "__qualname__", "background"), run) for run in api.background),
        ("token use", token_tracking.token_use(api).run),
    ]  # fmt: skip
    if event_ttl > 0:
        running.append(("event expiry", EventExpiry(api, event_ttl).run))
    at_once: list[tuple[str, float, Turn, Callable[[], None]]] = [
        ("node ports", port_repair.EVERY, port_repair.PortRepair(api, services.ports).run, partial(repaired, "ports")),
        ("own address", kubernetes_service.EVERY, partial(kubernetes_service.ensure_own_address, api, own),
         partial(finish, post_start.OWN_SERVICE)),
        ("identity", identity.RENEW_EVERY, who.renew, partial(finish, post_start.IDENTITY, post_start.PEERS)),
        ("identities", identity.COLLECT_EVERY, who.collect, partial(finish, post_start.IDENTITY_COLLECTION)),
        ("token tracking", token_tracking.EVERY, partial(token_tracking.ensure_token_tracking, api),
         partial(finish, post_start.TOKEN_TRACKING)),
    ]  # fmt: skip
    later: list[tuple[str, float, Turn]] = [
        ("API services", api_services.EVERY, availability.recheck),
        ("cluster IPs", address_repair.EVERY, addresses.recheck),
        ("priority and fairness", flow_control.EVERY, flow_control.Configuration(api).ensure),
    ]
    synced = partial(_synced, api)
    turns = [
        every(name, api.clock, seconds, partial(synced, do), started=started) for name, seconds, do, started in at_once
    ]
    turns += [every(name, api.clock, seconds, partial(synced, do), at_once=False) for name, seconds, do in later]
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(run() if keep is None else keep(name, run)) for name, run in running]
        started += [tasks.create_task(coroutine) for coroutine in turns]  # these cannot fail
        try:
            yield
        finally:
            for task in started:
                task.cancel()


async def _synced(api: ApiServer, do: Turn) -> None:
    """Do something that goes by the state at its beginning, also where several servers share a store."""
    await api.store.sync()
    await do()
