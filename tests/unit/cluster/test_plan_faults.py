"""Predictions with faults between components of the copy and its API server."""

from __future__ import annotations

from typing import Any

import pytest
from plan_requests import PATH, WEB, plan, planning

from setpoint.meta.errors import BadRequest
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.fault_plan import COMPONENTS, KINDS, Plan

SCALED = {"type": "scale", **WEB, "replicas": 5}
POD = ("v1", "Pod")


def sentences(found: dict[str, Any]) -> list[str]:
    return [each["text"] for each in found["faults"]["faults"]]


@virtual()
async def test_the_cluster_ends_as_without_the_faults(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        before = cluster.fingerprint()
        found = await plan(
            cluster, SCALED, faults={"controllers": "delay-watch:1/30s+conflict:2", "scheduler": "drop-watch:1"}
        )
        assert found["converges"]
        assert found["faults"]["differences"] == []
        verdict = found["report"]["verdict"]
        assert verdict.startswith("The cluster would converge in ")
        assert " It would end as without the faults, which takes " in verdict
        # The Deployment's change arrives 30 s later, and everything follows from there.
        assert found["seconds"] - found["faults"]["secondsWithout"] == pytest.approx(30, abs=3)
        delayed, conflict, dropped = found["faults"]["faults"]
        assert (delayed["component"], delayed["at"], delayed["what"]) == (
            "controllers",
            0.0,
            "MODIFIED Deployment default/web",
        )
        assert conflict["what"] == "update Deployment default/web status" and conflict["at"] >= 30
        assert dropped["component"] == "scheduler" and dropped["what"]
        assert sentences(found)[0] == (
            "+0.0s delay-watch:1/30s of the controllers: event 1 and the next events of the same watch are delayed by "
            "30s (MODIFIED Deployment default/web)"
        )
        refused = [each for each in found["faults"]["steps"] if each["answer"]]
        assert [(each["fault"], each["nth"]) for each in refused if each["fault"]] == [("conflict", 2)]
        assert refused[0]["answer"].startswith("Conflict: Operation cannot be fulfilled on ")
        # The change of "another client" is a part of the fault, and no result of the prediction.
        assert not any("touched" in str(each) for each in (found["changes"], found["events"]))
        assert cluster.fingerprint() == before


@virtual()
async def test_a_fault_that_did_not_occur_says_so(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        found = await plan(cluster, {"type": "stop", "node": "node-2"}, until=20, faults={"scheduler": "error:9"})
        (text,) = sentences(found)
        assert text == "error:9 of the scheduler did not occur: there were 0 writes"
        # After a fixed time one of two runs may be ahead: they are not compared.
        assert found["faults"]["differences"] is None
        assert found["passed"] == pytest.approx(20, abs=0.1)


@virtual()
async def test_a_fixed_time_passes_whatever_the_faults_last(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        found = await plan(
            cluster, SCALED, until=30, keep="what-if", faults={"controllers": "down:1/10m", "nodes": "stale:1/1h"}
        )
        assert found["passed"] == pytest.approx(30, abs=0.1)
        assert (found["moved"] == [] and found["changes"] == []) or found["changes"][0]["kind"] == "Deployment"
        pods = await cluster.client.sender.json("GET", "/forks/what-if/api/v1/namespaces/default/pods")
        assert len(pods["items"]) == 3, "the controllers were down all the time"
        # What goes on from there has no faults any more.
        found = await plan(cluster, fork="what-if", keep="what-if")
        assert found["faults"] is None
        pods = await cluster.client.sender.json("GET", "/forks/what-if/api/v1/namespaces/default/pods")
        assert [pod["status"]["phase"] for pod in pods["items"]] == ["Running"] * 5


TOGETHER = (
    "error:1+too-many:2+conflict:3+timeout:4+lost-answer:5",
    "crash-before:1+crash-after:3",
    "stale:1+rewind:4",
    "duplicate:1+drop-watch:2+expire-watch:3+delay-watch:4",
    "partition:1+down:5",
    "noise:1",
)


def test_every_fault_that_copies_can_have_is_tried() -> None:
    tried = {fault.kind for text in TOGETHER for fault in Plan.parse(text)}
    assert tried == {kind for kind, each in KINDS.items() if not each.two_servers}


@pytest.mark.parametrize("faults", TOGETHER)
def test_a_cluster_ends_as_without_faults_of_all_components(faults: str) -> None:
    @virtual()
    async def run(cluster: VirtualCluster) -> None:
        async with planning(cluster):
            found = await plan(cluster, {**SCALED, "replicas": 12}, faults=dict.fromkeys(COMPONENTS, faults))
            assert all(each["at"] is not None for each in found["faults"]["faults"]), sentences(found)
            assert found["faults"]["differences"] == [], found["faults"]["differences"]
            assert found["converges"], found["report"]

    run()


@virtual()
async def test_the_faults_of_a_fork_that_is_advanced(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        json = cluster.client.sender.json
        await json("POST", "/setpoint/v1/forks", body={"name": "late", "virtual": True})
        await json(
            "PATCH",
            "/forks/late/apis/apps/v1/namespaces/default/deployments/web/scale",
            body={"spec": {"replicas": 5}},
            content_type="application/merge-patch+json",
        )
        passed = await json(
            "POST",
            "/setpoint/v1/forks/late",
            body={"until": "settled", "faults": {"controllers": "crash-after:1", "scheduler": "conflict:2"}},
        )
        assert passed["settled"] and passed["writes"] > 10
        crash, conflict = passed["faults"]["faults"]
        assert conflict["what"].startswith("create Pod default/web-") and conflict["what"].endswith(" binding"), (
            conflict
        )
        assert crash["at"] is not None and crash["text"].startswith(
            "+0.0s crash-after:1 of the controllers: it crashes"
        )
        pods = await json("GET", "/forks/late/api/v1/namespaces/default/pods")
        assert len(pods["items"]) == 5
        assert "faults" not in await json("POST", "/setpoint/v1/forks/late", body={"advance": 5})


@virtual()
async def test_no_fork_remains_of_a_refused_request(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        wrong: dict[str, Any]
        for wrong in ({"advance": 5, "faults": {"nodes": "broken:1"}}, {"until": "never"}, {"faults": {}}):
            with pytest.raises(BadRequest):
                body = {"name": "late", "virtual": True, **wrong}
                await cluster.client.sender.json("POST", "/setpoint/v1/forks", body=body)
        assert (await cluster.client.sender.json("GET", "/setpoint/v1/forks"))["forks"] == []


@virtual()
async def test_what_is_possible_is_listed(cluster: VirtualCluster) -> None:
    async with planning(cluster):
        found = await cluster.client.sender.json("GET", PATH)
        assert found["components"] == ["controllers", "scheduler", "nodes"]
        by_id = {each["id"]: each for each in found["faults"]}
        assert by_id["delay-watch"] == {
            "id": "delay-watch",
            "title": "Delay a watch",
            "at": "event",
            "seconds": 5.0,
            "node": False,
        }
        assert by_id["partition"]["node"] and "lag" not in by_id


@pytest.mark.parametrize(
    ("faults", "complaint"),
    [
        ({"kubelet": "stale:1"}, "faults: faults are those of controllers, scheduler, nodes, not of 'kubelet'"),
        ({"nodes": "stale"}, "faults: 'stale': stale needs a number, such as stale:1"),
        ({"nodes": "lag:1"}, "faults: lag needs a second API server, and the copy has one"),
        ({"nodes": 1}, "faults: the faults of nodes must be a text of at most 1000 characters"),
        ({"nodes": "a" * 2000}, "faults: the faults of nodes must be a text of at most 1000 characters"),
        ({"nodes": "partition:1@node-9"}, "partition:1@node-9: there is no node node-9"),
    ],
)
def test_invalid_faults_are_refused(faults: dict[str, Any], complaint: str) -> None:
    @virtual()
    async def run(cluster: VirtualCluster) -> None:
        async with planning(cluster):
            await cluster.client.sender.json("POST", "/setpoint/v1/forks", body={"name": "late", "virtual": True})
            for path, body in ((PATH, {"changes": [SCALED]}), ("/setpoint/v1/forks/late", {"advance": 5})):
                with pytest.raises(BadRequest) as refused:
                    await cluster.client.sender.json("POST", path, body={**body, "faults": faults})
                assert str(refused.value) == complaint

    run()
