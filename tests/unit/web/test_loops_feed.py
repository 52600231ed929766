"""The feeds `loops` and `faults`, with a whole cluster in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer
from why_scenarios import workload

from setpoint.meta.errors import Forbidden, NotFound
from setpoint.reconcile.gate import HOLD_SECONDS
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.feed import PageContext
from setpoint.web.feeds import faults, loops

REPLICASETS = "replicaset-controller"


def context(cluster: VirtualCluster) -> PageContext:
    return PageContext(cluster.client, cluster.clock, "", "kubernetes-admin", "s")


async def command(cluster: VirtualCluster, action: str, **fields: Any) -> None:
    await cluster.client.sender.json("POST", loops.PATH, body={"action": action, **fields})


@virtual()
async def test_the_loops_while_they_work(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", "web", 1))
    await cluster.settle()
    state = FeedState()
    async with child_tasks(loops.run(context(cluster), {"runs": REPLICASETS}, state)):
        await cluster.sleep(1)
        assert state.is_synced
        assert state.items[f"loop:{REPLICASETS}"]["mode"] == "run"
        assert state.items["gate"]["until"] == 0
        assert state.items["runs"]["list"][0]["key"].startswith("default/web-")
        assert "cronjob-controller" in state.items["deferred"]["list"]
        await cluster.sleep(30)
        changes = state.changes
        await cluster.sleep(30)
        assert state.changes - changes < 30  # rates sink, heartbeats are not shown
        await command(cluster, "pause", loop=REPLICASETS)
        (pod,) = await cluster.all(("v1", "Pod"))
        await cluster.client.delete(("v1", "Pod"), pod["metadata"]["name"], "default")
        await cluster.sleep(2)
        assert state.items[f"loop:{REPLICASETS}"]["depth"] == 1
        assert state.items["gate"]["own"][0]["name"] == REPLICASETS
        # As long as somebody watches, it stays paused; then it runs again.
        await cluster.sleep(HOLD_SECONDS + 60)
        assert state.items[f"loop:{REPLICASETS}"]["depth"] == 1
    await cluster.sleep(HOLD_SECONDS + 10)
    assert len(await cluster.all(("v1", "Pod"))) == 1


@virtual()
async def test_a_loop_that_ends_is_removed(cluster: VirtualCluster) -> None:
    state = FeedState()
    async with child_tasks(loops.run(context(cluster), {}, state)):
        await cluster.sleep(1)
        assert "loop:kube-scheduler" in state.items
        await cluster.stop("scheduler")
        await cluster.sleep(1)
        assert "loop:kube-scheduler" not in state.items
        states = {each["name"]: each["state"] for each in state.items["components"]["list"]}
        assert states == {"kube-controller-manager": "leads", "kube-scheduler": "stopped"}
        await cluster.start("scheduler")
        await cluster.sleep(1)
        assert "loop:kube-scheduler" in state.items


@virtual()
async def test_faults_that_are_possible_and_in_effect(cluster: VirtualCluster) -> None:
    state = FeedState()
    async with child_tasks(faults.run(context(cluster), {}, state)):
        await cluster.sleep(1)
        assert state.items["state"]["simulatedNodes"] == 3
        assert state.items["kind:node-stop"]["fields"] == ["node"]
        changes = state.changes
        await cluster.sleep(10)
        assert state.changes == changes
        await cluster.client.sender.json("POST", faults.PATH, body={"fault": "node-stop", "node": "node-1"})
        await cluster.sleep(2)
        assert state.items["active:f1"]["text"] == "powered node-1 off"
        await cluster.client.sender.json("POST", faults.PATH, body={"undo": "f1"})
        await cluster.sleep(2)
        assert "active:f1" not in state.items


@virtual()
async def test_users_without_the_right_are_told(cluster: VirtualCluster) -> None:
    dave = cluster.embedded.components.clients.copying_client("dave", (), agent="page")
    for feed in (loops, faults):
        with pytest.raises(Forbidden):
            await feed.run(PageContext(dave, cluster.clock, "", "dave", "s"), {}, FeedState())
    with pytest.raises(NotFound, match="no-such"):
        await loops.run(context(cluster), {"runs": "no-such"}, FeedState())


async def test_a_server_without_loops_says_so(local_server: LocalServer) -> None:
    where = PageContext(local_server.client, local_server.clock, "", "admin", "")
    with pytest.raises(NotFound, match="does not show its control loops"):
        await loops.run(where, {}, FeedState())
    with pytest.raises(NotFound, match="faults cannot be injected here"):
        await faults.run(where, {}, FeedState())
