"""The feed `chain`: owners, dependents, selectors, nodes and actors, bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.client import Impersonation
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, BadRequest, Forbidden, NotFound
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.chain.graph import MAX_BOXES, Builder, ranks_of
from setpoint.web.chain.records import Record, record_of
from setpoint.web.feed import PageContext
from setpoint.web.feeds import chain

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PODS, SETS, SERVICES, NODES = builtin("pods"), builtin("replicasets", "apps"), builtin("services"), builtin("nodes")
POD_SPEC = {"containers": [{"name": "web", "image": "nginx:1.29"}]}
SELECTOR = {"matchLabels": {"app": "web"}}
WEB: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 3,
        "selector": SELECTOR,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC},
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}


def record(resource: Any, name: str, owner: Record | None = None, **obj: Any) -> Record:
    meta: dict[str, Any] = {"name": name, "uid": f"uid-{resource.plural}-{name}", "labels": {"app": "web"}}
    if resource.namespaced:
        meta["namespace"] = "default"
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner.kind, "name": owner.ref["name"], "uid": owner.uid}
        ]
    return record_of(resource, {"metadata": meta, **obj}, NOW)


def build(records: list[Record], root: Record | None = None) -> dict[str, dict[str, Any]]:
    return Builder({each.key: each for each in records}, root.key if root is not None else None).build()


def edges(graph: dict[str, dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (each["from"].split("/")[-1], each["how"], each["to"].split("/")[-1])
        for each in graph.values()
        if each["type"] == "edge"
    }


def test_many_siblings_are_folded_into_a_group() -> None:
    replica_set = record(SETS, "web-1")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pods = [
        record(PODS, f"web-1-{number:03d}", replica_set, spec={**POD_SPEC, "nodeName": "n1"}, status=ready)
        for number in range(97)
    ]
    bad = [record(PODS, f"web-1-z{number}", replica_set, spec=POD_SPEC, status={}) for number in range(2)]
    service = record(SERVICES, "web", spec={"selector": {"app": "web"}})
    node = record(NODES, "n1")
    graph = build([replica_set, *pods, *bad, service, node], replica_set)
    (group,) = [each for each in graph.values() if each["type"] == "group"]
    assert (group["count"], group["states"], group["prefix"]) == (88, {"ready": 88}, "web-1-0")
    shown = {
        each["ref"]["name"] for each in graph.values() if each["type"] == "object" and each["ref"]["kind"] == "Pod"
    }
    assert len(shown) == 11 and {"web-1-z0", "web-1-z1"} <= shown  # what is not ready has a box of its own
    assert graph["chain"]["leftOut"] == 0
    key = next(key for key in graph if key.startswith("group:"))
    assert graph[f"edge:{service.key}>{key}"]["how"] == "selects"
    assert graph[f"edge:{key}>{node.key}"]["how"] == "runs-on"
    # The selected Pod is shown, whatever its state.
    assert build([replica_set, *pods, *bad], pods[50])[pods[50].key]["root"]


def test_the_owner_of_what_waits_waits() -> None:
    counts = {"replicas": 1, "readyReplicas": 0, "observedGeneration": 1}
    owner = record(builtin("deployments", "apps"), "web", spec={"replicas": 1}, status=counts)
    middle = record(SETS, "web-1", owner, spec={"replicas": 1}, status=counts)
    container = {"name": "web", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    status = {"phase": "Pending", "containerStatuses": [container]}
    pod = record(PODS, "web-1-a", middle, spec={**POD_SPEC, "nodeName": "n1"}, status=status)
    assert (owner.phase, middle.phase, pod.phase) == ("acting", "acting", "waiting")
    graph = build([owner, middle, pod], owner)
    assert {graph[each.key]["phase"] for each in (owner, middle, pod)} == {"waiting"}


def test_the_number_of_boxes_is_bounded() -> None:
    sets = [record(SETS, f"web-{number}") for number in range(60)]
    pods = [record(PODS, f"p-{at}-{number}", owner) for at, owner in enumerate(sets) for number in range(12)]
    graph = build(sets + pods)
    boxes = [each for each in graph.values() if each["type"] in ("object", "group", "owner")]
    assert len(boxes) <= MAX_BOXES and any(each["type"] == "group" and each["kind"] == "ReplicaSet" for each in boxes)
    many = [record(builtin("jobs", "batch"), f"j{number}", sets[0]) for number in range(11)]
    deep = [record(PODS, f"{job.ref['name']}-{number}", job) for job in many for number in range(12)]
    deeper = [record(builtin("services"), f"{pod.ref['name']}-{number}", pod) for pod in deep for number in range(12)]
    graph = build([sets[0], *many, *deep, *deeper], sets[0])
    boxes = [each for each in graph.values() if each["type"] in ("object", "group", "owner")]
    assert len(boxes) <= MAX_BOXES and graph["chain"]["leftOut"] > 100


def test_ranks_lead_from_left_to_right_also_in_a_cycle() -> None:
    pairs = [("d", "r"), ("r", "p"), ("s", "p"), ("p", "n"), ("h", "d")]
    ranks = ranks_of("drspnh", dict.fromkeys(pairs, "owns"))
    assert [ranks[each] for each in "hdrpn"] == [0, 1, 2, 3, 4] and ranks["s"] == 2
    cycle = ranks_of("ab", {("a", "b"): "owns", ("b", "a"): "owns"})
    assert sorted(cycle.values()) == [0, 1]


def test_an_owner_of_an_unknown_kind_is_shown_by_its_name() -> None:
    teapot = record(SETS, "pot")
    pod = record(PODS, "a", teapot)
    graph = build([pod], pod)
    (owner,) = [each for each in graph.values() if each["type"] == "owner"]
    assert (owner["kind"], owner["name"], owner["api_version"]) == ("ReplicaSet", "pot", "apps/v1")
    assert build([], pod)["chain"]["exists"] is False


@virtual(nodes=2)
async def test_the_chain_of_a_deployment_follows_the_cluster(cluster: VirtualCluster) -> None:
    await cluster.client.create(WEB)
    await cluster.client.create(SERVICE)
    await cluster.settle()
    state = FeedState()
    context = PageContext(cluster.client, cluster.clock, "", "ann", "")
    args = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "default", "name": "web"}
    async with child_tasks(chain.run(context, args, state)):
        await cluster.until(lambda: state.is_synced)
        kinds = [each["ref"]["kind"] for each in state.items.values() if each["type"] == "object"]
        assert {kind: kinds.count(kind) for kind in kinds} == {
            "Deployment": 1,
            "ReplicaSet": 1,
            "Pod": 3,
            "Service": 1,
            "EndpointSlice": 1,
            "Node": 2,
        }
        assert state.items["apps/deployments/default/web"]["root"]
        assert state.items["apps/deployments/default/web"]["gauge"] == [3, 3]
        actors = [each["name"] for each in state.items.values() if each["type"] == "actor"]
        assert actors[0] == "you" and {"replicaset-controller", "kube-scheduler", "kubelets"} <= set(actors)
        pods = [key for key in state.items if key.startswith("/pods/")]
        relations = {how for _, how, _ in edges(dict(state.items))}  # type: ignore[arg-type]
        assert relations == {"owns", "selects", "runs-on"}
        await cluster.client.delete(PODS, pods[0].rsplit("/", 1)[1], "default")
        await cluster.settle()
        now = [key for key in state.items if key.startswith("/pods/")]
        assert len(now) == 3 and pods[0] not in now
        before = state.changes
        await cluster.sleep(30)
        assert state.changes == before  # nothing is sent while nothing changes

    # The whole tree is shown for each of its parts, and for the node what runs on it.
    node = (await cluster.client.list(NODES)).items[0]["metadata"]["name"]
    for args in (
        {"resource": "pods", "namespace": "default", "name": now[1].rsplit("/", 1)[1]},
        {"resource": "services", "namespace": "default", "name": "web"},
        {"namespace": "default"},
        {"resource": "namespaces", "name": "default"},
        {"resource": "nodes", "name": node},
    ):
        state = FeedState()
        async with child_tasks(chain.run(context, args, state)):
            await cluster.until(lambda: state.is_synced)  # noqa: B023
        kinds = [each["ref"]["kind"] for each in state.items.values() if each["type"] == "object"]
        if args.get("resource") == "nodes":
            assert {*kinds} == {"Node", "Pod"} and "unreadable" in state.items["chain"]
        else:
            assert kinds.count("Pod") == 3 and kinds.count("Deployment") == 1, args


async def test_kinds_that_the_user_may_not_read_are_named(local_server: LocalServer) -> None:
    rbac = "rbac.authorization.k8s.io"
    rules = [{"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]}]
    kind = {"apiVersion": f"{rbac}/v1", "metadata": {"name": "reader", "namespace": "default"}}
    subjects = [{"kind": "User", "apiGroup": rbac, "name": "bob"}]
    await local_server.client.create({**kind, "kind": "Role", "rules": rules})
    role = {"apiGroup": rbac, "kind": "Role", "name": "reader"}
    await local_server.client.create({**kind, "kind": "RoleBinding", "roleRef": role, "subjects": subjects})
    bob = local_server.client.named("page", Impersonation("bob", groups=("system:authenticated",)))
    context = PageContext(bob, local_server.clock, "", "bob", "")
    state = FeedState()
    async with child_tasks(chain.run(context, {"namespace": "default"}, state)) as (feed,):
        while not state.is_synced and not feed.done():
            await local_server.clock.advance(0.1)
    unreadable = state.items["chain"]["unreadable"]
    assert "deployments" in unreadable and "pods" not in unreadable
    with pytest.raises(Forbidden):
        await chain.run(context, {"resource": "services", "namespace": "default", "name": "web"}, FeedState())


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({"name": "web"}, BadRequest),
        ({"name": "web", "resource": "pods"}, BadRequest),
        ({"name": "..", "resource": "nodes"}, BadRequest),
        ({"name": "web", "resource": "teapots", "namespace": "default"}, NotFound),
    ],
)
async def test_bad_arguments(local_server: LocalServer, args: Any, error: type[ApiError]) -> None:
    context = PageContext(local_server.client, local_server.clock, "", "ann", "")
    with pytest.raises(error):
        await chain.run(context, args, FeedState())
