"""Undo on the page: the tab gets the plan without values of Secrets, and the server sends its requests."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from local_server import LocalServer
from page_harness import ADMIN, PageHarness, TabClient

from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport
from setpoint.client.prefixed import PrefixedTransport
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.web.sessions import PageUser

SECRETS, CONFIGMAPS, NAMESPACES = builtin("secrets"), builtin("configmaps"), builtin("namespaces")
READER = PageUser("reader")
PLAIN = ("hunter2", "correct-horse", "battery-staple")
VALUES = [*PLAIN, *(b64encode(each.encode()).decode() for each in PLAIN)]


class Plan:
    """A conversation about one plan, with everything that the tab received."""

    def __init__(self, tab: TabClient, channel: int) -> None:
        self._tab = tab
        self._channel = channel
        self.received: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        message = await self._tab.receive()
        assert message["id"] == self._channel, message
        self.received.append(message)
        return message

    async def carry_out(self) -> list[str]:
        """Carry the plan out, and return what was refused."""
        await self._tab.send(self._channel, "say", data={"do": "carry out"})
        while "refused" not in (message := await self.next()).get("data", {}):
            assert message["type"] == "message", message
        refused: list[str] = message["data"]["refused"]
        assert (await self.next())["type"] == "end"
        return refused

    def text(self) -> str:
        return json.dumps(self.received)


class Undoing:
    def __init__(self, server: LocalServer, harness: PageHarness, tab: TabClient) -> None:
        self.client = server.client
        self._harness = harness
        self._tab = tab
        self._channel = 0

    async def plan(self, revision: Any, **options: Any) -> tuple[Plan, dict[str, Any]]:
        self._channel += 1
        await self._tab.open(self._channel, "undo", args={"revision": revision, **options})
        plan = Plan(self._tab, self._channel)
        first = await plan.next()
        return plan, first["data"]["plan"] if first["type"] == "message" else first["error"]

    async def versions(self, **args: Any) -> list[dict[str, Any]]:
        self._channel += 1
        await self._tab.open(self._channel, "versions", args=args)
        await self._harness.clock.advance(1)  # updates are coalesced
        found: list[dict[str, Any]] = []
        while not found or found[-1]["type"] != "end":
            found.append(await self._tab.receive())
        return found


@asynccontextmanager
async def undoing(server: LocalServer, user: PageUser = ADMIN) -> AsyncIterator[Undoing]:
    def client(who: PageUser, cluster: str) -> Client:
        transport = InProcessTransport(server.entrance.for_peer(in_process_peer(who.name, who.groups)))
        return Client(PrefixedTransport(transport, cluster) if cluster else transport, server.clock)

    harness = PageHarness(client)
    tab = await harness.open_tab(await harness.enter(user))
    await tab.receive()
    yield Undoing(server, harness, tab)
    tab.connection.close()
    await harness.stop()


def secret(name: str = "s", namespace: str = "default", **values: str) -> Obj:
    meta: Obj = {"name": name, "namespace": namespace}
    applied = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values}
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)}
    return {**applied, "metadata": {**meta, "annotations": annotations}}


def configmap(name: str) -> Obj:
    meta: Obj = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "1"}}


def revision_of(obj: Any) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def newest(client: Client) -> int:
    return int((await client.list(NAMESPACES)).resource_version)


def assert_hidden(text: str) -> None:
    assert [each for each in VALUES if each in text] == []


async def test_values_of_secrets_stay_on_the_server(local_server: LocalServer) -> None:
    """It shows none for a change, a deletion, a namespace that is created anew, and in conflicts. The plan is carried
    out all the same."""
    async with undoing(local_server) as undo:
        client = undo.client
        await client.create(secret(password=PLAIN[0]))
        changed = await client.apply(secret(password=PLAIN[1]), field_manager="test", force=True)
        plan, shown = await undo.plan(revision_of(changed))
        assert [each["action"] for each in shown["steps"]] == ["update"] and not shown["conflicts"]
        assert shown["steps"][0]["request"]["body"] == "***"
        assert await plan.carry_out() == []
        assert_hidden(plan.text())
        back = await client.get(SECRETS, "s", "default")
        assert back["data"] == {"password": b64encode(PLAIN[0].encode()).decode()}

        await client.patch(SECRETS, "s", {"stringData": {"password": PLAIN[2]}}, "default")
        plan, shown = await undo.plan(revision_of(changed))
        assert shown["conflicts"], "the value was changed since"
        assert_hidden(plan.text())

        await client.delete(SECRETS, "s", "default")
        plan, shown = await undo.plan(await newest(client))
        assert [each["action"] for each in shown["steps"]] == ["create"]
        assert await plan.carry_out() == []
        assert_hidden(plan.text())
        back = await client.get(SECRETS, "s", "default")
        assert back["data"] == {"password": b64encode(PLAIN[2].encode()).decode()}


async def test_two_versions_are_compared_without_values(local_server: LocalServer) -> None:
    async with undoing(local_server) as undo:
        client = undo.client
        first = await client.create(secret(password=PLAIN[0], user=PLAIN[2]))
        second = await client.patch(SECRETS, "s", {"stringData": {"password": PLAIN[1]}}, "default")
        args = {"group": "", "version": "v1", "resource": "secrets", "namespace": "default", "name": "s"}
        received = await undo.versions(**args, **{"from": revision_of(first), "to": revision_of(second)})
        assert_hidden(json.dumps(received))
        items = {key: item for message in received for key, item in message.get("set", {}).items()}
        before, after = items["from"]["object"]["data"], items["to"]["object"]["data"]
        assert before["user"] == after["user"] and before["password"] != after["password"]

        made = await client.create(configmap("c"))
        args |= {"resource": "configmaps", "name": "c"}
        received = await undo.versions(**args, **{"from": revision_of(made), "to": revision_of(made)})
        assert received[0]["set"]["from"]["object"]["data"] == {"a": "1"}
        received = await undo.versions(**args, **{"from": revision_of(first), "to": revision_of(made)})
        assert received[-1]["error"]["reason"] == "NotFound"


async def test_an_undo_is_recorded_as_one(local_server: LocalServer) -> None:
    async with undoing(local_server) as undo:
        client = undo.client
        await client.create(configmap("x"))
        changed = revision_of(await client.patch(CONFIGMAPS, "x", {"data": {"a": "2"}}, "default"))
        plan, _ = await undo.plan(changed)
        assert await plan.carry_out() == []
        query = "resource=configmaps&namespace=default&name=x"
        assert f"undo of {changed}" in (await client.sender.json("GET", "/setpoint/v1/why", query))["sentence"]
        (entry, *_) = (await client.sender.json("GET", "/setpoint/v1/history", query))["changes"]
        assert entry["cause"]["reason"] == f"undo of {changed}" and "reconcile" not in entry["cause"], entry
        await client.patch(CONFIGMAPS, "x", {"data": {"a": "3"}}, "default")
        sentence = (await client.sender.json("GET", "/setpoint/v1/why", query))["sentence"]
        assert "undo" not in sentence, "the reason belongs to one request"


async def test_a_plan_has_the_rights_of_its_user(local_server: LocalServer) -> None:
    client = local_server.client
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]},
        {"nonResourceURLs": ["/setpoint/v1/*", "/at/*"], "verbs": ["*"]},
    ]
    meta: Obj = {"name": "reader"}
    await client.create({"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules})
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "reader"}
    subjects = [{"kind": "User", "name": "reader", "apiGroup": group}]
    await client.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": subjects,
        }
    )
    await client.create(secret(password=PLAIN[0]))
    changed = await client.patch(SECRETS, "s", {"stringData": {"password": PLAIN[1]}}, "default")
    async with undoing(local_server, READER) as undo:
        plan, _ = await undo.plan(revision_of(changed))
        (refused,) = await plan.carry_out()
        assert refused.startswith("secret/s (default): ") and "cannot patch" in refused
        assert_hidden(plan.text())
    assert (await client.get(SECRETS, "s", "default"))["data"] == changed["data"]


async def test_a_plan_with_conflicts_is_not_carried_out(local_server: LocalServer) -> None:
    async with undoing(local_server) as undo:
        client = undo.client
        await client.create(configmap("x"))
        changed = revision_of(await client.patch(CONFIGMAPS, "x", {"data": {"a": "2"}}, "default"))
        await client.patch(CONFIGMAPS, "x", {"data": {"a": "3"}}, "default")
        plan, shown = await undo.plan(changed)
        assert shown["conflicts"][0]["solvedBy"] == "force"
        await plan._tab.send(plan._channel, "say", data={"do": "carry out"})
        assert (await plan.next())["error"]["reason"] == "Conflict"
        plan, _ = await undo.plan(changed, force=True)
        assert await plan.carry_out() == []
        assert (await client.get(CONFIGMAPS, "x", "default"))["data"] == {"a": "1"}


@pytest.mark.parametrize(
    "args",
    [{}, {"revision": 0}, {"revision": True}, {"revision": "5;r=x"}, {"revision": 2**63}, {"revision": 5, "force": 1}],
)
async def test_invalid_arguments_are_refused(local_server: LocalServer, args: dict[str, Any]) -> None:
    async with undoing(local_server) as undo:
        await undo._tab.open(1, "undo", args=args)
        assert (await undo._tab.receive())["error"]["reason"] == "BadRequest"


async def test_only_one_thing_can_be_said_to_a_plan(local_server: LocalServer) -> None:
    """The tab cannot change the plan: it names the revision and says yes."""
    async with undoing(local_server) as undo:
        client = undo.client
        made = await client.create(configmap("x"))
        plan, shown = await undo.plan(revision_of(made))
        await plan._tab.send(plan._channel, "say", data={"do": "carry out", "plan": shown})
        assert (await plan.next())["error"]["reason"] == "BadRequest"
        assert await client.get(CONFIGMAPS, "x", "default")
