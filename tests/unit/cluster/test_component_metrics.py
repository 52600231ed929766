"""Metrics of the components in the server's own process."""

from __future__ import annotations

from typing import Any

from setpoint.testing import VirtualCluster, virtual


def a_pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


async def metrics(cluster: VirtualCluster) -> dict[str, float]:
    reply = await cluster.client.sender.transport.request("GET", "/metrics", "", [], b"")
    assert reply.status == 200
    lines = [line for line in reply.body.decode().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


@virtual(nodes=1, leader_elect=True)
async def test_the_server_shows_metrics_of_scheduler_and_controllers(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("fits", "1"))
    await cluster.client.create(a_pod("huge", "999"))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod("", "1")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    meta = {"name": "web", "namespace": "default"}
    await cluster.client.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    await cluster.sleep(30)
    found = await metrics(cluster)
    assert found['scheduler_pending_pods{queue="unschedulable"}'] == 1
    assert found['scheduler_pending_pods{queue="active"}'] == 0
    profile = 'profile="default-scheduler"'
    assert found[f'scheduler_schedule_attempts_total{{{profile},result="scheduled"}}'] == 3
    assert found[f'scheduler_schedule_attempts_total{{{profile},result="unschedulable"}}'] >= 1
    assert found[f'scheduler_scheduling_attempt_duration_seconds_count{{{profile},result="scheduled"}}'] == 3
    assert found["scheduler_pod_scheduling_attempts_count"] == 3
    assert found['workqueue_adds_total{name="deployment"}'] >= 1
    assert found['workqueue_depth{name="deployment"}'] == 0
    assert found['workqueue_work_duration_seconds_count{name="replicaset"}'] >= 1
    assert found['controller_runtime_reconcile_total{controller="deployment",result="success"}'] >= 1
    assert found['leader_election_master_status{name="kube-scheduler"}'] == 1
    assert any(series.startswith("apiserver_request_total{") for series in found)


@virtual(nodes=1)
async def test_stopped_components_have_no_metrics(cluster: VirtualCluster) -> None:
    await cluster.stop("scheduler")
    assert not any(series.startswith("scheduler_") for series in await metrics(cluster))
