"""Predictions over the API: what would differ, happen and fail, and the requests that make the change."""

from __future__ import annotations

from typing import Any

import pytest
from plan_requests import PATH, WEB, plan, planning
from why_scenarios import workload

from setpoint.meta.errors import BadRequest, Forbidden, NotFound
from setpoint.node.options import FleetOptions
from setpoint.node.runtime.images import ImageRule
from setpoint.testing import VirtualCluster, virtual

POD = ("v1", "Pod")
NEW = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  replicas: 2
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: api, image: nginx}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
"""


def compared(found: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {f"{row['kind']}/{row['name']}": (row["now"], row["then"], row["note"]) for row in found["compared"]}


@virtual()
async def test_new_pods_tolerate_lost_nodes_as_in_the_original(cluster: VirtualCluster) -> None:
    async with planning(cluster, (30, 20)):
        await plan(cluster, {"type": "scale", **WEB, "replicas": 4}, keep="what-if")
        pods = await cluster.client.sender.json("GET", "/forks/what-if/api/v1/namespaces/default/pods")
        found = sorted(tuple(each["tolerationSeconds"] for each in pod["spec"]["tolerations"]) for pod in pods["items"])
        assert found == [(30, 20), (300, 300), (300, 300), (300, 300)]
        # A plan for the fork has them too.
        await plan(cluster, {"type": "scale", **WEB, "replicas": 5}, fork="what-if", keep="more")
        more = await cluster.client.sender.json("GET", "/forks/more/api/v1/namespaces/default/pods")
        assert sum(each["spec"]["tolerations"][0]["tolerationSeconds"] == 30 for each in more["items"]) == 2


@virtual()
async def test_what_if_a_node_stops(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        before = cluster.fingerprint()
        found = await plan(cluster, {"type": "stop", "node": "node-2"}, until=400, keep="what-if")
        rows = compared(found)
        assert rows["Pod/"] == ("3 of 3 ready", "3 of 3 ready, 1 terminating", "1 replaced")
        assert rows["Node/node-2"][:2] == ("Ready", "Unknown")
        now, then, note = rows["Service/web"]
        assert (now, then) == ("3 endpoints", "3 endpoints")
        assert note.startswith("only 2 endpoints at the worst, fewer than 3 from +")
        (moved,) = found["moved"]
        assert (moved["from_node"], moved["owner"].partition("/")[0]) == ("node-2", "ReplicaSet")
        assert moved["to_node"] in ("node-1", "node-3")
        assert 350 < found["passed"] <= 400
        assert found["report"]["verdict"].startswith("The cluster would converge")
        times = [each["at"] for each in found["report"]["events"]]
        assert times == sorted(times)
        assert any("scheduled to" in each["text"] for each in found["report"]["events"])
        # The fork shows the end. The original is as it was.
        assert found["fork"]["path"] == "/forks/what-if"
        pods = await cluster.client.sender.json("GET", "/forks/what-if/api/v1/namespaces/default/pods")
        assert moved["after"] in {pod["metadata"]["name"] for pod in pods["items"]}
        assert moved["after"] not in {pod["metadata"]["name"] for pod in await cluster.all(POD)}
        assert cluster.fingerprint() == before
        # It goes on from there, and another what-if takes its place.
        again = await plan(cluster, {"type": "scale", **WEB, "replicas": 5}, fork="what-if", keep="what-if")
        assert compared(again)["Deployment/web"][:2] == ("3 of 3 ready, nginx:1.27", "5 of 5 ready, nginx:1.27")
        assert len((await cluster.client.sender.json("GET", "/setpoint/v1/forks"))["forks"]) == 1


@virtual(fleet=FleetOptions(images=(ImageRule("/shop:", error="no {{shop}}"),)))
async def test_images_that_cannot_be_pulled_cannot_be_pulled_in_the_copy(cluster: VirtualCluster) -> None:
    """The copy does not know why: it goes by what the Pods say."""
    async with planning(cluster):
        await cluster.client.create(workload("Deployment", "shop", 2, image="shop:1"))
        await cluster.sleep(60)
        (before, *_) = await cluster.all(POD, selector="app=shop")
        found = await plan(cluster, {"type": "stop", "node": "node-2"}, until=400, keep="what-if")
        assert compared(found)["Pod/"][0] == "3 of 5 ready" and not found["firstLook"]
        pods = await cluster.client.sender.json("GET", "/forks/what-if/api/v1/namespaces/default/pods")
        waiting = [
            pod["status"]["containerStatuses"][0]["state"]["waiting"]
            for pod in pods["items"]
            if pod["metadata"]["labels"]["app"] == "shop" and not pod["metadata"].get("deletionTimestamp")
        ]
        assert waiting == [before["status"]["containerStatuses"][0]["state"]["waiting"]] * 2
        assert waiting[0]["message"] == 'Back-off pulling image "shop:1": ErrImagePull: no {shop}'
        # Another image is a way out.
        shop = {**WEB, "name": "shop"}
        found = await plan(cluster, {"type": "image", **shop, "image": "nginx"})
        assert compared(found)["Deployment/shop"][1] == "2 of 2 ready, nginx"


@virtual()
async def test_the_change_is_made_before_a_rollout_passes_its_deadline(cluster: VirtualCluster) -> None:
    """The loops of the copy get time to look at everything, and no more: what is under way goes on after the change."""
    async with planning(cluster):
        huge = workload("Deployment", "huge", 1)
        huge["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
        await cluster.client.create(huge)
        await cluster.sleep(10)
        await plan(cluster, {"type": "scale", **WEB, "replicas": 4}, until=60, keep="what-if")
        found = await cluster.client.sender.json(
            "GET", "/forks/what-if/apis/apps/v1/namespaces/default/deployments/huge"
        )
        conditions = {each["type"]: each["reason"] for each in found["status"]["conditions"]}
        assert conditions["Progressing"] == "ReplicaSetUpdated"


@virtual()
async def test_the_requests_of_a_change_make_it(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        found = await plan(
            cluster,
            {"type": "apply", "yaml": NEW},
            {"type": "image", **WEB, "image": "nginx:1.29"},
            {"type": "scale", **WEB, "replicas": 4},
            {"type": "drain", "node": "node-1"},
        )
        assert found["converges"], found["report"]
        assert not found["refused"]
        assert compared(found)["Deployment/web"][1] == "4 of 4 ready, nginx:1.29"
        assert compared(found)["Deployment/api"][:2] == ("does not exist", "2 of 2 ready, nginx")
        assert compared(found)["Node/node-1"][1] == "Ready, cordoned"
        texts = [each["text"] for each in found["requests"]]
        assert texts[:5] == [
            "apply deployments/api",
            "apply namespaces/shop",
            "set the image of deployments/web to nginx:1.29",
            "scale deployments/web to 4",
            "cordon node node-1",
        ]
        for each in found["requests"][:5]:
            await cluster.client.sender.json(
                each["method"], each["path"], each["query"], each["body"], content_type=each["contentType"]
            )
        await cluster.settle()
        web = await cluster.client.get(("apps/v1", "Deployment"), "web", "default")
        assert web["status"]["readyReplicas"] == 4
        deleted = await plan(cluster, {"type": "delete", **WEB})
        assert compared(deleted)["Deployment/web"][1] == "does not exist"
        assert compared(deleted)["Service/web"][1] == "0 endpoints"
        assert deleted["interruptions"][0]["kind"] == "Service"


@virtual()
async def test_a_plan_of_the_past(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        revision = cluster.embedded.store.revision
        await cluster.client.delete(("apps/v1", "Deployment"), "web", "default")
        await cluster.settle()
        found = await plan(cluster, {"type": "scale", **WEB, "replicas": 1}, at=str(revision))
        assert found["revision"] == revision
        assert compared(found)["Deployment/web"][1] == "1 of 1 ready, nginx:1.27"


@virtual()
async def test_refused_changes_and_requests(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        missing = await plan(cluster, {"type": "stop", "node": "node-9"})
        assert missing["refused"] == ['stop: nodes "node-9" not found']
        assert missing["report"]["verdict"] == "The change would be refused."
        invalid = await plan(cluster, {"type": "apply", "yaml": NEW.replace("app: api", "app: other", 1)})
        assert "selector" in invalid["refused"][0]
        wrong: list[dict[str, Any]] = [
            {"changes": "all"},
            {"changes": [{"type": "explode"}]},
            {"changes": [{"type": "stop"}]},
            {"changes": [{"type": "stop", "node": "../x"}]},
            {"changes": [{"type": "scale", **WEB, "replicas": -1}]},
            {"changes": [{"type": "scale", **WEB, "replicas": "3"}]},
            {"changes": [{"type": 7}]},
            {"changes": [], "until": "later"},
            {"changes": [], "until": 0},
            {"changes": [], "at": "-1m", "fork": "x"},
            {"changes": [], "keep": "Not A Name"},
            {"change": []},
        ]
        for body in wrong:
            with pytest.raises(BadRequest):
                await cluster.client.sender.json("POST", PATH, body=body)
        for text in (": not yaml [", "a: b", "kind: Pod\nmetadata: {}", ""):
            answer = await cluster.client.sender.json(
                "POST", PATH, body={"changes": [{"type": "apply", "yaml": text or "#"}]}
            )
            assert answer["refused"]
        with pytest.raises(NotFound):
            await plan(cluster, fork="none")
        dave = cluster.embedded.components.clients.copying_client("dave", (), agent="kubectl")
        with pytest.raises(Forbidden):
            await dave.sender.json("POST", PATH, body={"changes": []})
