"""The feed `object`: desired, observed, drift and action of one object while it changes."""

from __future__ import annotations

from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.feed import PageContext
from setpoint.web.feeds import object as object_feed

DEPLOYMENTS = builtin("deployments", "apps")
ARGS = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "default", "name": "web"}


def deployment(image: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    }


@virtual(nodes=1)
async def test_the_loop_of_a_deployment(cluster: VirtualCluster) -> None:
    state = FeedState()
    context = PageContext(cluster.client, cluster.clock, "", "ann", "")
    async with child_tasks(object_feed.run(context, ARGS, state)):
        await cluster.until(lambda: state.is_synced)
        assert state.items["object"]["exists"] is False and "loop" not in state.items
        await cluster.client.create(deployment("nginx:1.29"))
        await cluster.settle()
        loop = state.items["loop"]
        assert (loop["phase"], loop["drift"]) == ("settled", [])
        assert (loop["desired"], loop["observed"]) == (["2 replicas", "image nginx:1.29"], ["2 ready"])
        assert loop["gauge"] == {"observed": 2, "desired": 2, "unit": "Pods ready"}
        assert len(state.items["pods"]["uids"]) == 2 and "reason" not in state.items
        seen = state.items["object"]
        assert (seen["generation"], seen["observed"], seen["exists"]) == (1, 1, True)
        # An image that does not exist: the server says why it waits.
        patch = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:no-such-tag"}]}}}}
        await cluster.client.patch(DEPLOYMENTS, "web", patch, "default", kind="strategic")
        await cluster.until(lambda: "reason" in state.items and state.items["loop"]["phase"] == "waiting", within=60)
        assert "cannot be pulled" in state.items["reason"]["sentence"]
        assert "tries again, with growing pauses" in state.items["loop"]["action"]
        await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}}, "default")
        await cluster.until(lambda: state.items["loop"]["action"] == "The rollout is paused (spec.paused).")
        await cluster.client.delete(DEPLOYMENTS, "web", "default", propagation="Background")
        await cluster.settle()
        assert state.items["object"]["exists"] is False and not {"loop", "reason"} & state.items.keys()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"resource": "pods"}, BadRequest),
        ({"resource": "pods", "name": "a/b", "namespace": "default"}, BadRequest),
        ({"resource": "teapots", "name": "a"}, NotFound),
    ],
)
async def test_bad_arguments(local_server: LocalServer, args: Any, error: type[ApiError]) -> None:
    context = PageContext(local_server.client, local_server.clock, "", "ann", "")
    with pytest.raises(error):
        await object_feed.run(context, args, FeedState())
