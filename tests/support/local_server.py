"""A whole API server in the test's own process: memory store, stopped clock, repeatable ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.filters.authenticate import AuthenticatorChain, LoopbackAuthenticator
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.server import ApiServer, Options
from setpoint.apiserver.upkeep.kubernetes_service import OwnAddress
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.system import RandomIds
from setpoint.cluster.wiring import wire
from setpoint.store.memory import MemoryStore

TOKEN = "loopback"


class StoppedClock:
    """Goes on only when told to."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._sleepers, (self._elapsed + seconds, self._count, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Everybody whose time has come has run when this returns."""
        target = self._elapsed + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            at, _, future = heappop(self._sleepers)
            self._elapsed = max(self._elapsed, at)
            if not future.done():
                future.set_result(None)
            await _settle()
        self._elapsed = target

    @property
    def sleeping(self) -> int:
        return sum(not future.done() for _, _, future in self._sleepers)


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@dataclass(slots=True)
class LocalServer:
    api: ApiServer
    clock: StoppedClock
    entrance: InProcess
    client: Client
    """As the administrator."""


@asynccontextmanager
async def local_server(directory: Path) -> AsyncIterator[LocalServer]:
    clock = StoppedClock()
    store = MemoryStore()
    options = Options(AuthenticatorChain([LoopbackAuthenticator(TOKEN)], True), AuthorizerChain(()))
    api = ApiServer(store, clock, RandomIds(1), options)
    # No controller makes the accounts that Pods would wait for.
    config = ApiServerConfig(directory, authorization_mode=["RBAC"], disable_admission_plugins=["ServiceAccount"])
    services = wire(api, config, None)
    await api.start()
    await services.start()
    await bootstrap(api, OwnAddress("192.0.2.1", 6443, config.service_cidrs))
    async with InProcess(api.handle) as entrance:
        client = Client(InProcessTransport(entrance, TOKEN), clock, user_agent="tests")
        yield LocalServer(api, clock, entrance, client)
    await api.stop()
    services.stop()
    await store.close()
