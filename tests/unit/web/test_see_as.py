"""A tab acts as another user ("see as"): the server checks the right to it, audits it, and nothing is shared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from audit_harness import RecordingSink, policy
from local_server import LocalServer
from page_harness import ADMIN, PageHarness, TabClient

from setpoint.apiserver.audit.auditor import Auditor
from setpoint.apiserver.audit.policy import read_policy
from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.apiserver.server import ApiServer
from setpoint.client import Client, Impersonation
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.prefixed import PrefixedTransport
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.errors import BadRequest
from setpoint.web.feed import Args, FeedOutput, PageContext
from setpoint.web.sessions import PageUser
from setpoint.web.tab_user import seen_as
from setpoint.wire.message import Response

RBAC = "rbac.authorization.k8s.io"
JANE = "as=jane"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def server(local_server: LocalServer) -> LocalServer:
    """A server on which jane, and the group `dev`, may view and change ConfigMaps in the namespace `default`."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]}
    for kind, more in (
        ("Role", {"rules": [rule]}),
        (
            "RoleBinding",
            {
                "subjects": [{"kind": kind, "apiGroup": RBAC, "name": name} for kind, name in SUBJECTS],
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "maps"},
            },
        ),
    ):
        metadata = {"name": "maps", "namespace": "default"}
        await local_server.client.create({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, **more})
    return local_server


SUBJECTS = (("User", "jane"), ("Group", "dev"))


@asynccontextmanager
async def page_of(entrance: InProcess, clock: Any, **options: Any) -> AsyncIterator[PageHarness]:
    """A page whose sessions act as their own users."""

    def client(who: PageUser, cluster: str) -> Client:
        transport = InProcessTransport(entrance.for_peer(in_process_peer(who.name, who.groups)))
        return Client(PrefixedTransport(transport, cluster) if cluster else transport, clock)

    harness = PageHarness(client, **options)
    yield harness
    await harness.stop()


async def opened(harness: PageHarness, query: str, user: PageUser = ADMIN) -> TabClient:
    tab = await harness.open_tab(await harness.enter(user), query)
    assert (await tab.receive())["type"] == "hello"
    return tab


async def asked(tab: TabClient, method: str, path: str, **fields: Any) -> tuple[int, str]:
    """The status of a request, and its message if it was refused."""
    await tab.send(9, "request", method=method, path=path, **fields)
    found = await tab.receive()
    return found["status"], found["body"].get("message", "")


async def test_requests_have_the_rights_of_the_other_user(server: LocalServer) -> None:
    async with page_of(server.entrance, server.clock) as harness:
        tab = await harness.open_tab(await harness.enter(), JANE)
        hello = await tab.receive()
        assert hello["user"] == "kubernetes-admin", "the session is still that of its own user"
        assert hello["features"] == ["see-as"], "jane may use nothing else"
        assert await asked(tab, "GET", CONFIG_MAPS) == (200, "")
        status, message = await asked(tab, "GET", PODS)
        assert status == 403 and message.startswith('pods is forbidden: User "jane" cannot list resource "pods"')
        assert await asked(tab, "POST", CONFIG_MAPS, body={"metadata": {"name": "hers"}}) == (201, "")
        assert (await asked(tab, "DELETE", f"{CONFIG_MAPS}/hers"))[0] == 403
        assert (await asked(tab, "GET", CONFIG_MAPS, cluster="/at/-1s"))[0] == 403, "the past needs a right, too"

        group = await opened(harness, "as=someone&as-group=qa&as-group=dev")
        assert await asked(group, "GET", CONFIG_MAPS) == (200, "")
        account = await opened(harness, "as=system:serviceaccount:default:default")
        status, message = await asked(account, "GET", CONFIG_MAPS)
        assert status == 403 and 'User "system:serviceaccount:default:default" cannot list' in message
        own = await opened(harness, "")
        assert await asked(own, "GET", PODS) == (200, "")


async def test_the_server_decides_who_may_impersonate(server: LocalServer) -> None:
    """Neither escape from the rights of the session's user, nor a silent return to them."""
    async with page_of(server.entrance, server.clock) as harness:
        for query in (JANE, "as=jane&as-group=system:masters", "as=system:admin", "as=viewer&as-group=dev"):
            tab = await opened(harness, query, PageUser("viewer", ("dev",)))
            status, message = await asked(tab, "GET", CONFIG_MAPS)
            assert status == 403 and 'User "viewer" cannot impersonate-on:user-info:list' in message, message
            await tab.open(1, "events")
            refused = (await tab.receive())["error"]["message"]
            assert 'User "viewer" cannot impersonate' in refused, "a feed says why it is empty"


async def test_a_page_that_impersonates_already_does_not_change_the_user(server: LocalServer) -> None:
    limited = server.client.named("kubeconfig", Impersonation("jane"))
    harness = PageHarness(lambda user, cluster: limited)
    tab = await harness.open_tab(await harness.enter(), "as=system:admin")
    await tab.receive()
    assert await asked(tab, "GET", CONFIG_MAPS) == (
        403,
        "this page acts for another user already, because its kubeconfig says so",
    )
    await harness.stop()


async def test_feeds_are_not_shared_between_users(server: LocalServer) -> None:
    started: list[str] = []

    async def feed(context: PageContext, args: Args, output: FeedOutput) -> None:
        started.append(f"{context.acting_user} for {context.user}")
        found = await context.client.list(("v1", "ConfigMap"), "default")
        output.set("maps", {"count": len(found.items)})
        await context.clock.sleep(1e9)

    async with page_of(server.entrance, server.clock, feeds={"maps": feed}) as harness:
        own, jane, again = [await opened(harness, query) for query in ("", JANE, JANE)]
        other, grouped = [await opened(harness, query) for query in ("as=bob", "as=bob&as-group=dev")]
        for tab in (own, jane, again, other, grouped):
            await tab.open(1, "maps")
        admin = "kubernetes-admin"
        assert started == [f"{admin} for {admin}", f"jane for {admin}", f"bob for {admin}", f"bob for {admin}"]
        assert (await jane.receive())["set"] == (await again.receive())["set"] == (await own.receive())["set"]
        refused = (await other.receive())["error"]
        assert refused["code"] == 403 and 'User "bob" cannot list resource "configmaps"' in refused["message"]
        assert "set" in await grouped.receive()


async def test_impersonation_is_audited_and_recorded(server: LocalServer) -> None:
    sink = RecordingSink()
    auditor = Auditor(read_policy(policy({"level": "Metadata"})), sink, server.clock, server.api.resources.ids)
    api = ApiServer(server.api.resources, replace(server.api.parts, auditor=auditor))
    async with InProcess(api.handle) as entrance, page_of(entrance, server.clock) as harness:
        tab = await opened(harness, "as=jane&as-group=dev")
        sink.drain()
        assert (await asked(tab, "POST", CONFIG_MAPS, body={"metadata": {"name": "hers"}}))[0] == 201
        (event,) = [each for each in sink.drain() if each["stage"] == "ResponseComplete"]
        assert event["user"]["username"] == "kubernetes-admin"
        assert event["impersonatedUser"]["username"] == "jane" and "dev" in event["impersonatedUser"]["groups"]
        assert event["userAgent"].startswith("setpoint-page/") and "(session " in event["userAgent"]
        own = await opened(harness, "")
        await own.send(1, "request", path="/setpoint/v1/why", query="resource=configmaps&namespace=default&name=hers")
        assert "by jane (setpoint-page), impersonated by kubernetes-admin" in (await own.receive())["body"]["sentence"]


@pytest.mark.parametrize(
    "query",
    [
        "as=",
        "as=%20jane",
        "as=jane%0d%0aX-Evil:%201",
        "as=j%C3%A4ne",
        f"as={'x' * 257}",
        "as=jane&as=bob",
        "as-group=dev",
        "as=jane&as-group=",
        "as=jane&" + "&".join(f"as-group=g{number}" for number in range(33)),
        "as=jane&impersonate-user=bob",
        "key=abc",
        "&",
        "as=jane&as-group=" + "x" * 40_000,
    ],
)
async def test_other_names_are_refused(query: str) -> None:
    harness = PageHarness()
    answer = await harness.upgrade(await harness.enter(), query)
    assert isinstance(answer, Response) and answer.status == 400


def test_names_of_the_query() -> None:
    assert seen_as("") is None
    assert seen_as("as=a+b&as-group=c%2Fd&as-group=system%3Amasters") == PageUser("a b", ("c/d", "system:masters"))
    with pytest.raises(BadRequest):
        seen_as("as")


async def test_a_page_may_have_no_other_users() -> None:
    harness = PageHarness(can_see_as=False)
    key = await harness.enter()
    answer = await harness.upgrade(key, JANE)
    assert isinstance(answer, Response) and answer.status == 403
    tab = await harness.open_tab(key)
    assert (await tab.receive())["features"] == []
