"""`metrics.k8s.io`, as `kubectl top` and autoscalers read it."""

from __future__ import annotations

import json

from setpoint.meta.objects import Obj
from setpoint.meta.quantity import parse
from setpoint.testing import VirtualCluster, virtual

BASE = "/apis/metrics.k8s.io/v1beta1"


def a_pod(name: str, **annotations: str) -> Obj:
    notes = {f"simulate.setpoint.dev/{key}": value for key, value in annotations.items()}
    resources = {"requests": {"cpu": "200m", "memory": "100Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}, "annotations": notes},
        "spec": {
            "containers": [{"name": "c", "image": "nginx", "resources": resources}, {"name": "side", "image": "nginx"}],
            "nodeName": "node-1",
        },
    }


async def read(cluster: VirtualCluster, path: str, query: str = "", accept: str = "") -> tuple[int, Obj]:
    headers = [("accept", accept)] if accept else []
    reply = await cluster.client.sender.transport.request("GET", path, query, headers, b"")
    return reply.status, json.loads(reply.body)


@virtual(nodes=2)
async def test_usage_of_pods_and_nodes(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("busy", cpu="300m", memory="64Mi"))
    await cluster.client.create(a_pod("quiet"))
    await cluster.sleep(3)
    assert (await read(cluster, f"{BASE}/namespaces/default/pods"))[1]["items"] == [], "too young to be measured"
    status, problem = await read(cluster, f"{BASE}/namespaces/default/pods/busy")
    assert (status, problem["message"]) == (404, 'pods.metrics.k8s.io "default/busy" not found')
    await cluster.sleep(30)
    status, found = await read(cluster, f"{BASE}/namespaces/default/pods")
    assert (status, found["kind"], found["apiVersion"]) == (200, "PodMetricsList", "metrics.k8s.io/v1beta1")
    busy, quiet = found["items"]
    assert busy["metadata"]["name"] == "busy" and busy["metadata"]["labels"] == {"app": "busy"}
    assert busy["containers"] == [
        {"name": "c", "usage": {"cpu": "300m", "memory": "64Mi"}},
        {"name": "side", "usage": {"cpu": "300m", "memory": "64Mi"}},
    ]
    assert quiet["containers"][0]["usage"]["cpu"] == "100m", "half of what it asked for"
    assert busy["window"] == "15s" and busy["timestamp"].endswith("Z")
    one = await read(cluster, f"{BASE}/namespaces/default/pods/busy")
    assert one[1]["kind"] == "PodMetrics" and one[1]["containers"] == busy["containers"]
    _, nodes = await read(cluster, f"{BASE}/nodes")
    assert [node["metadata"]["name"] for node in nodes["items"]] == ["node-1", "node-2"]
    first, second = (parse(node["usage"]["cpu"]).nano for node in nodes["items"])
    pods = sum(parse(each["usage"]["cpu"]).nano for pod in found["items"] for each in pod["containers"])
    assert first - second == pods
    assert nodes["items"][0]["metadata"]["labels"]["kubernetes.io/hostname"] == "node-1"


@virtual(nodes=1)
async def test_selectors_namespaces_and_missing_objects(cluster: VirtualCluster) -> None:
    for name in ("one", "two"):
        await cluster.client.create(a_pod(name))
    await cluster.sleep(20)

    async def names(path: str, query: str = "") -> list[str]:
        return [item["metadata"]["name"] for item in (await read(cluster, path, query))[1]["items"]]

    assert await names(f"{BASE}/pods") == ["one", "two"]
    assert await names(f"{BASE}/pods", "labelSelector=app%3Dtwo") == ["two"]
    assert await names(f"{BASE}/namespaces/default/pods", "fieldSelector=metadata.name%3Done") == ["one"]
    assert await names(f"{BASE}/namespaces/kube-system/pods") == []
    assert (await read(cluster, f"{BASE}/namespaces/default/pods/none"))[0] == 404
    assert (await read(cluster, f"{BASE}/pods", "labelSelector=a%3D%3D%3D"))[0] == 400
    assert (await read(cluster, f"{BASE}/pods", "watch=true"))[0] == 405
    assert (await read(cluster, f"{BASE}/others"))[0] == 404


@virtual(nodes=1)
async def test_discovery_lists_the_group(cluster: VirtualCluster) -> None:
    _, document = await read(cluster, BASE)
    assert [(each["name"], each["kind"], each["verbs"]) for each in document["resources"]] == [
        ("nodes", "NodeMetrics", ["get", "list"]),
        ("pods", "PodMetrics", ["get", "list"]),
    ]
    service = await cluster.client.get(("apiregistration.k8s.io/v1", "APIService"), "v1beta1.metrics.k8s.io")
    await cluster.instant()
    service = await cluster.client.get(("apiregistration.k8s.io/v1", "APIService"), "v1beta1.metrics.k8s.io")
    assert service["status"]["conditions"][0]["status"] == "True"
    roles = await cluster.client.list(("rbac.authorization.k8s.io/v1", "ClusterRole"))
    names = [role["metadata"]["name"] for role in roles.items]
    assert len([name for name in names if not name.startswith("setpoint:")]) == 73, "upstream's, and no other"


@virtual(nodes=1)
async def test_a_table_can_be_requested(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("busy", cpu="300m", memory="64Mi"))
    await cluster.sleep(20)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    _, table = await read(cluster, f"{BASE}/namespaces/default/pods", accept=accept)
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "cpu", "memory", "Window"]
    assert table["rows"][0]["cells"] == ["busy", "600m", "128Mi", "15s"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@virtual(nodes=0)
async def test_without_nodes_there_are_no_metrics(cluster: VirtualCluster) -> None:
    reply = await cluster.client.sender.transport.request("GET", f"{BASE}/nodes", "", [], b"")
    assert reply.status == 404


@virtual(nodes=1)
async def test_clients_that_prefer_protobuf_get_json(cluster: VirtualCluster) -> None:
    accept = "application/vnd.kubernetes.protobuf,application/json"
    status, found = await read(cluster, f"{BASE}/nodes", accept=accept)
    assert (status, found["kind"]) == (200, "NodeMetricsList")
