"""Components in the server's own process: who they are, and that they can come and go."""

from __future__ import annotations

from typing import Any

import pytest
from local_server import TOKEN

from setpoint.apiserver.filters.in_process import InProcessAuthenticator, peer_of
from setpoint.client import Client
from setpoint.client.access import Access
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.resources import builtin
from setpoint.cluster.components import components
from setpoint.cluster.remote import RemoteClients
from setpoint.meta.errors import Forbidden
from setpoint.system import RandomIds

DEPLOYMENTS, PODS = builtin("deployments", "apps"), builtin("pods")
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def whoami(client: Client) -> dict[str, Any]:
    answer = await client.sender.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "", REVIEW)
    return dict(answer["status"]["userInfo"])


async def test_a_component_is_who_it_says_and_may_do_no_more_than_that(local_server: Any) -> None:
    local_server.api.authenticator.add(InProcessAuthenticator())
    entrance = local_server.entrance.for_peer(peer_of("system:kube-scheduler", ()))
    scheduler = Client(InProcessTransport(entrance), local_server.clock)
    assert await whoami(scheduler) == {"username": "system:kube-scheduler", "groups": ["system:authenticated"]}
    await scheduler.list(PODS)
    with pytest.raises(Forbidden, match='User "system:kube-scheduler" cannot list resource "secrets"'):
        await scheduler.list(builtin("secrets"))
    with pytest.raises(Forbidden):
        await scheduler.delete(DEPLOYMENTS, "web", "default")


async def test_nobody_else_becomes_somebody_by_it(local_server: Any) -> None:
    local_server.api.authenticator.add(InProcessAuthenticator())
    administrator = Client(InProcessTransport(local_server.entrance, TOKEN), local_server.clock)
    assert (await whoami(administrator))["username"] == "system:apiserver"
    stranger = Client(InProcessTransport(local_server.entrance), local_server.clock)
    with pytest.raises(Forbidden, match='User "system:anonymous"'):
        await stranger.list(PODS)


async def may(client: Client, verb: str, resource: str, name: str = "", namespace: str = "", group: str = "") -> bool:
    resource, _, subresource = resource.partition("/")
    wanted = {
        "verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name,
        "namespace": namespace,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool((await client.sender.json("POST", path, "", review))["status"]["allowed"])


async def test_nothing_runs_as_administrator(local_server: Any) -> None:
    async with components(local_server.api, local_server.clock, RandomIds(1), 1) as parts:
        who = parts.who
        everyone = (
            who.controller_manager(), who.scheduler(), who.fleet(), who.stages(), who.addons(), who.node("node-1"),
            who.controller("deployment-controller"), who.controller("generic-garbage-collector"), parts.event_reader(),
        )  # fmt: skip
        for client in everyone:
            user = await whoami(client)
            assert "system:masters" not in user["groups"], user
            assert not await may(client, "*", "*", group="*"), user
            assert not await may(client, "create", "clusterrolebindings", group="rbac.authorization.k8s.io"), user
        assert await may(parts.event_reader(), "watch", "events") and not await may(
            parts.event_reader(), "list", "pods"
        )
        fleet, node, addons = who.fleet(), who.node("node-1"), who.addons()
        for verb, resource, allowed in (
            ("list", "secrets", True), ("watch", "pods", True), ("create", "events", True), ("create", "nodes", False),
            ("patch", "pods/status", False), ("create", "pods", False), ("update", "secrets", False),
            ("create", "serviceaccounts/token", False), ("list", "serviceaccounts", False),
        ):  # fmt: skip
            assert await may(fleet, verb, resource, namespace="default") == allowed, (verb, resource)
        assert (await whoami(node))["groups"] == ["system:nodes", "system:authenticated"]
        assert await may(node, "get", "nodes", "node-1") and not await may(node, "get", "nodes", "node-2")
        assert not await may(node, "list", "secrets", namespace="default")
        assert await may(addons, "create", "storageclasses", group="storage.k8s.io")
        assert not await may(addons, "patch", "namespaces", "default")


@pytest.mark.parametrize(
    ("user", "groups", "becomes"),
    [
        ("system:node-fleet", (), "system:node:n7"),
        ("kubernetes-admin", ("system:masters",), "system:node:n7"),
        ("alice", (), "alice"),
    ],
)
async def test_nodes_elsewhere_write_in_their_own_names_where_they_may(
    local_server: Any, user: str, groups: tuple[str, ...], becomes: str
) -> None:
    local_server.api.authenticator.add(InProcessAuthenticator())
    transport = InProcessTransport(local_server.entrance.for_peer(peer_of(user, groups)))
    clients = RemoteClients(Access("https://192.0.2.1"), local_server.clock, own_accounts=False)
    clients._client = Client(transport, local_server.clock)
    await clients.speak_for_nodes()
    with pytest.raises(Forbidden, match=f'User "{becomes}" cannot get resource "nodes"'):
        await clients.node("n7").get(builtin("nodes"), "n8")
    assert (await whoami(clients.fleet()))["username"] == user


async def until(client: Client, count: int, not_these: frozenset[str] = frozenset()) -> frozenset[str]:
    """The names of the Pods, as soon as so many run."""
    found = await client.list(PODS, "default")
    pods = {item["metadata"]["name"]: item for item in found.items}
    async with client.watch(PODS, "default", resource_version=found.resource_version) as watch:
        while True:
            running = frozenset(name for name, pod in pods.items() if pod["status"]["phase"] == "Running")
            if len(running) == len(pods) == count and not running & not_these:
                return running
            kind, pod = await watch.__anext__()
            if kind == "DELETED":
                pods.pop(pod["metadata"]["name"], None)
            elif kind != "BOOKMARK":
                pods[pod["metadata"]["name"]] = pod


async def test_what_happened_while_they_were_away_is_repaired_from_what_is(local_server: Any) -> None:
    api, client = local_server.api, local_server.client
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    web = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 20, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }  # fmt: skip
    async with components(api, local_server.clock, RandomIds(1), 3):
        await client.create(web)
        before = await until(client, 20)
    for name in sorted(before)[:15]:
        await client.delete(PODS, name, "default", grace_period=0)
    async with components(api, local_server.clock, RandomIds(2), 3):
        after = await until(client, 20, not_these=frozenset(sorted(before)[:15]))
        assert len(after & before) == 5, "those that were left alone are left alone"
    async with components(api, local_server.clock, RandomIds(3), 3):
        assert await until(client, 20) == after, "nothing happens twice"
