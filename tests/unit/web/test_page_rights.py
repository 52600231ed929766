"""The page has the rights of its user: the server decides about every request, not the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from local_server import LocalServer
from page_harness import PageHarness, TabClient

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.prefixed import PrefixedTransport
from setpoint.meta.objects import Obj
from setpoint.web.sessions import PageUser

VIEWER = PageUser("viewer", ("students",))
RBAC = "rbac.authorization.k8s.io"
POD: Obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}


@asynccontextmanager
async def tab_of(server: LocalServer, user: PageUser) -> AsyncIterator[tuple[TabClient, list[str]]]:
    """A tab of a user, and the features that it was greeted with."""

    def client(who: PageUser, cluster: str) -> Client:
        transport = InProcessTransport(server.entrance.for_peer(in_process_peer(who.name, who.groups)))
        return Client(PrefixedTransport(transport, cluster) if cluster else transport, server.clock)

    harness = PageHarness(client)
    tab = await harness.open_tab(await harness.enter(user))
    hello = await tab.receive()
    yield tab, hello["features"]
    tab.connection.close()
    await harness.stop()


async def status(tab: TabClient, method: str, path: str, **fields: Any) -> int:
    await tab.send(1, "request", method=method, path=path, **fields)
    found: int = (await tab.receive())["status"]
    return found


@pytest.fixture
async def server(local_server: LocalServer) -> LocalServer:
    """A server on which the group `students` may view the namespace `default`, and look into the past."""
    client = local_server.client
    subject = {"kind": "Group", "apiGroup": RBAC, "name": "students"}
    await client.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "viewer"},
            "rules": [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]}],
        }
    )
    await client.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "viewers", "namespace": "default"},
            "subjects": [subject],
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "viewer"},
        }
    )
    paths = ["/at/*", "/setpoint/v1/history", "/setpoint/v1/why"]
    await client.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "past"},
            "rules": [{"nonResourceURLs": paths, "verbs": ["get"]}],
        }
    )
    await client.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "past"},
            "subjects": [subject],
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "past"},
        }
    )
    for namespace in ("default", "kube-system"):
        secret = {"metadata": {"name": "s", "namespace": namespace}, "stringData": {"password": "secret"}}
        await client.create({"apiVersion": "v1", "kind": "Secret", **secret})
        await client.create({"apiVersion": "v1", "kind": "Pod", **POD}, namespace=namespace)
    return local_server


async def test_a_viewer_reads_but_writes_nothing(server: LocalServer) -> None:
    async with tab_of(server, VIEWER) as (tab, _):
        pods = "/api/v1/namespaces/default/pods"
        assert await status(tab, "GET", pods) == 200
        assert await status(tab, "GET", "/api/v1/namespaces/kube-system/pods") == 403
        for method, path, body in (
            ("POST", pods, {**POD, "metadata": {"name": "mine"}}),
            ("PUT", f"{pods}/p", POD),
            ("PATCH", f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}),
            ("DELETE", f"{pods}/p", None),
            ("DELETE", pods, None),
            ("POST", f"{pods}/p/eviction", {}),
            ("GET", f"{pods}/p/exec", None),
            ("POST", "/setpoint/v1/undo", {}),
            ("POST", "/setpoint/v1/forks", {"name": "x"}),
            ("POST", "/setpoint/v1/page/codes", None),
            ("DELETE", "/setpoint/v1/page/sessions", None),
        ):
            fields = (
                {"body": body, "contentType": "application/merge-patch+json"} if method == "PATCH" else {"body": body}
            )
            assert await status(tab, method, path, **fields) == 403, (method, path)
    assert (await server.client.get(("v1", "Pod"), "p", "default"))["metadata"].get("labels") is None


async def test_secrets_stay_hidden_in_every_form(server: LocalServer) -> None:
    revision = (await server.client.list(("v1", "Secret"))).resource_version
    async with tab_of(server, VIEWER) as (tab, _):
        for namespace in ("default", "kube-system"):
            path = f"/api/v1/namespaces/{namespace}/secrets/s"
            assert await status(tab, "GET", path) == 403
            assert await status(tab, "GET", path, cluster=f"/at/{revision}") == 403
            query = f"resource=secrets&namespace={namespace}&name=s"
            for endpoint in ("/setpoint/v1/history", "/setpoint/v1/why"):
                assert await status(tab, "GET", endpoint, query=query) == 403, endpoint


async def test_the_past_is_closed_with_the_role(server: LocalServer) -> None:
    revision = (await server.client.list(("v1", "Pod"))).resource_version
    async with tab_of(server, VIEWER) as (tab, _):
        path = "/api/v1/namespaces/default/pods"
        assert await status(tab, "GET", path, cluster=f"/at/{revision}") == 200
        await server.client.delete((f"{RBAC}/v1", "RoleBinding"), "viewers", "default")
        assert await status(tab, "GET", path) == 403
        assert await status(tab, "GET", path, cluster=f"/at/{revision}") == 403


async def test_features_are_those_that_the_user_may_use(server: LocalServer) -> None:
    async with tab_of(server, VIEWER) as (_, features):
        assert {"history", "past"} <= set(features) and "forks" not in features
    async with tab_of(server, PageUser("nobody-special")) as (_, features):
        assert features == ["see-as"]
    async with tab_of(server, PageUser("root", ("system:masters",))) as (_, features):
        assert {"why", "history", "past"} <= set(features)
