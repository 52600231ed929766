"""An operator in dry-run mode logs what it would change and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator
from setpoint.sdk.dry_run import dry_run_client
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")


@dataclass
class TeapotSpec:
    cups: int = 4


Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)
ConfigMap = Kind("v1", "ConfigMap")
Secret = Kind("v1", "Secret")


def meta(name: str) -> Obj:
    return {"name": name, "namespace": "default"}


async def brew(ctx: Context[Any, Any], pot: Object[TeapotSpec, Any]) -> None:
    await ctx.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pot.name}, "data": {"cups": str(pot.spec.cups)}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": pot.name}, "stringData": {"word": "hush"}},
    )
    ctx.condition("Ready", True, "Brewed")
    ctx.event("Brewed", "tea is ready")


async def clean(ctx: Context[Any, Any], pot: Object[TeapotSpec, Any]) -> None: ...


OPERATOR = Operator(
    "tea", Controller(Teapot, brew, owns=(ConfigMap, Secret), finalizer="example.com/tea", finalize=clean)
)
BROWN = {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta("brown"), "spec": {"cups": 2}}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.getMessage() for each in caplog.records if each.name == "setpoint.operator.dry_run"]
    caplog.clear()
    return found


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_nothing_is_written_and_every_change_is_logged(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with cluster.running(OPERATOR, dry_run=True):
        await cluster.client.create(BROWN)
        await cluster.instant()
        before = cluster.embedded.write_log.change_count
        await cluster.sleep(60)
        finalizer, config, secret, status = told(caplog)
        assert finalizer.splitlines()[0] == "would change Teapot default/brown:"
        assert "+  - example.com/tea" in finalizer
        assert config.splitlines()[0] == "would create ConfigMap default/brown:"
        assert '+  cups: "2"' in config.replace("'2'", '"2"')
        assert "would create Secret default/brown" in secret
        assert "hush" not in secret and "aHVzaA" not in secret and "word: '***" in secret
        assert "reason: Brewed" in status
        assert cluster.embedded.write_log.change_count == before

        await cluster.client.patch(Teapot.ref, "brown", {"metadata": {"labels": {"a": "b"}}}, "default")
        await cluster.sleep(1)
        news = told(caplog)
        assert len(news) <= 2 and not any("ConfigMap" in each for each in news), "what was told is no news"
    assert await cluster.all(ConfigMap.ref) == [] and await cluster.events("brown") == []


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_every_kind_of_write_is_a_dry_run(cluster: VirtualCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    real = cluster.client
    made = await real.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("a"), "data": {"x": "1"}})
    client = dry_run_client(real.named("tea"))
    await cluster.instant()  # until the server has written what it writes at its start
    before = cluster.fingerprint()
    await client.update({**made, "data": {"x": "2"}})
    await client.patch(ConfigMap.ref, "a", [{"op": "remove", "path": "/data/x"}], "default", kind="json")
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("b")}, dry_run=True)
    await client.delete(ConfigMap.ref, "a", "default", uid=made["metadata"]["uid"])
    await client.delete(ConfigMap.ref, "a", "default")
    await client.delete_collection(ConfigMap.ref, "default")
    await client.sender.json("POST", "/api/v1/namespaces", "", {"kind": "Namespace", "metadata": {"name": "n"}})
    await client.update(made)
    assert cluster.fingerprint() == before
    assert [each.splitlines()[0] for each in told(caplog)] == [
        "would change ConfigMap default/a:",
        "would change ConfigMap default/a:",
        "would create ConfigMap default/b:",
        "would delete ConfigMap default/a",
        "would delete ConfigMap default/a",
        "would create Namespace n:",
    ]
