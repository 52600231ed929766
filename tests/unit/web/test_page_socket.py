"""The WebSocket of a tab: channels, credit, conversations, requests, limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest
from local_server import LocalServer
from page_harness import ADMIN, PageHarness, TabClient
from stopped_clock import StoppedClock, settle

from setpoint.client import Client
from setpoint.client.prefixed import PrefixedTransport
from setpoint.meta.errors import BadRequest, Forbidden
from setpoint.web.feed import Args, Conversation, FeedOutput, PageContext, text_argument
from setpoint.web.sessions import MAX_TABS, PageUser
from setpoint.web.tab_user import TabUser
from setpoint.wire.message import Response
from setpoint.wire.websocket import encode_frame


class Feed:
    """A feed whose content the test decides."""

    def __init__(self) -> None:
        self.outputs: list[FeedOutput] = []
        self.contexts: list[PageContext] = []
        self.running = 0

    @property
    def output(self) -> FeedOutput:
        return self.outputs[-1]

    async def __call__(self, context: PageContext, args: Args, output: FeedOutput) -> None:
        text_argument(args, "kind", "")
        self.outputs.append(output)
        self.contexts.append(context)
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1


async def echo(context: PageContext, args: Args, conversation: Conversation) -> None:
    while (data := await conversation.receive()) != "end":
        if data == "bytes":
            await conversation.send_bytes(b"\x00\xff")
        elif data == "fail":
            raise ValueError("the conversation is broken")
        elif data == "refuse":
            raise Forbidden("not for you")
        else:
            await conversation.send({"heard": data, "session": context.session})


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
async def harness(feed: Feed) -> AsyncIterator[PageHarness]:
    found = PageHarness(feeds={"test": feed}, conversations={"echo": echo})
    yield found
    await found.stop()


async def test_a_tab_is_greeted(harness: PageHarness) -> None:
    tab = await harness.open_tab(await harness.enter())
    hello = await tab.receive()
    assert (hello["id"], hello["type"], hello["user"]) == (0, "hello", "kubernetes-admin")
    assert {"test", "echo"} <= set(hello["feeds"]) and hello["features"] == ["see-as"]


async def test_a_feed_sends_its_state_and_then_differences(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(7, "test")
        feed.output.set("a", {"n": 1})
        feed.output.set("b", {"n": 1})
        feed.output.log({"at": 1})
        feed.output.synced()
        assert await tab.receive() == {
            "id": 7,
            "type": "update",
            "set": {"a": {"n": 1}, "b": {"n": 1}},
            "removed": [],
            "log": [{"at": 1}],
            "skipped": 0,
            "synced": True,
        }
        await harness.clock.advance(1)
        feed.output.set("b", {"n": 2})
        feed.output.remove("a")
        update = await tab.receive()
        assert (update["set"], update["removed"], update["log"]) == ({"b": {"n": 2}}, ["a"], [])


async def test_changes_within_an_interval_are_sent_once(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "test")
        feed.output.set("a", {"n": 0})
        assert (await tab.receive())["set"] == {"a": {"n": 0}}
        for number in range(1, 100):
            feed.output.set("a", {"n": number})
            await settle()
        assert await tab.is_silent()
        await harness.clock.advance(0.1)
        assert (await tab.receive())["set"] == {"a": {"n": 99}}
        assert await tab.is_silent()


async def test_an_item_that_stays_the_same_is_not_sent(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "test")
        feed.output.set("a", {"n": 0})
        await tab.receive()
        await harness.clock.advance(1)
        feed.output.set("a", {"n": 0})
        await harness.clock.advance(1)
        assert await tab.is_silent()


async def test_tabs_of_a_user_share_a_run_until_the_last_leaves(harness: PageHarness, feed: Feed) -> None:
    """Also tabs of different sessions; the order of arguments does not matter."""
    one, other = await harness.enter(), await harness.enter()
    async with harness.tab(one) as first:
        await first.open(1, "test", args={"kind": "x", "more": 1})
        feed.output.set("a", {"n": 1})
        await first.receive()
        async with harness.tab(other) as second:
            await second.open(9, "test", args={"more": 1, "kind": "x"})
            assert (await second.receive())["set"] == {"a": {"n": 1}}, "it joins with the present state"
            assert feed.running == 1 and feed.contexts[0].session == ""
            await second.open(10, "test", args={"kind": "y"})
            assert feed.running == 2
            await first.send(1, "close")
            assert feed.running == 2
            feed.outputs[0].set("b", {})
            await harness.clock.advance(1)
            assert (await second.receive())["set"] == {"b": {}}
        assert feed.running == 0
        await first.open(2, "test", args={"kind": "x", "more": 1})
        assert feed.running == 1
    assert feed.running == 0 and len(harness.page.feeds) == 0


async def test_users_and_clusters_do_not_share(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab, harness.tab(await harness.enter(PageUser("viewer"))) as other:
        await tab.open(1, "test")
        await other.open(1, "test")
        await tab.open(2, "test", cluster="/forks/x")
        await tab.open(3, "test", cluster="/at/12")
        assert [(each.user, each.cluster) for each in feed.contexts] == [
            ("kubernetes-admin", ""),
            ("viewer", ""),
            ("kubernetes-admin", "/forks/x"),
            ("kubernetes-admin", "/at/12"),
        ]


async def test_without_credit_nothing_is_sent_and_then_the_latest(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "test", credit=0)
        for number in range(3_000):
            feed.output.set(f"k{number % 3}", {"n": number})
            feed.output.log({"n": number})
        feed.output.synced()
        await harness.clock.advance(5)
        assert await tab.is_silent()
        await tab.send(1, "credit", n=1)
        update = await tab.receive()
        assert update["set"] == {"k0": {"n": 2997}, "k1": {"n": 2998}, "k2": {"n": 2999}}
        assert update["skipped"] == 1_000 and len(update["log"]) == 2_000 and update["log"][-1] == {"n": 2999}
        assert update["synced"] is True
        feed.output.set("k0", {"n": -1})
        await harness.clock.advance(5)
        assert await tab.is_silent(), "the credit is spent"


async def test_a_slow_tab_costs_bounded_memory(harness: PageHarness, feed: Feed) -> None:
    """Items that come and go while a tab has no credit leave nothing behind."""
    async with harness.tab() as tab:
        await tab.open(1, "test", credit=1)
        feed.output.set("stays", {})
        await tab.receive()
        (subscription,) = feed.output.subscriptions  # type: ignore[attr-defined]
        for number in range(10_000):
            feed.output.set(f"pod-{number}", {"n": number})
            feed.output.remove(f"pod-{number}")
        assert len(subscription._dirty) == 0 and len(subscription._sent) == 1
        feed.output.remove("stays")
        feed.output.set("stays", {"n": 2})
        feed.output.remove("stays")
        assert len(subscription._dirty) == 1
        await harness.clock.advance(1)
        await tab.send(1, "credit", n=5)
        update = await tab.receive()
        assert (update["set"], update["removed"]) == ({}, ["stays"])


async def test_a_tab_that_does_not_read_holds_little(harness: PageHarness, feed: Feed) -> None:
    """With credit, but a slow connection: at most a few updates wait in its buffer."""
    async with harness.tab() as tab:
        await tab.open(1, "test", credit=10_000)
        largest = 0
        for number in range(200):
            for key in range(50):
                feed.output.set(f"k{key}", {"n": number, "text": "x" * 2_000})
            await harness.clock.advance(0.03)
            largest = max(largest, len(tab.connection._received))
        assert largest < 1024 * 1024
        received: dict[str, Any] = {}
        while not await tab.is_silent():
            received |= (await tab.receive())["set"]
            await harness.clock.advance(0.03)
        assert {item["n"] for item in received.values()} == {199}, "it catches up with the latest state"


async def test_a_large_state_is_sent_in_parts(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "test", credit=2)
        for number in range(1_000):
            feed.output.set(f"k{number}", {"text": "x" * 1_000})
        feed.output.synced()
        await harness.clock.advance(1)
        found: dict[str, Any] = {}
        for _ in range(2):
            update = await tab.receive()
            found |= update["set"]
            assert update["synced"] is False and len(json.dumps(update)) < 300_000
        assert await tab.is_silent()
        await tab.send(1, "credit", n=100)
        await harness.clock.advance(1)
        while not update["synced"]:
            update = await tab.receive()
            found |= update["set"]
        assert len(found) == 1_000


async def test_what_is_on_its_way_to_a_tab_has_the_size_that_it_grants(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "test", credit=0)
        for number in range(100):
            feed.output.set(f"k{number}", {"text": "x" * 1_000})
        feed.output.synced()
        await tab.send(1, "credit", n=64, bytes=8_192)
        await harness.clock.advance(1)
        first = await tab.receive()
        size = len(orjson.dumps(first))
        assert 8_192 <= size < 8_192 + 1_200 and await tab.is_silent()
        feed.output.set("k99", {"text": "new"})  # while the tab receives the first part
        found, parts = {**first["set"]}, 1
        while len(found) < 100:
            await tab.send(1, "credit", n=1, bytes=size)
            update = await tab.receive()  # at once, not with the next pass
            size = len(orjson.dumps(update))
            found |= update["set"]
            parts += 1
        assert parts > 10 and update["synced"] is True and found["k99"] == {"text": "new"}

        await tab.open(2, "echo", credit=0)
        await tab.send(2, "credit", n=64, bytes=10)
        for text in ("first", "second"):
            await tab.send(2, "say", data=text)
        assert (await tab.receive())["data"]["heard"] == "first"
        assert await tab.is_silent()
        await tab.send(2, "credit", n=1, bytes=200)
        assert (await tab.receive())["data"]["heard"] == "second"


async def test_a_busy_item_does_not_keep_others_back(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "test", credit=0)
        feed.output.set("busy", {"text": "x" * 300_000})
        feed.output.set("quiet", {})
        feed.output.set("busy", {"text": "y" * 300_000})
        await tab.send(1, "credit", n=1)
        assert "quiet" in (await tab.receive())["set"]


async def test_a_feed_ends_with_its_error(harness: PageHarness) -> None:
    async def refuses(context: PageContext, args: Args, output: FeedOutput) -> None:
        raise BadRequest("argument kind is missing")

    async def fails(context: PageContext, args: Args, output: FeedOutput) -> None:
        output.set("a", {})
        raise RuntimeError("a bug")

    async def ends(context: PageContext, args: Args, output: FeedOutput) -> None:
        output.set("a", {"n": 1})
        output.synced()

    more = PageHarness(feeds={"refuses": refuses, "fails": fails, "ends": ends})
    async with more.tab() as tab:
        await tab.open(1, "refuses")
        end = await tab.receive()
        assert (end["type"], end["error"]["code"], end["error"]["message"]) == ("end", 400, "argument kind is missing")
        await more.clock.advance(1)
        await tab.open(2, "fails")
        assert (await tab.receive())["set"] == {"a": {}}
        assert (await tab.receive())["error"]["code"] == 500
        await more.clock.advance(1)
        await tab.open(3, "ends")
        assert (await tab.receive())["synced"] is True
        assert await tab.receive() == {"id": 3, "type": "end"}
        await more.clock.advance(1)
        await tab.open(3, "ends")
        assert (await tab.receive())["set"] == {"a": {"n": 1}}, "it runs again, and the id may be used again"
    await more.stop()


async def test_unknown_feeds_and_bad_arguments_end_the_channel_alone(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        for fields, code in (
            ({"feed": "nothing"}, 404),
            ({"feed": 7}, 400),
            ({"feed": "test", "args": []}, 400),
            ({"feed": "test", "args": {"kind": "x" * 20_000}}, 400),
            ({"feed": "test", "cluster": "/at/../x"}, 400),
            ({"feed": "test", "cluster": "/forks/a/forks/b"}, 400),
            ({"feed": "test", "cluster": "/api/v1"}, 400),
            ({"feed": "test", "cluster": None}, 400),
        ):
            await tab.send(1, "open", **fields)
            end = await tab.receive()
            assert (end["id"], end["type"], end["error"]["code"]) == (1, "end", code), fields
        await tab.open(1, "test")
        assert feed.running == 1


async def test_a_conversation_goes_both_ways(harness: PageHarness) -> None:
    async with harness.tab() as tab:
        await tab.open(5, "echo", credit=2)
        await tab.send(5, "say", data={"line": "ls"})
        message = await tab.receive()
        assert (message["id"], message["type"], message["data"]["heard"]) == (5, "message", {"line": "ls"})
        assert len(message["data"]["session"]) == 8
        await tab.send(5, "say", data="bytes")
        assert await tab.receive_bytes() == b"\x00\x00\x00\x05\x00\xff"
        await tab.send(5, "say", data="waits")
        assert await tab.is_silent(), "there is no credit"
        await tab.send(5, "credit", n=1)
        assert (await tab.receive())["data"]["heard"] == "waits"
        await tab.send(5, "say", data="end")
        assert await tab.receive() == {"id": 5, "type": "end"}
        await tab.send(5, "say", data="late")
        await tab.send(5, "credit", n=1)
        await tab.send(5, "close")
        assert await tab.is_silent(), "messages to a channel that has ended are ignored"


async def test_a_failed_conversation_ends_alone(harness: PageHarness, caplog: pytest.LogCaptureFixture) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "echo")
        await tab.open(2, "echo")
        await tab.send(1, "say", data="fail")
        assert (await tab.receive())["error"]["code"] == 500
        await tab.send(2, "say", data="refuse")
        assert (await tab.receive())["error"]["message"] == "not for you"
        await tab.open(1, "echo")
        await tab.send(1, "say", data="x")
        assert (await tab.receive())["data"]["heard"] == "x"


async def test_a_conversation_is_cancelled_when_it_is_closed(harness: PageHarness) -> None:
    ended = []

    async def waits(context: PageContext, args: Args, conversation: Conversation) -> None:
        try:
            await conversation.receive()
        finally:
            ended.append("cancelled")

    more = PageHarness(conversations={"waits": waits})
    async with more.tab() as tab:
        await tab.open(1, "waits")
        await tab.send(1, "close")
        assert ended == ["cancelled"]
        await tab.open(1, "waits")
    assert ended == ["cancelled"] * 2
    await more.stop()


async def test_a_conversation_that_does_not_read_is_ended(harness: PageHarness) -> None:
    async def deaf(context: PageContext, args: Args, conversation: Conversation) -> None:
        await asyncio.Event().wait()

    more = PageHarness(conversations={"deaf": deaf})
    async with more.tab() as tab:
        await tab.open(1, "deaf")
        for _ in range(257):
            tab.socket.send(b'{"id":1,"op":"say","data":1}', text=True)
        await more.advance(10)
        assert (await tab.receive())["error"]["code"] == 429
    await more.stop()


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"id":1}',
        b'{"op":"open"}',
        b'{"id":"1","op":"open"}',
        b'{"id":0,"op":"open"}',
        b'{"id":-1,"op":"open"}',
        b'{"id":4294967296,"op":"open"}',
        b'{"id":true,"op":"open"}',
        b'{"id":1.5,"op":"open"}',
        b'{"id":1,"op":"explode"}',
        b'{"id":1,"op":["open"]}',
        b'{"id":1,"op":"credit"}',
        b'{"id":1,"op":"credit","n":0}',
        b'{"id":1,"op":"credit","n":100000}',
        b'{"id":1,"op":"credit","n":"many"}',
        b'{"id":1,"op":"credit","n":1,"bytes":0}',
        b'{"id":1,"op":"credit","n":1,"bytes":1.5}',
        b'{"id":1,"op":"credit","n":1,"bytes":99999999999}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_invalid_messages_close_the_tab(harness: PageHarness, message: bytes) -> None:
    tab = await harness.open_tab(await harness.enter())
    tab.socket.send(message, text=True)
    assert await tab.close_code() == 1008


async def test_an_id_is_used_once_at_a_time(harness: PageHarness) -> None:
    tab = await harness.open_tab(await harness.enter())
    await tab.open(1, "test")
    await tab.open(1, "test", credit=0)
    assert await tab.close_code() == 1008


async def test_binary_messages_close_the_tab(harness: PageHarness) -> None:
    tab = await harness.open_tab(await harness.enter())
    tab.socket.send(b'{"id":1,"op":"open"}')
    assert await tab.close_code() == 1003


async def test_messages_over_a_mebibyte_close_the_tab(harness: PageHarness) -> None:
    tab = await harness.open_tab(await harness.enter())
    tab.socket.send(b" " * (1024 * 1024 + 1), text=True)
    assert await tab.close_code() == 1009


async def test_many_fragments_do_not_hold_the_loop(harness: PageHarness) -> None:
    """A message of very many frames, and pings: other tasks run in between."""
    tab = await harness.open_tab(await harness.enter())
    ping = encode_frame(9, b"", bytes(4))
    tab.connection.write(ping * 20_000)
    turns = 0
    while tab.connection.other._received or turns < 10:
        await asyncio.sleep(0)
        turns += 1
    tab.connection.close()
    assert turns >= 10


async def test_a_tab_has_64_channels(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        for number in range(1, 65):
            await tab.open(number, "test" if number % 2 else "echo", credit=0, args={"kind": str(number)})
        await tab.open(65, "test", credit=0)
        assert (await tab.receive())["error"]["code"] == 429
        assert feed.running == 32
        await tab.send(1, "close")
        await tab.open(65, "test", credit=0)
        assert feed.running == 32


async def test_ten_thousand_channels_cost_no_more_than_64(harness: PageHarness, feed: Feed) -> None:
    async with harness.tab() as tab:
        for first in range(1, 10_001, 1_000):
            for number in range(first, first + 1_000):
                tab.send_at_once(number, "open", feed="test", args={"kind": str(number)})
            await harness.advance(5)
            for _ in range(1_000 - (64 if first == 1 else 0)):
                assert (await tab.receive())["error"]["code"] == 429
        assert feed.running == 64


async def test_a_tab_that_does_not_read_its_answers_is_not_read(harness: PageHarness) -> None:
    async with harness.tab() as tab:
        for number in range(1, 5_001):
            tab.send_at_once(number, "open", feed="nothing")
        await harness.advance(29)
        assert 200_000 < len(tab.connection._received) < 400_000


async def test_a_session_has_16_tabs(harness: PageHarness) -> None:
    key = await harness.enter()
    tabs = [await harness.open_tab(key) for _ in range(MAX_TABS)]
    refused = await harness.upgrade(key)
    assert isinstance(refused, Response) and refused.status == 429
    tabs[0].connection.close()
    await settle()
    await harness.open_tab(key)


async def test_a_flood_of_messages_is_slowed_down(harness: PageHarness) -> None:
    async with harness.tab() as tab:
        await tab.open(1, "echo", credit=10_000)
        for _ in range(600):
            tab.socket.send(b'{"id":9,"op":"close"}', text=True)
        tab.socket.send(b'{"id":1,"op":"say","data":"last"}', text=True)
        await harness.advance(1)
        assert await tab.is_silent()
        await harness.advance(1.1)
        assert (await tab.receive())["data"]["heard"] == "last"


async def test_the_tabs_of_a_session_send_a_limited_amount(harness: PageHarness) -> None:
    key = await harness.enter()
    async with harness.tab(key) as tab, harness.tab(key) as neighbour, harness.tab() as other:
        for one in (tab, neighbour, other):
            await one.open(1, "echo")
        for _ in range(20):
            tab.send_at_once(9, "close", more="x" * 1_000_000)
        tab.send_at_once(1, "say", data="last")
        await harness.advance(0.5)
        assert await tab.is_silent()
        await other.send(1, "say", data="x" * 100_000)
        assert (await other.receive())["type"] == "message"
        neighbour.send_at_once(1, "say", data="small")
        await harness.advance(0)
        assert (await neighbour.receive())["data"]["heard"] == "small"
        await harness.advance(1)
        assert (await tab.receive())["data"]["heard"] == "last"


# -- the end of a session ----------------------------------------------------------------------------------------------


async def test_revocation_puts_tabs_out_at_once(harness: PageHarness, feed: Feed) -> None:
    key = await harness.enter()
    tab = await harness.open_tab(key)
    await tab.open(1, "test")
    assert harness.sessions.revoke() == 1
    await settle()
    assert await tab.close_code() == 4401
    assert feed.running == 0
    refused = await harness.upgrade(key)
    assert isinstance(refused, Response) and refused.status == 401


async def test_a_tab_keeps_its_session_in_use_for_a_week(harness: PageHarness) -> None:
    tab = await harness.open_tab(await harness.enter())
    (session,) = harness.sessions._current()
    session.created -= timedelta(days=6, hours=11)

    async def answer_pings() -> None:
        while await tab.connection.read():
            tab.connection.write(encode_frame(10, b"", bytes(4)))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answer_pings())
        await harness.clock.advance(12.5 * 3600)
        assert session.tabs and not harness.sessions.is_over(session), "it was used all the time"
        await harness.clock.advance(0.6 * 3600)
        assert not session.tabs and harness.sessions.is_over(session)


async def test_a_silent_connection_is_closed(harness: PageHarness, feed: Feed) -> None:
    """Its machine was suspended, or the network between is gone: it does not answer pings."""
    tab = await harness.open_tab(await harness.enter())
    await tab.open(1, "test", credit=0)
    await harness.clock.advance(89)
    assert feed.running == 1
    await harness.clock.advance(60)
    assert feed.running == 0
    assert await tab.close_code() == 1001


# -- requests ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def real_tab(server: LocalServer, **options: Any) -> AsyncIterator[tuple[PageHarness, TabClient]]:
    def client(user: PageUser, cluster: str) -> Client:
        transport = server.client.sender.transport
        return Client(PrefixedTransport(transport, cluster) if cluster else transport, server.clock)

    harness = PageHarness(client, **options)
    tab = await harness.open_tab(await harness.enter(ADMIN))
    hello = await tab.receive()
    assert {"why", "history", "past"} <= set(hello["features"])
    yield harness, tab
    tab.connection.close()
    await harness.stop()


async def answered(tab: TabClient, **fields: Any) -> dict[str, Any]:
    await tab.send(9, "request", **fields)
    found = await tab.receive()
    assert (found["id"], found["type"]) == (9, "response")
    return found


async def test_requests_are_answered_by_the_server(local_server: LocalServer) -> None:
    async with real_tab(local_server) as (_, tab):
        found = await answered(tab, method="GET", path="/api/v1/namespaces", query="limit=1")
        assert found["status"] == 200 and found["body"]["kind"] == "NamespaceList"
        assert found["headers"]["content-type"] == "application/json"
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"old": "1"}}
        found = await answered(tab, method="POST", path="/api/v1/namespaces/default/configmaps", body=made)
        assert found["status"] == 201
        (manager,) = found["body"]["metadata"]["managedFields"]
        assert manager["manager"] == "setpoint-page"
        revision = found["body"]["metadata"]["resourceVersion"]
        patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\n"
        found = await answered(
            tab,
            method="PATCH",
            path="/api/v1/namespaces/default/configmaps/x",
            query="fieldManager=page",
            body=patch,
            contentType="application/apply-patch+yaml",
        )
        assert found["body"]["data"] == {"a": "b", "old": "1"}
        found = await answered(tab, path="/api/v1/namespaces/default/configmaps/x", cluster=f"/at/{revision}")
        assert found["body"]["data"] == {"old": "1"} and found["headers"]["setpoint-at"].startswith(revision)
        found = await answered(tab, method="DELETE", path="/api/v1/namespaces/default/configmaps/missing")
        assert (found["status"], found["body"]["reason"]) == (404, "NotFound")
        found = await answered(tab, path="/healthz", accept="*/*")
        assert found["body"] == "ok"


@pytest.mark.parametrize(
    "fields",
    [
        {"method": "CONNECT", "path": "/"},
        {"method": "get", "path": "/"},
        {"method": ["GET"], "path": "/"},
        {"path": "api"},
        {"path": ""},
        {"path": "/api\r\nX: y"},
        {"path": "/api v1"},
        {"path": "/é"},
        {"path": 7},
        {"path": "/api", "query": "a=b\r\nX: y"},
        {"path": "/api", "accept": "a\r\nb"},
        {"path": "/api", "contentType": "a\nb", "body": {}},
        {"path": "/api", "cluster": "/x"},
        {"path": "/api/v1/pods", "query": "watch=true"},
        {"path": "/api/v1/pods", "query": "limit=1&watch=1"},
        {"path": "/api/v1/namespaces/default/pods/x/log", "query": "follow=true"},
    ],
)
async def test_invalid_requests_are_refused(local_server: LocalServer, fields: dict[str, Any]) -> None:
    async with real_tab(local_server) as (_, tab):
        found = await answered(tab, **fields)
        assert (found["status"], found["body"]["reason"]) == (400, "BadRequest")


async def test_a_proxied_answer_cannot_forge_messages() -> None:
    """A Pod behind a proxy may send anything as JSON; it stays within the body."""
    from setpoint.web.tab_channels import _decoded

    body = b'1},"id":7,"type":"end","x":{'
    assert _decoded(body, {"content-type": "application/json"}) == body.decode()
    assert _decoded(b"[1", {"content-type": "application/json; charset=utf-8"}) == "[1"


async def test_large_answers_are_refused(local_server: LocalServer) -> None:
    for number in range(5):
        await local_server.client.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"c{number}", "namespace": "default"},
                "data": {"x": "x" * 1_000_000},
            }
        )
    async with real_tab(local_server) as (_, tab):
        found = await answered(tab, path="/api/v1/configmaps")
        assert found["status"] == 413 and "ask for a part" in found["body"]["message"]


async def test_requests_are_bounded_and_can_be_cancelled() -> None:
    """More than 64 requests that wait are refused; a closed one frees its place."""
    started: list[str] = []

    class Transport:
        async def stream(self, method: str, path: str, query: str, headers: Any, body: bytes) -> Any:
            started.append(path)
            await asyncio.Event().wait()

    clock = StoppedClock()
    harness = PageHarness(lambda user, cluster: Client(Transport(), clock))  # type: ignore[arg-type]
    harness.page._server_features = _nothing  # type: ignore[method-assign]
    async with harness.tab() as tab:
        for number in range(1, 65):
            await tab.send(number, "request", path=f"/{number}")
        assert len(started) == 8, "eight are sent at once"
        await tab.send(65, "request", path="/65")
        refused = await tab.receive()
        assert (refused["id"], refused["status"]) == (65, 429)
        await tab.send(1, "close")
        assert len(started) == 9
        await tab.send(65, "request", path="/65")
        assert await tab.is_silent()
        await harness.clock.advance(61)
        found = [await tab.receive() for _ in range(8)]
        assert {each["status"] for each in found} == {504}
    await harness.stop()


async def _nothing(user: TabUser) -> list[str]:
    return []
