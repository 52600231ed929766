"""All of the upkeep of one server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

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


@asynccontextmanager
async def upkeep(
    api: ApiServer, services: ServiceHooks, own: kubernetes_service.OwnAddress, hostname: str, event_ttl: float
) -> AsyncIterator[None]:
    """Runs while the block does; the server is started and its first objects are there."""
    availability = api_services.ApiServices(api, api.probe)
    addresses = address_repair.AddressRepair(api, services.ips)
    who = identity.Identity(api, hostname)
    running = [
        system_namespaces(api).run(), flow_control.flow_schema_status(api).run(),
        availability.loop.run(), addresses.loop.run(), *(run() for run in api.background),
        token_tracking.token_use(api).run(),
    ]  # fmt: skip
    if event_ttl > 0:
        running.append(EventExpiry(api, event_ttl).run())
    turns: list[tuple[str, float, Callable[[], Awaitable[None]], bool]] = [
        ("API services", api_services.EVERY, availability.recheck, False),
        ("cluster IPs", address_repair.EVERY, addresses.recheck, False),
        ("node ports", port_repair.EVERY, partial(port_repair.repair_ports, api, services.ports), True),
        ("priority and fairness", flow_control.EVERY, flow_control.Configuration(api).ensure, False),
        ("own address", kubernetes_service.EVERY, partial(kubernetes_service.ensure_own_address, api, own), True),
        ("identity", identity.RENEW_EVERY, who.renew, True),
        ("identities", identity.COLLECT_EVERY, who.collect, True),
        ("token tracking", token_tracking.EVERY, partial(token_tracking.ensure_token_tracking, api), True),
    ]
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(coroutine) for coroutine in running]
        for name, seconds, do, at_once in turns:
            started.append(tasks.create_task(every(name, api.clock, seconds, do, at_once=at_once)))
        try:
            yield
        finally:
            for task in started:
                task.cancel()
