"""The conversation `fleet`, with a real API server."""

from __future__ import annotations

import asyncio
import gc
import struct
import zlib
from contextlib import AsyncExitStack
from typing import Any

import pytest
from conversations import TestConversation
from local_server import LocalServer

from setpoint.client import Client, Impersonation
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.feeds import fleet
from setpoint.web.fleet.state import FleetState

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Picture:
    """What a tab knows from the messages that it was sent."""

    def __init__(self, conversation: TestConversation) -> None:
        self.conversation = conversation
        self.nodes: list[list[Any]] = []
        self.layout = 0
        self.values = bytearray()
        self.others: dict[str, Any] = {}
        self._read = 0

    def read(self) -> Picture:
        for message in self.conversation.sent[self._read :]:
            if isinstance(message, bytes):
                self._frame(message)
            elif message["type"] == "layout":
                if message["from"] == 0:
                    self.nodes, self.layout = [], message["layout"]
                self.nodes += message["nodes"]
            elif message["type"] == "nodes":
                for position, *facts in message["nodes"]:
                    self.nodes[position][2:] = facts
            else:
                self.others[message["type"]] = message
        self._read = len(self.conversation.sent)
        return self

    def _frame(self, frame: bytes) -> None:
        if frame[0] == 0:
            _, layout, stride, nodes = struct.unpack_from("<B3xIII", frame)
            assert layout == self.layout and nodes == len(self.nodes)
            self.values = bytearray(zlib.decompress(frame[16:], -15))
            assert len(self.values) == stride * nodes
        else:
            _, layout, count = struct.unpack_from("<B3xII", frame)
            if layout == self.layout:
                for number, index in enumerate(struct.unpack_from(f"<{count}I", frame, 12)):
                    self.values[index] = frame[12 + 4 * count + number]

    def of(self, node: str) -> list[int]:
        """The states of the Pods of a node."""
        position = [each[0] for each in self.nodes].index(node)
        return [each for each in self.values[position * 128 : position * 128 + 128] if each]


async def make_node(client: Client, name: str, zone: str) -> None:
    labels = {"topology.kubernetes.io/zone": zone}
    made = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    made["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    await client.update(made, subresource="status")


async def make_pod(client: Client, name: str, node: str = "", status: dict[str, Any] | None = None) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "namespace": "default"}
    made = await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    if status is not None:
        made["status"] = status
        await client.update(made, subresource="status")


def context(server: LocalServer, client: Client | None = None) -> PageContext:
    return PageContext(client or server.client, server.clock, "", "admin", "s")


async def settled(server: LocalServer, picture: Picture) -> Picture:
    for _ in range(20):
        await asyncio.sleep(0)
        await server.clock.advance(0.1)
    return picture.read()


async def test_shows_all_pods_and_what_changes(local_server: LocalServer) -> None:
    client = local_server.client
    for name, zone in (("n2", "a"), ("n1", "b")):
        await make_node(client, name, zone)
    for number in range(5):
        await make_pod(client, f"p{number}", "n1", READY)
    await make_pod(client, "waits")
    conversation = TestConversation()
    picture = Picture(conversation)
    async with child_tasks(fleet.run(context(local_server), {}, conversation)):
        await settled(local_server, picture)
        assert picture.nodes == [["n2", "a", 1, False, 0], ["n1", "b", 1, False, 0]]
        assert picture.of("n1") == [1] * 5 and picture.of("n2") == []
        assert picture.others["tray"]["pods"] == [["default/waits", ""]]
        assert picture.others["loading"] == {"type": "loading", "pods": 6}
        # Changes.
        await client.patch(("v1", "Pod"), "p3", {"status": {"phase": "Failed"}}, "default", subresource="status")
        await make_pod(client, "p5", "n2")
        await client.delete(("v1", "Pod"), "p4", "default", grace_period=0)
        await settled(local_server, picture)
        assert picture.of("n1") == [1, 1, 1, 3] and picture.of("n2") == [5]
        await client.patch(("v1", "Node"), "n2", {"spec": {"unschedulable": True}})
        await settled(local_server, picture)
        assert picture.nodes[0] == ["n2", "a", 1, True, 0]
        # A node in between.
        await make_node(client, "n0", "a")
        await settled(local_server, picture)
        assert [each[0] for each in picture.nodes] == ["n0", "n2", "n1"] and picture.of("n1") == [1, 1, 1, 3]
        # Answers.
        conversation.say({"locate": "default/p3"})
        await settled(local_server, picture)
        index = picture.others["pod"]["index"]
        assert picture.others["pod"] == {
            "type": "pod",
            "layout": picture.layout,
            "index": index,
            "name": "default/p3",
            "node": "n1",
            "state": 3,
        }
        for place in (index + 50, 10_000_000, -1):
            conversation.say({"pick": place})
            await settled(local_server, picture)
            assert picture.others["pod"]["index"] == place and picture.others["pod"]["name"] is None
        conversation.say({"locate": "default/none"})
        await settled(local_server, picture)
        assert picture.others["pod"]["index"] is None
        conversation.say({"names": [2, 77, "x"]})
        await settled(local_server, picture)
        assert picture.others["names"]["nodes"] == [[2, ["default/p0", "default/p1", "default/p2", "default/p3", None]]]
        conversation.say({"search": "failing"})
        await settled(local_server, picture)
        assert picture.others["found"]["count"] == 1
        assert picture.others["found"]["pods"] == [[index, "default/p3", "n1", 3]]
        assert picture.values[index] == 0x83
        await client.patch(("v1", "Pod"), "p2", {"status": {"phase": "Failed"}}, "default", subresource="status")
        await settled(local_server, picture)
        assert picture.of("n1") == [1, 1, 0x83, 0x83], "what comes to match is selected too"
        conversation.say({"search": ""})
        await settled(local_server, picture)
        assert picture.of("n1") == [1, 1, 3, 3]


async def test_a_small_fleet_is_there_at_once(local_server: LocalServer) -> None:
    """Without an empty layout before it: another one would come half a second later."""
    await make_node(local_server.client, "n1", "a")
    await make_pod(local_server.client, "p", "n1", READY)
    began, conversation = local_server.clock.monotonic(), TestConversation()
    async with asyncio.timeout(10), child_tasks(fleet.run(context(local_server), {}, conversation)):
        await conversation.until(lambda: {"type": "loading", "pods": 1} in conversation.sent)
        picture = Picture(conversation).read()
        assert (picture.layout, picture.of("n1")) == (1, [1])
    assert local_server.clock.monotonic() == began


async def test_no_nodes_and_no_pods(local_server: LocalServer) -> None:
    conversation = TestConversation()
    async with child_tasks(fleet.run(context(local_server), {}, conversation)):
        await conversation.until(lambda: {"type": "loading", "pods": 0} in conversation.sent)
        picture = Picture(conversation).read()
        assert (picture.layout, picture.nodes) == (1, [])


async def test_a_tab_without_credit_gets_the_latest_state(local_server: LocalServer) -> None:
    client = local_server.client
    await make_node(client, "n1", "a")
    await make_pod(client, "p", "n1", READY)
    conversation = TestConversation()
    picture = Picture(conversation)
    async with child_tasks(fleet.run(context(local_server), {}, conversation)):
        await settled(local_server, picture)
        conversation.credit.clear()
        before = len(conversation.sent)
        for phase in ("Failed", "Running"):
            await client.patch(("v1", "Pod"), "p", {"status": {"phase": phase}}, "default", subresource="status")
            await settled(local_server, picture)
        await client.patch(("v1", "Pod"), "p", {"status": {"phase": "Failed"}}, "default", subresource="status")
        await settled(local_server, picture)
        assert len(conversation.sent) == before
        conversation.credit.set()
        await settled(local_server, picture)
        assert picture.of("n1") == [3] and len(conversation.sent) <= before + 2


def watches(server: LocalServer) -> int:
    """The number of open watches of Pods."""
    return server.api.resources.caches["core/pods/"].watch_count


async def test_tabs_share_one_state_and_none_is_left_after_the_last(local_server: LocalServer) -> None:
    client = local_server.client
    await make_node(client, "n1", "a")
    await make_pod(client, "p", "n1", READY)
    assert watches(local_server) == 0
    first, second = Picture(TestConversation()), Picture(TestConversation())
    async with AsyncExitStack() as earlier:
        await earlier.enter_async_context(child_tasks(fleet.run(context(local_server), {}, first.conversation)))
        assert (await settled(local_server, first)).of("n1") == [1]
        async with child_tasks(fleet.run(context(local_server), {}, second.conversation)):
            assert (await settled(local_server, second)).of("n1") == [1]
            assert watches(local_server) == 1
            # Another user does not share it.
            masters = Impersonation(user="ann", groups=("system:masters",))
            ann = context(local_server, client.named("tests", masters))
            async with child_tasks(fleet.run(ann, {}, TestConversation())):
                await settled(local_server, first)
                assert watches(local_server) == 2
            # The second tab goes on where the first one ended.
            await earlier.aclose()
            await client.patch(("v1", "Pod"), "p", {"status": {"phase": "Failed"}}, "default", subresource="status")
            assert (await settled(local_server, second)).of("n1") == [3]
            assert watches(local_server) == 1
    await settled(local_server, second)
    assert watches(local_server) == 0
    gc.collect()  # newer versions of Python keep cancelled tasks in cycles until then
    assert not [each for each in gc.get_objects() if isinstance(each, FleetState)]


async def test_rights_of_the_user_decide(local_server: LocalServer) -> None:
    client = local_server.client
    await make_node(client, "n1", "a")
    await make_pod(client, "p", "n1", READY)
    alice = client.named("tests", Impersonation(user="alice"))
    with pytest.raises(Forbidden, match="cannot list resource"):
        await fleet.run(context(local_server, alice), {}, TestConversation())
    rules = [{"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods"]}]
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": "pods", "namespace": "default"}
    await client.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    role = {"apiGroup": rbac, "kind": "Role", "name": "pods"}
    subjects = [{"apiGroup": rbac, "kind": "User", "name": "alice"}]
    binding = {"metadata": meta, "roleRef": role, "subjects": subjects}
    await client.create({"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", **binding})
    conversation = TestConversation()
    picture = Picture(conversation)
    async with child_tasks(fleet.run(context(local_server, alice), {"namespace": "default"}, conversation)):
        await settled(local_server, picture)
        assert picture.nodes == [["n1", "", 4, False, 0]] and picture.of("n1") == [1]


@pytest.mark.parametrize("said", [{}, {"pick": "x"}, {"search": "x" * 300}, [1], None])
async def test_what_is_not_understood_ends_the_conversation(local_server: LocalServer, said: Any) -> None:
    conversation = TestConversation()
    conversation.say(said)
    with pytest.raises(BadRequest):
        await fleet.run(context(local_server), {}, conversation)
