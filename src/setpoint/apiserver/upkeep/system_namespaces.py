"""The namespaces that are always there come back when they are deleted."""

from __future__ import annotations

from setpoint.apiserver.own_writes import ensure
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.upkeep.loop import KeyedLoop
from setpoint.apiserver.watch_cache import Entry
from setpoint.kinds.bootstrap.namespaces import SYSTEM_NAMESPACES


def system_namespaces(api: ApiServer) -> KeyedLoop:
    async def sync(name: str) -> None:
        await ensure(api, "", "namespaces", {"metadata": {"name": name}})

    def names(entry: Entry) -> list[str]:
        name = entry.obj["metadata"]["name"]
        return [name] if name in SYSTEM_NAMESPACES else []

    loop = KeyedLoop("system namespaces", api.clock, sync)
    loop.follow(api.registry("", "namespaces").cache, names)
    loop.due(*SYSTEM_NAMESPACES)
    return loop
