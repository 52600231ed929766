"""Components in the server's own process: their users and rights, restarts."""

from __future__ import annotations

from typing import Any

import pytest
from local_server import TOKEN

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.kubeconfig import Access
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


async def test_a_component_has_its_own_user_and_rights(local_server: Any) -> None:
    entrance = local_server.entrance.for_peer(in_process_peer("system:kube-scheduler", ()))
    scheduler = Client(InProcessTransport(entrance), local_server.clock)
    assert await whoami(scheduler) == {"username": "system:kube-scheduler", "groups": ["system:authenticated"]}
    await scheduler.list(PODS)
    with pytest.raises(Forbidden, match='User "system:kube-scheduler" cannot list resource "secrets"'):
        await scheduler.list(builtin("secrets"))
    with pytest.raises(Forbidden):
        await scheduler.delete(DEPLOYMENTS, "web", "default")


async def test_other_clients_cannot_use_the_user_of_a_component(local_server: Any) -> None:
    administrator = Client(InProcessTransport(local_server.entrance, TOKEN), local_server.clock)
    assert (await whoami(administrator))["username"] == "system:apiserver"
    anonymous = Client(InProcessTransport(local_server.entrance), local_server.clock)
    with pytest.raises(Forbidden, match='User "system:anonymous"'):
        await anonymous.list(PODS)


async def is_allowed(
    client: Client, verb: str, resource: str, name: str = "", namespace: str = "", group: str = ""
) -> bool:
    resource, _, subresource = resource.partition("/")
    wanted = {
        "verb": verb,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "name": name,
        "namespace": namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool((await client.sender.json("POST", path, "", review))["status"]["allowed"])


async def test_no_component_has_administrator_rights(local_server: Any) -> None:
    async with components(local_server.api, local_server.clock, RandomIds(1), 1) as parts:
        clients = parts.clients
        everyone = (
            clients.controller_manager(),
            clients.scheduler(),
            clients.fleet(),
            clients.stages(),
            clients.addons(),
            clients.node("node-1"),
            clients.controller("deployment-controller"),
            clients.controller("generic-garbage-collector"),
            parts.event_reader(),
        )
        for client in everyone:
            user = await whoami(client)
            assert "system:masters" not in user["groups"], user
            assert not await is_allowed(client, "*", "*", group="*"), user
            assert not await is_allowed(client, "create", "clusterrolebindings", group="rbac.authorization.k8s.io"), (
                user
            )
        assert await is_allowed(parts.event_reader(), "watch", "events") and not await is_allowed(
            parts.event_reader(), "list", "pods"
        )
        fleet, node, addons = clients.fleet(), clients.node("node-1"), clients.addons()
        for verb, resource, allowed in (
            ("list", "secrets", True),
            ("watch", "pods", True),
            ("create", "events", True),
            ("create", "nodes", False),
            ("patch", "pods/status", False),
            ("create", "pods", False),
            ("update", "secrets", False),
            ("create", "serviceaccounts/token", False),
            ("list", "serviceaccounts", False),
        ):
            assert await is_allowed(fleet, verb, resource, namespace="default") == allowed, (verb, resource)
        assert (await whoami(node))["groups"] == ["system:nodes", "system:authenticated"]
        assert await is_allowed(node, "get", "nodes", "node-1") and not await is_allowed(node, "get", "nodes", "node-2")
        assert not await is_allowed(node, "list", "secrets", namespace="default")
        assert await is_allowed(addons, "create", "storageclasses", group="storage.k8s.io")
        assert not await is_allowed(addons, "patch", "namespaces", "default")


@pytest.mark.parametrize(
    ("user", "groups", "becomes"),
    [
        ("system:node-fleet", (), "system:node:n7"),
        ("kubernetes-admin", ("system:masters",), "system:node:n7"),
        ("alice", (), "alice"),
    ],
)
async def test_remote_nodes_impersonate_their_own_users_if_allowed(
    local_server: Any, user: str, groups: tuple[str, ...], becomes: str
) -> None:
    transport = InProcessTransport(local_server.entrance.for_peer(in_process_peer(user, groups)))
    clients = RemoteClients(Access("https://192.0.2.1"), local_server.clock, own_accounts=False)
    clients._client = Client(transport, local_server.clock)
    await clients.impersonate_nodes()
    with pytest.raises(Forbidden, match=f'User "{becomes}" cannot get resource "nodes"'):
        await clients.node("n7").get(builtin("nodes"), "n8")
    assert (await whoami(clients.fleet()))["username"] == user


async def until(client: Client, count: int, not_these: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the names of the Pods when `count` of them run."""
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


async def test_restarted_components_repair_what_happened_while_they_were_stopped(local_server: Any) -> None:
    api, client = local_server.api, local_server.client
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 20, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
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
