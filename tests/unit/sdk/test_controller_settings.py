"""Settings of a controller: references, periodic reconciles, timeouts, selectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.meta.exposition import text
from setpoint.sdk import Context, Controller, Counter, Kind, Object, Operator, Refers, Result, generation_changed
from setpoint.testing import VirtualCluster, virtual

BREWED = Counter("teapots_brewed_total", "Teapots that were brewed.")


@dataclass
class TeapotSpec:
    secret: str = ""


Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)
ConfigMap = Kind("v1", "ConfigMap")
CONFIG_MAP = ConfigMap.ref


def teapot(name: str = "brown", namespace: str = "default", labels: Any = None, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta, "spec": spec}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


class Looks(list[str]):
    """A reconcile that remembers what it was asked about."""

    def __init__(self, result: Result | None = None) -> None:
        self.result = result

    async def __call__(self, ctx: Context[Any, Any], obj: Object[Any, Any]) -> Result | None:
        self.append(obj.name)
        ctx.count(BREWED)
        return self.result


def taken(looks: Looks) -> list[str]:
    found = sorted(looks)
    looks.clear()
    return found


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_change_of_a_referenced_object_enqueues_the_referrers(cluster: VirtualCluster) -> None:
    found: dict[str, Any] = {}

    async def brew(ctx: Context[Any, Any], obj: Object[TeapotSpec, Any]) -> None:
        found[obj.name] = (ctx.seen(ConfigMap, obj.spec.secret) or {}).get("data")

    refers = Refers(ConfigMap, lambda obj: [obj.spec.secret])
    async with cluster.running(Operator("tea", Controller(Teapot, brew, watches=(refers,)))):
        for name, secret in (("brown", "one"), ("white", "one"), ("black", "two"), ("none", "")):
            await cluster.client.create(teapot(name, secret=secret))
        await cluster.instant()
        assert found == {"brown": None, "white": None, "black": None, "none": None}
        found.clear()
        await cluster.client.create(config_map("one", key="a"))
        await cluster.instant()
        assert found == {"brown": {"key": "a"}, "white": {"key": "a"}}
        await cluster.client.patch(Teapot.ref, "white", {"spec": {"secret": "two"}}, "default")
        await cluster.instant()
        found.clear()
        await cluster.client.delete(CONFIG_MAP, "one", "default")
        await cluster.instant()
        assert found == {"brown": None}, "white refers to another by now"


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_every_object_is_reconciled_periodically(cluster: VirtualCluster) -> None:
    looks = Looks()
    async with cluster.running(Operator("tea", Controller(Teapot, looks, resync=60.0))):
        for name in ("brown", "white"):
            await cluster.client.create(teapot(name))
        await cluster.sleep(1)
        assert taken(looks) == ["brown", "white"]
        await cluster.sleep(58)
        assert taken(looks) == []
        await cluster.sleep(8)
        assert taken(looks) == ["brown", "white"]
        await cluster.client.delete(Teapot.ref, "white", "default")
        await cluster.sleep(140)
        assert set(looks) == {"brown"}, "what is gone is not looked at"


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_a_reconcile_that_times_out_is_retried(cluster: VirtualCluster, caplog: pytest.LogCaptureFixture) -> None:
    looks: list[float] = []

    async def slow(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None:
        looks.append(ctx.clock.monotonic())
        await ctx.clock.sleep(100 if len(looks) == 1 else 1)
        ctx.set_status(done=True)

    controller = Controller(Teapot, slow, timeout=5.0, retry=(2.0, 60.0))
    async with cluster.running(Operator("tea", controller)):
        await cluster.client.create(teapot())
        await cluster.sleep(20)
    assert [round(each - looks[0]) for each in looks][:2] == [0, 7], "5 s, and 2 until the next attempt"
    assert "did not finish within 5 s" in caplog.text
    assert (await cluster.client.get(Teapot.ref, "brown", "default"))["status"] == {"done": True}


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_only_selected_objects_are_reconciled(cluster: VirtualCluster) -> None:
    looks, labelled = Looks(), Looks()
    operator = Operator(
        "tea",
        Controller(Teapot, looks, when=generation_changed),
        Controller(Teapot, labelled, selector="a=b", name="l"),
    )
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    await operator.install(cluster.client, cluster.clock)
    async with operator.running(cluster.client, cluster.clock, cluster.embedded.api.resources.ids, namespace="default"):
        await cluster.client.create(teapot("brown"))
        await cluster.client.create(teapot("white", labels={"a": "b"}))
        await cluster.client.create(teapot("far", namespace="other", labels={"a": "b"}))
        await cluster.instant()
        assert (taken(looks), taken(labelled)) == (["brown", "white"], ["white"])
        await cluster.client.patch(Teapot.ref, "white", {"metadata": {"labels": {"c": "d"}}}, "default")
        await cluster.instant()
        assert (taken(looks), taken(labelled)) == ([], ["white"])


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_the_first_reconcile_follows_the_finalizer(cluster: VirtualCluster) -> None:
    looks = Looks()

    async def clean(ctx: Context[Any, Any], obj: Object[Any, Any]) -> None:
        return None

    controller = Controller(Teapot, looks, when=generation_changed, finalizer="example.com/tea", finalize=clean)
    async with cluster.running(Operator("tea", controller)):
        await cluster.client.create(teapot("brown"))
        await cluster.sleep(1)
        assert taken(looks) == ["brown"]
        await cluster.client.delete(Teapot.ref, "brown", "default")
        await cluster.sleep(1)
        assert await cluster.find(Teapot.ref, "brown") is None


@virtual(nodes=0, controllers=(), scheduler=False)
async def test_metrics_have_the_names_of_controller_runtime(cluster: VirtualCluster) -> None:
    looks = Looks(Result(requeue_after=600.0))
    async with cluster.running(Operator("tea", Controller(Teapot, looks, name="teapot"))) as manager:
        await cluster.client.create(teapot())
        await cluster.sleep(1)
        shown = text(manager.families()).splitlines()
    for line in (
        'controller_runtime_reconcile_total{controller="teapot",result="requeue_after"} 1',
        'controller_runtime_reconcile_total{controller="teapot",result="success"} 0',
        'controller_runtime_reconcile_errors_total{controller="teapot"} 0',
        'controller_runtime_reconcile_time_seconds_bucket{controller="teapot",le="0.005"} 1',
        'controller_runtime_max_concurrent_reconciles{controller="teapot"} 4',
        'controller_runtime_active_workers{controller="teapot"} 0',
        'workqueue_depth{name="teapot"} 0',
        'workqueue_adds_total{name="teapot"} 1',
        'workqueue_retries_total{name="teapot"} 0',
        'workqueue_queue_duration_seconds_count{name="teapot"} 1',
        "teapots_brewed_total 1",
    ):
        assert line in shown


def test_invalid_settings_are_rejected() -> None:
    looks = Looks()
    with pytest.raises(ValueError, match="one without the other makes no sense"):
        Controller(Teapot, looks, finalizer="example.com/tea")
    with pytest.raises(ValueError, match="called the same"):
        Operator("tea", Controller(Teapot, looks), Controller(Teapot, looks))
    with pytest.raises(TypeError, match="an operator is made of"):
        Operator("tea", Teapot)  # type: ignore[arg-type]
