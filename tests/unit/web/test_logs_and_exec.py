"""The conversations `logs` and `exec` of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conversations import TestConversation

from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.tasks import child_tasks
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.feed import PageContext
from setpoint.web.feeds import exec as exec_feed
from setpoint.web.feeds import logs


def pod(name: str, *scripts: str, **spec: Any) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "image": "busybox", "command": ["sh", "-c", script]}
        for number, script in enumerate(scripts)
    ]
    meta = {"name": name, "namespace": "default", "labels": {"app": "web"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


@asynccontextmanager
async def running(cluster: VirtualCluster, feed: Any, **args: Any) -> AsyncIterator[tuple[TestConversation, Any]]:
    conversation = TestConversation()
    context = PageContext(cluster.client, cluster.clock, "", "admin", "s")
    async with child_tasks(feed.run(context, {"namespace": "default", **args}, conversation)) as (task,):
        yield conversation, task


def lines(conversation: TestConversation) -> list[str]:
    return [text for each in conversation.sent for _, text in each.get("lines", ())]


@virtual(nodes=1)
async def test_the_logs_of_a_pod(cluster: VirtualCluster) -> None:
    bad = "printf 'a\\033]52;c;eA==\\007\\033[31mred\\033[0m\\n'; seq 3; sleep 1d"
    await cluster.client.create(pod("web", bad, "echo second; sleep 1d"))
    await cluster.sleep(5)
    async with running(cluster, logs, pod="web", container="c0", tail=3) as (conversation, task):
        await task
    assert conversation.sent[0] == {"sources": [{"pod": "web", "container": "c0"}]}
    assert lines(conversation) == ["1", "2", "3"]
    assert conversation.sent[-1] == {"ended": 0, "message": ""}
    async with running(cluster, logs, pod="web") as (conversation, task):
        await task
    assert sorted(lines(conversation)) == ["1", "2", "3", "a\x1b[31mred\x1b[0m", "second"]
    async with running(cluster, logs, pod="web", previous=True) as (conversation, task):
        await task
    assert "previous terminated container" in conversation.sent[-1]["message"]


@virtual(nodes=1)
async def test_followed_logs_go_on_after_a_restart_and_with_further_pods(cluster: VirtualCluster) -> None:
    await cluster.client.create(pod("web", "echo begin; sleep 5; echo end; exit 1"))
    async with running(cluster, logs, selector="app=web", follow=True) as (conversation, task):
        await cluster.sleep(4)
        assert lines(conversation) == ["begin"]
        await cluster.client.create(pod("other", "echo hello; sleep 1d"))
        await cluster.sleep(60)
        assert lines(conversation).count("begin") > 1 and "hello" in lines(conversation)
        sources = [each for message in conversation.sent for each in message.get("sources", ())]
        assert [each["pod"] for each in sources] == ["web", "other"]
        await cluster.client.delete(("v1", "Pod"), "other", "default", grace_period=0)
        await cluster.sleep(5)
        assert {"ended": 1, "message": ""} in conversation.sent
        assert not task.done()


@virtual(nodes=1)
async def test_logs_wait_for_a_tab_that_reads_slowly(cluster: VirtualCluster) -> None:
    await cluster.client.create(pod("web", "seq 9000; sleep 1d"))
    await cluster.sleep(5)
    async with running(cluster, logs, pod="web", tail=5000) as (conversation, task):
        conversation.credit.clear()
        await cluster.sleep(10)
        assert conversation.sent == [] and not task.done()
        conversation.credit.set()
        await task
    assert len(lines(conversation)) > 1000 and lines(conversation)[-1] == "9000"


@virtual(nodes=1)
async def test_invalid_arguments(cluster: VirtualCluster) -> None:
    context = PageContext(cluster.client, cluster.clock, "", "admin", "s")
    for args in ({}, {"pod": "a", "selector": "b"}, {"pod": "a", "tail": -1}, {"selector": "=="}, {"pod": "../x"}):
        with pytest.raises(BadRequest):
            await logs.run(context, {"namespace": "default", **args}, TestConversation())
    with pytest.raises(NotFound):
        await logs.run(context, {"namespace": "default", "pod": "missing"}, TestConversation())
    for wrong in (
        {"pod": "a", "command": []},
        {"pod": "a", "command": "sh"},
        {"pod": "a/b"},
        {"pod": "a", "command": [1]},
    ):
        with pytest.raises(BadRequest):
            await exec_feed.run(context, {"namespace": "default", **wrong}, TestConversation())
    with pytest.raises(ApiError):
        await exec_feed.run(context, {"namespace": "default", "pod": "missing"}, TestConversation())


@virtual(nodes=1)
async def test_a_shell_in_a_container(cluster: VirtualCluster) -> None:
    await cluster.client.create(pod("web", "sleep 1d"))
    await cluster.sleep(5)

    def shown() -> str:
        return "".join(each.get("output", "") for each in conversation.sent)

    async with running(cluster, exec_feed, pod="web", size=[100, 30]) as (conversation, task):
        await conversation.until(lambda: "#" in shown())
        conversation.say({"input": "printf 'x\\033]0;title\\007y\\n'\r"})
        await conversation.until(lambda: "xy\r\n" in shown())
        conversation.say({"size": [80, 24]})
        conversation.say({"input": "exit 3\r"})
        await task
    assert conversation.sent[-1]["status"]["code"] == 3
