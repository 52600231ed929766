"""Whatever happens to a controller on the way, the cluster comes to the same in the end.

Every scenario is what users do. It runs once in peace, and then again and again with something going wrong.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.testing import VirtualCluster, run_virtual
from setpoint.testing.end_state import differences
from setpoint.testing.faults import Fault, Scenario, crash_after, disturbed, noise, writes_of

Obj = dict[str, Any]

DEPLOYMENTS, SETS, PODS = builtin("deployments", "apps"), builtin("replicasets", "apps"), builtin("pods")
NAMESPACES, CLAIMS, CRONS = builtin("namespaces"), builtin("persistentvolumeclaims"), builtin("cronjobs", "batch")
STATEFUL, DAEMONS = builtin("statefulsets", "apps"), builtin("daemonsets", "apps")


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


async def stateful(cluster: VirtualCluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = {
        "replicas": 3, "serviceName": "db", "selector": selecting("db"), "template": template("db"),
        "volumeClaimTemplates": [claim],
    }  # fmt: skip
    await cluster.client.create(obj("apps/v1", "StatefulSet", "db", spec=spec))
    await cluster.sleep(60)
    await cluster.client.patch(STATEFUL, "db", {"spec": {"template": template("db", "nginx:2")}}, "default")
    await cluster.sleep(240)
    await cluster.client.patch(STATEFUL, "db", {"spec": {"replicas": 1}}, "default")
    await cluster.sleep(120)


async def daemons(cluster: VirtualCluster) -> None:
    spec = {"selector": selecting("agent"), "template": template("agent")}
    await cluster.client.create(obj("apps/v1", "DaemonSet", "agent", spec=spec))
    await cluster.sleep(30)
    await cluster.client.patch(DAEMONS, "agent", {"spec": {"template": template("agent", "nginx:2")}}, "default")
    await cluster.sleep(240)


async def jobs(cluster: VirtualCluster) -> None:
    done = {"containers": [{"name": "c", "image": "busybox", "command": ["sleep", "3"]}], "restartPolicy": "Never"}
    spec = {"completions": 4, "parallelism": 2, "template": {"spec": done}}
    await cluster.client.create(obj("batch/v1", "Job", "work", spec=spec))
    failing = {**done, "containers": [{"name": "c", "image": "busybox", "command": ["false"]}]}
    spec = {"backoffLimit": 1, "template": {"spec": failing}}
    await cluster.client.create(obj("batch/v1", "Job", "fails", spec=spec))
    spec = {"ttlSecondsAfterFinished": 10, "template": {"spec": done}}
    await cluster.client.create(obj("batch/v1", "Job", "passing", spec=spec))
    await cluster.sleep(240)


async def cron(cluster: VirtualCluster) -> None:
    done = {"containers": [{"name": "c", "image": "busybox", "command": ["true"]}], "restartPolicy": "Never"}
    spec = {"schedule": "*/2 * * * *", "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"template": {"spec": done}}}}  # fmt: skip
    await cluster.client.create(obj("batch/v1", "CronJob", "tick", spec=spec))
    await cluster.sleep(350)
    await cluster.client.patch(CRONS, "tick", {"spec": {"suspend": True}}, "default")
    await cluster.sleep(120)


async def service(cluster: VirtualCluster) -> None:
    spec = {"replicas": 2, "selector": selecting("web"), "template": template("web")}
    await cluster.client.create(obj("apps/v1", "Deployment", "web", spec=spec))
    port = [{"port": 80, "targetPort": 8080}]
    await cluster.client.create(obj("v1", "Service", "web", spec={"selector": {"app": "web"}, "ports": port}))
    budget = {"minAvailable": 1, "selector": selecting("web")}
    await cluster.client.create(obj("policy/v1", "PodDisruptionBudget", "web", spec=budget))
    await cluster.client.create(obj("v1", "ResourceQuota", "web", spec={"hard": {"pods": "10", "services": "5"}}))
    await cluster.sleep(30)
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "default")
    await cluster.sleep(60)


async def claims(cluster: VirtualCluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in ("kept", "dropped"):
        await cluster.client.create(obj("v1", "PersistentVolumeClaim", name, spec=spec))
        pod = template("x")["spec"] | {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}
        await cluster.client.create(obj("v1", "Pod", f"uses-{name}", spec=pod))
    await cluster.sleep(30)
    await cluster.client.delete(CLAIMS, "dropped", "default")
    await cluster.sleep(5)
    await cluster.client.delete(PODS, "uses-dropped", "default")
    await cluster.sleep(90)


SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        rollout, adoption, cascades, namespace_ends, stateful, daemons, jobs, cron, service, claims,
    )
}  # fmt: skip
THOROUGH = bool(os.environ.get("SETPOINT_THOROUGH"))
"""Every point at which something can go wrong, instead of some: takes minutes."""


def points(name: str, some: int) -> list[int]:
    """After which writes to crash: spread over all of them, and other ones for other scenarios."""
    count = writes(name)
    step = 1 if THOROUGH else max(1, count // some)
    return list(range(1 + len(name) % step, count + 1, step))


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
    for nth in points(name, 3):
        check(name, crash_after(nth), f"crash after write {nth}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_nor_does_it_when_what_is_listed_afterwards_is_stale(name: str) -> None:
    for nth in points(name, 2):
        check(name, crash_after(nth, stale=True), f"crash after write {nth}, stale lists")


@pytest.mark.parametrize("seed", range(10 if THOROUGH else 1))
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
