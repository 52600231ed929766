"""Whatever happens to a controller on the way, the cluster comes to the same in the end.

Every scenario is what users do. It runs once in peace, and then again and again with something going wrong.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, run_virtual
from setpoint.testing.end_state import differences
from setpoint.testing.faults import Fault, Scenario, crash_after, disturbed, noise, writes_of

Obj = dict[str, Any]

DEPLOYMENTS, SETS, PODS = builtin("deployments", "apps"), builtin("replicasets", "apps"), builtin("pods")
NAMESPACES, MAPS = builtin("namespaces"), builtin("configmaps")


def obj(api: str, kind: str, name: str, namespace: str = "default", **more: Any) -> Obj:
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("meta", {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


def template(app: str, image: str = "nginx:1") -> Obj:
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": image}]}}


def selecting(app: str) -> Obj:
    return {"matchLabels": {"app": app}}


async def rollout(cluster: VirtualCluster) -> None:
    spec = {"replicas": 3, "selector": selecting("web"), "template": template("web")}
    await cluster.client.create(obj("apps/v1", "Deployment", "web", spec=spec))
    await cluster.sleep(20)
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"template": template("web", "nginx:2")}}, "default")
    await cluster.sleep(30)
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")
    await cluster.sleep(60)


async def adoption(cluster: VirtualCluster) -> None:
    await cluster.client.create(obj("v1", "Pod", "alone", meta={"labels": {"app": "a"}}, spec=template("a")["spec"]))
    spec = {"replicas": 2, "selector": selecting("a"), "template": template("a")}
    await cluster.client.create(obj("apps/v1", "ReplicaSet", "a", spec=spec))
    await cluster.sleep(20)
    await cluster.client.patch(PODS, "alone", {"metadata": {"labels": {"app": "b"}}}, "default")
    await cluster.sleep(60)


async def cascades(cluster: VirtualCluster) -> None:
    for name in ("back", "front", "left"):
        spec = {"replicas": 2, "selector": selecting(name), "template": template(name)}
        await cluster.client.create(obj("apps/v1", "Deployment", name, spec=spec))
    await cluster.sleep(20)
    await cluster.client.delete(DEPLOYMENTS, "back", "default")
    await cluster.client.delete(DEPLOYMENTS, "front", "default", propagation="Foreground")
    await cluster.client.delete(DEPLOYMENTS, "left", "default", propagation="Orphan")
    await cluster.sleep(90)


async def namespace_ends(cluster: VirtualCluster) -> None:
    await cluster.client.create(obj("v1", "Namespace", "team", ""))
    await cluster.sleep(5)
    spec = {"replicas": 2, "selector": selecting("web"), "template": template("web")}
    await cluster.client.create(obj("apps/v1", "Deployment", "web", "team", spec=spec))
    await cluster.client.create(obj("v1", "ConfigMap", "settings", "team", data={"a": "1"}))
    await cluster.sleep(20)
    await cluster.client.delete(NAMESPACES, "team")
    await cluster.sleep(120)


SCENARIOS: dict[str, Scenario] = {each.__name__: each for each in (rollout, adoption, cascades, namespace_ends)}


@cache
def peaceful(name: str) -> Any:
    return run_virtual(disturbed, SCENARIOS[name])


@cache
def writes(name: str) -> int:
    return len(run_virtual(writes_of, SCENARIOS[name]))


def check(name: str, fault: Fault, what: str) -> None:
    found = differences(peaceful(name), run_virtual(disturbed, SCENARIOS[name], fault))
    assert not found, f"{name}, {what}:\n{found}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_after_any_write_changes_nothing_in_the_end(name: str) -> None:
    for nth in range(1, writes(name) + 1):
        check(name, crash_after(nth), f"crash after write {nth}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_nor_does_it_when_what_is_listed_afterwards_is_stale(name: str) -> None:
    for nth in range(1, writes(name) + 1, 3):
        check(name, crash_after(nth, stale=True), f"crash after write {nth}, stale lists")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SCENARIOS)
def test_nor_do_refusals_lost_answers_and_watches_that_break(name: str, seed: int) -> None:
    check(name, noise(seed), f"noise {seed}")


def test_a_scenario_that_ends_otherwise_is_noticed() -> None:
    """The comparison itself: it must be able to fail."""

    async def other(cluster: VirtualCluster) -> None:
        await rollout(cluster)
        await cluster.client.create(obj("v1", "ConfigMap", "extra"))

    found = differences(peaceful("rollout"), run_virtual(disturbed, other))
    assert found.startswith("too many: ")
    assert '"name": "extra"' in found


