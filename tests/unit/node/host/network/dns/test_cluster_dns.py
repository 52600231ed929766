"""The DNS server of a node, on a real API server: objects arrive, and stay while the server is away."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dns_client import look_up
from dns_objects import HTTP, endpoint, endpoint_slice, headless, service
from local_server import LocalServer
from stopped_clock import StoppedClock, settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.network.dns.cluster_dns import ClusterDns
from setpoint.node.host.network.dns.upstream import NameServer
from setpoint.reconcile import Manager
from setpoint.system import RandomIds

SERVICES = builtin("services")
WEB = "web.shop.svc.cluster.local"


def stored(obj: Obj, kind: str, version: str = "v1") -> Obj:
    return {"apiVersion": version, "kind": kind, **obj}


def new_dns(client: Client, clock: Any, directory: Path, **options: Any) -> tuple[Manager, ClusterDns]:
    manager = Manager(client, clock, RandomIds(7))
    settings: dict[str, Any] = {
        "addresses": ["127.0.0.1"],
        "cluster_dns": ["10.96.0.10"],
        "resolv_conf": directory / "resolv.conf",
        "systemd_resolv_conf": directory / "none",
        **options,
    }
    found = ClusterDns(manager, "cluster.local", clock, random.Random(7).randbytes, BlockingPool(1), **settings)
    return manager, found


@asynccontextmanager
async def running(found: ClusterDns, manager: Manager | None) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(each.run()) for each in (found, manager) if each is not None]
    await found.started.wait()
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_services_are_resolved_as_they_change(local_server: LocalServer, tmp_path: Path) -> None:
    client = local_server.client
    await client.create(stored({"metadata": {"name": "shop"}}, "Namespace"))
    web = await client.create(stored(service("web", "10.96.0.20", ports=[HTTP]), "Service"))
    manager, found = new_dns(client, local_server.clock, tmp_path)
    assert found.health() == "cluster DNS is not listening" and found.local_redirects() == {}
    async with running(found, manager):
        address = found.address
        assert address is not None
        assert found.local_redirects() == {
            ("10.96.0.10", "udp", 53): address.port,
            ("10.96.0.10", "tcp", 53): address.port,
        }
        await manager.ready.wait()
        assert found.health() == ""

        async def ask(name: str, kind: str = "A") -> tuple[str, list[str]]:
            answer = await look_up(name, kind, *address)
            return answer.rcode, answer.data

        async def becomes(expected: tuple[str, list[str]], name: str, kind: str = "A") -> None:
            async with asyncio.timeout(5):
                while await ask(name, kind) != expected:
                    pass

        assert await ask(WEB) == ("NOERROR", ["10.96.0.20"])
        assert await ask("20.0.96.10.in-addr.arpa", "PTR") == ("NOERROR", [f"{WEB}."])
        await client.create(stored(headless("db", [HTTP]), "Service"))
        slices = endpoint_slice("db", endpoint("10.244.0.9", hostname="db-0"), ports=[HTTP])
        await client.create(stored(slices, "EndpointSlice", "discovery.k8s.io/v1"))
        await becomes(("NOERROR", ["10.244.0.9"]), "db-0.db.shop.svc.cluster.local")
        await becomes(
            ("NOERROR", ["0 100 80 db-0.db.shop.svc.cluster.local."]), "_http._tcp.db.shop.svc.cluster.local", "SRV"
        )
        await client.update(
            {
                **web,
                "spec": {
                    **web["spec"],
                    "type": "ExternalName",
                    "externalName": "x.example",
                    "clusterIP": "",
                    "clusterIPs": None,
                },
            }
        )
        await becomes(("NOERROR", ["x.example."]), WEB, "CNAME")
        await client.delete(SERVICES, "web", "shop")
        await becomes(("NXDOMAIN", []), WEB)
        assert await ask("10-1-2-3.shop.pod.cluster.local") == ("NOERROR", ["10.1.2.3"])
        assert await ask("10-1-2-3.none.pod.cluster.local") == ("NXDOMAIN", [])
    assert found.address is None


async def test_answers_survive_the_absence_of_the_api_server(local_server: LocalServer, tmp_path: Path) -> None:
    client = local_server.client
    await client.create(stored({"metadata": {"name": "shop"}}, "Namespace"))
    await client.create(stored(service("web", "10.96.0.20", ports=[HTTP]), "Service"))
    manager, found = new_dns(client, local_server.clock, tmp_path)
    following = asyncio.get_running_loop().create_task(manager.run())
    async with running(found, None):
        await manager.ready.wait()
        following.cancel()
        await asyncio.wait([following])
        assert found.address is not None
        for _ in range(2):
            assert (await look_up(WEB, "A", *found.address)).data == ["10.96.0.20"]
            await local_server.clock.advance(3600)


async def test_nothing_is_known_before_the_first_lists(local_server: LocalServer, tmp_path: Path) -> None:
    _, found = new_dns(local_server.client, local_server.clock, tmp_path)
    async with running(found, None):
        assert found.address is not None
        assert (await look_up(WEB, "A", *found.address)).rcode == "SERVFAIL"
        assert found.health() == "cluster DNS has not received the Services yet"


async def test_the_name_servers_of_the_machine_are_followed(local_server: LocalServer, tmp_path: Path) -> None:
    clock: StoppedClock = local_server.clock
    file = tmp_path / "resolv.conf"
    file.write_text("nameserver 10.96.0.10\nnameserver 127.0.0.9\n")
    _, found = new_dns(local_server.client, clock, tmp_path)
    async with running(found, None):
        assert found.forwarder.servers == (NameServer("127.0.0.9"),)
        file.write_text("nameserver 127.0.0.8\n")
        async with asyncio.timeout(10):
            while found.forwarder.servers != (NameServer("127.0.0.8"),):
                await clock.advance(1.0)
                await asyncio.sleep(0.001)


async def test_an_address_that_does_not_exist_yet_is_awaited(
    local_server: LocalServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock: StoppedClock = local_server.clock
    _, found = new_dns(local_server.client, clock, tmp_path, addresses=["192.0.2.77"])
    task = asyncio.get_running_loop().create_task(found.run())
    async with asyncio.timeout(5):
        while "cannot listen at 192.0.2.77" not in caplog.text:
            await settle()
    await clock.advance(5.0)
    assert caplog.text.count("cannot listen") == 1 and not task.done()
    found._listen_at = ("127.0.0.1",)
    await clock.advance(1.0)
    async with asyncio.timeout(5):
        await found.started.wait()
    task.cancel()
    await asyncio.wait([task])
