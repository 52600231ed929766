"""ReplicationControllers differ from ReplicaSets in their selector."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
PODS, CONTROLLERS = builtin("pods"), builtin("replicationcontrollers")


def web(replicas: int = 2) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


@virtual(nodes=0, scheduler=False)
async def test_the_desired_number_of_pods_is_created(cluster: VirtualCluster) -> None:
    made = await cluster.client.create(web(2))
    assert made["spec"]["selector"] == {"app": "web"}
    await cluster.instant()
    pods = await cluster.all(PODS)
    assert [pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods] == ["ReplicationController"] * 2
    found = await cluster.client.get(CONTROLLERS, "web", "default")
    assert found["status"] == {"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 1}
    sources = {
        event["source"]["component"]
        for event in await cluster.all(("v1", "Event"))
        if event["involvedObject"]["kind"] == "ReplicationController"
    }
    assert sources == {"replication-controller"}
    # Out of the set, and back in again.
    name = pods[0]["metadata"]["name"]
    await cluster.client.patch(PODS, name, {"metadata": {"labels": {"app": "debug"}}}, "default")
    await cluster.instant()
    assert len(await cluster.all(PODS, selector="app=web")) == 2
    freed = await cluster.client.get(PODS, name, "default")
    assert "ownerReferences" not in freed["metadata"]
    await cluster.client.patch(PODS, name, {"metadata": {"labels": {"app": "web"}}}, "default")
    await cluster.instant()
    assert len(await cluster.all(PODS, selector="app=web")) == 2
    await cluster.client.patch(CONTROLLERS, "web", {"spec": {"replicas": 0}}, "default")
    await cluster.instant()
    assert not await cluster.all(PODS)
    found = await cluster.client.get(CONTROLLERS, "web", "default")
    assert found["status"] == {"replicas": 0, "observedGeneration": 2}


@virtual(nodes=0, scheduler=False)
async def test_an_exhausted_quota_is_reported_until_it_is_raised(cluster: VirtualCluster) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    hard = {"hard": {"pods": "1"}}
    await cluster.client.create({**quota, "spec": hard})
    resource = builtin("resourcequotas")
    status = {"status": {**hard, "used": {"pods": "0"}}}
    await cluster.client.patch(resource, "q", status, "default", subresource="status")
    await cluster.client.create(web(2))
    await cluster.sleep(1)
    found = await cluster.client.get(CONTROLLERS, "web", "default")
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("ReplicaFailure", "True", "FailedCreate")
    assert "exceeded quota: q" in condition["message"]
    assert any(
        kind == "Warning" and reason == "FailedCreate" and message.startswith("Error creating: pods ")
        for kind, reason, message in await cluster.events("web")
    )
    await cluster.client.delete(resource, "q", "default")
    await cluster.sleep(60)
    found = await cluster.client.get(CONTROLLERS, "web", "default")
    assert found["status"]["replicas"] == 2
    assert "conditions" not in found["status"]
