"""Health checks: upstream's names and order, and their results."""

from __future__ import annotations

import asyncio

import pytest
from server_harness import LIMITED_TOKEN, ServerHarness, settle

from setpoint.apiserver.bootstrap import bootstrap
from setpoint.apiserver.health import BOOTSTRAPPED, SERVED, PostStart
from setpoint.testing import VirtualCluster, virtual

HOOKS = [
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "peer-endpoint-reconciler-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    "autoregister-completion",
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
]
STEPS = [name if name == "autoregister-completion" else f"poststarthook/{name}" for name in HOOKS]
LIVE = ["ping", "log", "loopback-serving-certificate", "etcd", *STEPS]
READY = ["ping", "log", "etcd", "etcd-readiness", "informer-sync", *STEPS, "shutdown"]


@pytest.mark.parametrize(("path", "names"), [("healthz", LIVE), ("livez", LIVE), ("readyz", READY)])
async def test_the_verbose_answer_names_every_check_in_order(
    harness: ServerHarness, path: str, names: list[str]
) -> None:
    reply = await harness.get(f"/{path}?verbose")
    wanted = "".join(f"[+]{name} ok\n" for name in names) + f"{path} check passed\n"
    assert (reply.status, reply.body.decode()) == (200, wanted)
    assert reply.header("Content-Type") == "text/plain; charset=utf-8"
    for name in names:
        assert (await harness.get(f"/{path}/{name}")).body == b"ok"
    assert f"/{path}/{STEPS[0]}" in (await harness.get("/")).json["paths"]


async def test_an_unfinished_hook_fails_only_its_own_check(harness: ServerHarness) -> None:
    harness.api.resources.post_start._unfinished.add("rbac/bootstrap-roles")
    reply = await harness.get("/readyz")
    assert reply.status == 500
    lines = reply.body.decode().splitlines()
    assert "[-]poststarthook/rbac/bootstrap-roles failed: reason withheld" in lines
    assert lines[-1] == "readyz check failed"
    assert len([line for line in lines if line.startswith("[+]")]) == len(READY) - 1
    one = await harness.get("/healthz/poststarthook/rbac/bootstrap-roles")
    assert (one.status, one.body) == (500, b"internal server error: not finished\n")
    excluded = await harness.get("/readyz?verbose&exclude=poststarthook/rbac/bootstrap-roles&exclude=b&exclude=a")
    assert excluded.status == 200
    lines = excluded.body.decode().splitlines()
    assert "[+]poststarthook/rbac/bootstrap-roles excluded: ok" in lines
    assert lines[-2] == 'warn: some health checks cannot be excluded: no matches for "a","b"'


async def test_single_checks_require_permission(harness: ServerHarness) -> None:
    reply = await harness.get("/readyz/poststarthook/rbac/bootstrap-roles", token=LIMITED_TOKEN)
    assert reply.status == 403


async def test_a_server_without_priority_and_fairness_has_no_such_hooks() -> None:
    harness = await ServerHarness.open(enable_priority_and_fairness=False)
    body = (await harness.get("/readyz?verbose")).body.decode()
    assert "priority-and-fairness" not in body and "rbac/bootstrap-roles" in body
    await harness.close()


async def test_the_server_is_not_ready_before_its_initial_objects_exist() -> None:
    harness = await ServerHarness.open()
    steps = harness.api.resources.post_start
    steps._unfinished |= PostStart()._unfinished - set(SERVED)
    steps.finished.clear()
    await harness.delete("/api/v1/namespaces/default")
    making = asyncio.ensure_future(bootstrap(harness.api.resources))
    await settle(1)
    assert not set(BOOTSTRAPPED) - steps._unfinished
    await making
    assert not set(BOOTSTRAPPED) & steps._unfinished
    assert not steps.finished.is_set()
    await harness.close()


async def test_a_server_that_stops_is_not_ready(harness: ServerHarness) -> None:
    harness.api.resources.stopping = True
    body = (await harness.get("/readyz")).body.decode()
    assert "[-]shutdown failed: reason withheld" in body
    assert (await harness.get("/readyz/shutdown")).body == b"internal server error: process is shutting down\n"
    assert (await harness.get("/livez")).status == 200


@virtual(nodes=0, scheduler=False, controllers=(), leader_elect=False)
async def test_all_hooks_of_a_whole_cluster_finish(cluster: VirtualCluster) -> None:
    await cluster.sleep(0.1)
    answer = await cluster.client.sender.request("GET", "/readyz")
    assert answer.status == 200


async def test_results_of_checks_are_service_level_indicators(harness: ServerHarness) -> None:
    await harness.get("/readyz")
    harness.api.resources.stopping = True
    await harness.get("/readyz")
    text = (await harness.get("/metrics/slis")).body.decode()
    assert 'kubernetes_healthcheck{name="shutdown",type="readyz"} 0\n' in text
    assert 'kubernetes_healthchecks_total{name="shutdown",type="readyz",status="error"} 1\n' in text
    assert 'kubernetes_healthchecks_total{name="ping",type="readyz",status="success"} 2\n' in text
