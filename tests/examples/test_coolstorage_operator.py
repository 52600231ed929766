"""The operator for resources outside the cluster, in virtual time with a simulated provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from examples.coolstorage_operator import CoolStorage, ProviderClient, coolstorage_operator, over_http
from examples.coolstorage_operator.provider import Provider, main, serve
from examples.coolstorage_operator.provider_client import ProviderDown, Refused

from setpoint.meta.objects import Obj
from setpoint.sdk import Invalid, Operator, is_true
from setpoint.testing import VirtualCluster, virtual

COOL = CoolStorage.ref


def photos(**spec: Any) -> Obj:
    meta = {"name": "photos", "namespace": "default"}
    return {"apiVersion": COOL[0], "kind": COOL[1], "metadata": meta, "spec": {"sizeGB": 20, **spec}}


def beside(cluster: VirtualCluster) -> Provider:
    return Provider(cluster.clock.monotonic)


def operator(provider: Provider) -> Operator:
    async def send(method: str, target: str, key: str, body: Obj | None) -> tuple[int, Obj]:
        await asyncio.sleep(0.1)  # of virtual time: it is far away
        return provider.answer(method, target, key, body)

    return coolstorage_operator(ProviderClient(send))


@asynccontextmanager
async def with_photos(cluster: VirtualCluster, provider: Provider) -> AsyncIterator[None]:
    async with cluster.running(operator(provider)):
        await cluster.client.create(photos())
        await cluster.until(lambda: ready(cluster), within=30)
        yield


async def get(cluster: VirtualCluster) -> Obj:
    return await cluster.client.get(COOL, "photos", "default")


async def ready(cluster: VirtualCluster) -> bool:
    return is_true(await get(cluster), "Ready")


async def reason(cluster: VirtualCluster) -> str:
    (found,) = (each for each in (await get(cluster))["status"]["conditions"] if each["type"] == "Ready")
    return str(found["reason"])


@virtual(nodes=0, controllers=())
async def test_the_life_cycle_of_a_bucket(cluster: VirtualCluster) -> None:
    provider = beside(cluster)
    async with cluster.running(operator(provider)):
        await cluster.client.create(photos())
        await cluster.sleep(3)
        assert await reason(cluster) == "Provisioning"
        await cluster.sleep(5)
        found = await get(cluster)
        assert is_true(found, "Ready")
        assert found["status"]["bucketID"] == "bkt-0001"
        connection = await cluster.client.get(("v1", "ConfigMap"), "photos-connection", "default")
        assert connection["data"]["url"] == provider.buckets["bkt-0001"]["url"]

        await cluster.advance("10m")
        assert await get(cluster) == found, "at rest nothing is written"
        await cluster.client.patch(COOL, "photos", {"spec": {"versioning": True}}, "default")
        await cluster.sleep(1)
        assert provider.buckets["bkt-0001"]["versioning"] is True
        with pytest.raises(Invalid, match="a bucket cannot move"):
            await cluster.client.patch(COOL, "photos", {"spec": {"region": "south"}}, "default")

        await cluster.client.delete(COOL, "photos", "default")
        await cluster.sleep(1)
        assert provider.buckets == {}
        assert await cluster.find(COOL, "photos") is None


@virtual(nodes=0, controllers=())
async def test_external_changes_are_detected_and_repaired(cluster: VirtualCluster) -> None:
    provider = beside(cluster)
    async with with_photos(cluster, provider):
        provider.buckets["bkt-0001"]["sizeGB"] = 1
        await cluster.advance("70s")
        assert provider.buckets["bkt-0001"]["sizeGB"] == 20
        provider.answer("DELETE", "/buckets/bkt-0001")
        await cluster.advance("80s")
        assert list(provider.buckets) == ["bkt-0002"]
        assert (await get(cluster))["status"]["bucketID"] == "bkt-0002"
        assert await ready(cluster)


@virtual(nodes=0, controllers=())
async def test_an_unavailable_provider_is_retried_with_backoff(cluster: VirtualCluster) -> None:
    provider = beside(cluster)
    async with with_photos(cluster, provider):
        provider.failures = 1000
        await cluster.client.patch(COOL, "photos", {"spec": {"sizeGB": 30}}, "default")
        await cluster.advance("5m")
        assert await reason(cluster) == "ProviderDown"
        assert "503" in str((await get(cluster))["status"]["conditions"])
        asked = 1000 - provider.failures
        assert 5 < asked < 30
        await cluster.client.delete(COOL, "photos", "default")
        await cluster.advance("1m")
        assert await cluster.find(COOL, "photos"), "it stays until its bucket is gone"
        provider.failures = 0
        await cluster.advance("20m")
        assert await cluster.find(COOL, "photos") is None
        assert provider.buckets == {}


@virtual(nodes=0, controllers=())
async def test_rejections_are_reported_and_buckets_can_be_retained(cluster: VirtualCluster) -> None:
    provider = beside(cluster)
    async with cluster.running(operator(provider)):
        await cluster.client.create(photos(sizeGB=5000))
        await cluster.sleep(5)
        assert await reason(cluster) == "Refused"
        await cluster.client.patch(COOL, "photos", {"spec": {"sizeGB": 50, "whenDeleted": "Keep"}}, "default")
        await cluster.until(lambda: ready(cluster), within=10)
        await cluster.client.delete(COOL, "photos", "default")
        await cluster.sleep(1)
        assert await cluster.find(COOL, "photos") is None
        assert list(provider.buckets) == ["bkt-0001"]


async def test_the_provider_over_http(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider()
    with caplog.at_level("INFO"):
        server = await serve(provider)
    port = server.sockets[0].getsockname()[1]
    assert f"the provider listens on http://127.0.0.1:{port}" in caplog.messages
    client = ProviderClient(over_http(f"http://127.0.0.1:{port}"))
    async with server:
        assert await client.find("someone") is None
        made = await client.create("someone", {"sizeGB": 5, "region": "north"})
        assert await client.create("someone", {"sizeGB": 5, "region": "north"}) == made, "the same key, the same bucket"
        assert (await client.update(made["id"], {"sizeGB": 6}))["sizeGB"] == 6
        assert (await client.find("someone") or {})["id"] == made["id"]
        with pytest.raises(Refused, match="422 a bucket has from 1 to 1000 GB"):
            await client.create("other", {"sizeGB": 5000})
        await client.delete(made["id"])
        await client.delete(made["id"])
        provider.failures = 1
        with pytest.raises(ProviderDown, match="503"):
            await client.find("someone")
    with pytest.raises(ProviderDown, match="refused"):
        await client.find("someone")


async def test_a_port_that_is_in_use_is_named() -> None:
    async with await serve(Provider(), 0) as first:
        port = first.sockets[0].getsockname()[1]
        with pytest.raises(SystemExit, match=f"the provider cannot listen: .*{port}.* in use"):
            await main(port)
