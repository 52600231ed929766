"""Several API servers on one medium, each with its maintenance, its own clock and a lagging view."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from custom_resource_harness import CustomResourceHarness
from lagging_store import LaggingStore, Medium
from server_harness import settle

from setpoint.apiserver.upkeep.running import upkeep
from setpoint.apiserver.upkeep.server_objects import OwnAddress
from setpoint.meta.cause import WriteCause, decode
from setpoint.store.interface import Event

CIDRS = ["10.96.0.0/16"]
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
UPKEEP_LEASE = f"{LEASES}/setpoint-upkeep"
ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


class MaintainedServer(CustomResourceHarness):
    """A server whose maintenance runs until it is stopped or killed."""

    own: OwnAddress
    _running: asyncio.Task[None]
    _stop: asyncio.Event

    @classmethod
    async def start(
        cls, medium: Medium, ip: str = "192.0.2.1", port: int = 6443, *, event_ttl: float = 3600.0, **settings: Any
    ) -> MaintainedServer:
        server = await cls.open(LaggingStore(medium), full=True, **settings)
        assert isinstance(server, MaintainedServer)
        server.own, server._stop = OwnAddress(ip, port, CIDRS), asyncio.Event()
        started = asyncio.Event()

        async def run() -> None:
            async with upkeep(server.api, server.own, "host", event_ttl):
                started.set()
                await server._stop.wait()

        server._running = asyncio.ensure_future(run())
        await started.wait()
        await server.clock.advance(0)
        return server

    @property
    def view(self) -> LaggingStore:
        assert isinstance(self.store, LaggingStore)
        return self.store

    async def stop(self) -> None:
        """Stop gracefully, as after SIGTERM."""
        self._stop.set()
        for _ in range(100):
            await settle(50)
            if self._running.done():
                break
        await self._running
        await self.close()

    async def kill(self) -> None:
        """End without another write, as after SIGKILL."""
        await self.store.close()
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self.close()

    @property
    def is_running(self) -> bool:
        return not self._running.done()

    async def leader(self) -> str:
        """The holder of the Lease under which the cluster is maintained."""
        return str((await self.get(UPKEEP_LEASE)).json["spec"]["holderIdentity"])

    async def endpoints(self) -> list[str]:
        """Each address of the Service `kubernetes`, as Endpoints and EndpointSlices agree on it."""
        found = sorted(
            f"{address['ip']}:{subset['ports'][0]['port']}"
            for subset in (await self.get(ENDPOINTS)).json["subsets"]
            for address in subset["addresses"]
        )
        slices = (await self.get(f"{SLICES}?labelSelector=kubernetes.io/service-name=kubernetes")).json["items"]
        sliced = [
            f"{endpoint['addresses'][0]}:{each['ports'][0]['port']}"
            for each in slices
            for endpoint in each["endpoints"]
        ]
        assert sorted(sliced) == found
        return found


async def advance(seconds: float, *servers: MaintainedServer) -> None:
    """Let time pass for all of them at the same pace."""
    while seconds > 0:
        step = min(1.0, seconds)
        for server in servers:
            await server.clock.advance(step)
        seconds -= step
    await settle(200)


@asynccontextmanager
async def server_pair(**settings: Any) -> AsyncIterator[tuple[MaintainedServer, MaintainedServer]]:
    """Two servers, of which the first leads. They are on different addresses and have the same port."""
    medium = Medium()
    one = await MaintainedServer.start(medium, "192.0.2.1", **settings)
    other = await MaintainedServer.start(medium, "192.0.2.2", **settings)
    await advance(0.1, one, other)
    try:
        yield one, other
    finally:
        for server in (one, other):
            if server.is_running:
                await server.stop()


def events(medium: Medium, prefix: str = "") -> list[Event]:
    """Every change that was committed to keys with this prefix, oldest first."""
    return medium.history.events(prefix, 0)


def causes(medium: Medium, verb: str) -> list[WriteCause]:
    """The causes of all commits with this verb, oldest first."""
    found = [decode(each.cause) for each in medium.history.causes(0, 0)]
    return [cause for cause in found if cause.verb == verb]
