"""A whole API server in the test's own process: the chosen store, stopped clock, repeatable ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chosen_stores import new_store
from stopped_clock import StoppedClock

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authenticate import AuthenticatorChain, InProcessAuthenticator, LoopbackAuthenticator
from setpoint.apiserver.server import ApiServer
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.embedded import bootstrapped
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.wiring import build_server
from setpoint.store.interface import Store
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds

TOKEN = "loopback"
_first: list[MemoryStore] = []


async def _first_objects() -> Store:
    """Those that every cluster begins with, made once in a process; each server has a copy of its own."""
    if not _first:
        _first.append((await bootstrapped(StoppedClock(), RandomIds(0x10CA1))).store)
    return new_store(_first[0])


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
    store = await _first_objects()
    resources = ApiResources(store, clock, RandomIds(1))
    # No controller makes the accounts that Pods would wait for.
    config = ApiServerConfig(
        directory, authorization_mode=["Node", "RBAC"], disable_admission_plugins=["ServiceAccount"]
    )
    authenticator = AuthenticatorChain([LoopbackAuthenticator(TOKEN), InProcessAuthenticator()], True)
    api = build_server(resources, config, authenticator)
    await api.start()
    resources.post_start.finish_all()  # the loops of the server do not run here
    async with InProcess(api.handle) as entrance:
        client = Client(InProcessTransport(entrance, TOKEN), clock, user_agent="tests")
        yield LocalServer(api, clock, entrance, client)
    await api.stop()
    await store.close()
