"""Hints of changed containers from both event streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_cri import SUBSCRIBE_NAME, FakeCri
from stopped_clock import StoppedClock

from setpoint.node.cri.client import CriClient
from setpoint.node.cri.enums import ContainerEventType
from setpoint.node.cri.events import RuntimeEvents
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks
from setpoint.wire.grpc import Code

POD = {"config": {"metadata": {"name": "a", "namespace": "n", "uid": "u"}}}


@pytest.fixture
def cri() -> Iterator[FakeCri]:
    with FakeCri() as made:
        yield made


async def until(condition: Callable[[], Any]) -> None:
    """Wait until events that another thread sends have arrived."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def container(cri: FakeCri) -> str:
    """Start a container and return its id."""
    client = CriClient(cri.endpoint, SystemClock())
    sandbox = (await client.call("RunPodSandbox", POD)).pod_sandbox_id
    config = {"metadata": {"name": "main"}, "image": {"image": cri.add_image("busybox")}}
    made = (await client.call("CreateContainer", {"pod_sandbox_id": sandbox, "config": config})).container_id
    await client.call("StartContainer", {"container_id": made})
    client.close()
    return str(made)


@pytest.mark.parametrize("own", [False, True], ids=["containerd", "cri"])
async def test_starts_and_ends_are_announced(cri: FakeCri, own: bool) -> None:
    if own:
        cri.unimplemented.discard("GetContainerEvents")
    seen: list[str] = []
    async with child_tasks(RuntimeEvents(cri.endpoint, SystemClock()).follow(seen.append)):
        await until(lambda: cri.subscribers)
        made = await container(cri)
        await until(lambda: {cri.sandbox("a").id, made} <= set(seen))
        seen.clear()
        cri.exit(made)
        await until(lambda: seen)
    assert set(seen) == {made}
    assert cri.count(SUBSCRIBE_NAME) == (0 if own else 1)


async def test_only_events_of_tasks_of_cri_are_requested(cri: FakeCri) -> None:
    async with child_tasks(RuntimeEvents(cri.endpoint, SystemClock()).follow(lambda _: None)):
        await until(lambda: cri.subscribers)
    assert list(cri.requests(SUBSCRIBE_NAME)[0].filters) == [
        'namespace==k8s.io,topic~="^/tasks/(create|start|exit|oom|delete|paused|resumed)$"'
    ]


async def test_the_end_of_a_container_is_announced_again(cri: FakeCri) -> None:
    """containerd's event arrives a moment before CRI shows the container as exited."""
    clock, seen = StoppedClock(), list[str]()
    made = await container(cri)
    async with child_tasks(RuntimeEvents(cri.endpoint, clock).follow(seen.append)):
        await until(lambda: cri.subscribers)
        cri.exit(made)
        await until(lambda: len(seen) == 2)  # exit and delete
        await until(lambda: clock.sleeping)
        await clock.advance(0.021)
        assert len(seen) == 3
        await clock.advance(0.3)
        assert seen == [made] * 5
        await clock.advance(5)
        assert len(seen) == 5
        assert clock.sleeping == 0


async def test_the_end_of_a_command_is_no_change(cri: FakeCri, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    async with child_tasks(RuntimeEvents(cri.endpoint, SystemClock()).follow(seen.append)):
        await until(lambda: cri.subscribers)
        cri.announce_exec_exit("c1", "command")
        cri.announce("/tasks/oom", ContainerEventType.STOPPED, "c2", "s")
        await until(lambda: seen)
    assert seen == ["c2"]


async def test_a_lost_stream_is_opened_again(cri: FakeCri) -> None:
    seen, requested = list[str](), list[int]()
    events = RuntimeEvents(cri.endpoint, SystemClock())
    async with child_tasks(events.follow(seen.append, lambda: requested.append(1))):
        await until(lambda: cri.subscribers)
        before = len(requested)
        await asyncio.to_thread(cri.stop)
        await asyncio.to_thread(cri.start)
        await until(lambda: cri.subscribers)
        assert len(requested) > before
        cri.announce("/tasks/start", ContainerEventType.STARTED, "c1", "s")
        await until(lambda: seen)
    assert seen == ["c1"]


async def test_attempts_to_connect_are_paced() -> None:
    clock = StoppedClock()
    async with child_tasks(RuntimeEvents("unix:///nowhere/cri.sock", clock).follow(lambda _: None)) as (following,):
        for _ in range(10):
            await clock.advance(1)
            assert clock.sleeping == 1
            assert not following.done()


async def test_a_runtime_without_events_is_asked_rarely(cri: FakeCri) -> None:
    clock = StoppedClock()
    cri.unimplemented.add(SUBSCRIBE_NAME)
    async with child_tasks(RuntimeEvents(cri.endpoint, clock).follow(lambda _: None)):
        await until(lambda: clock.sleeping)
        await clock.advance(59)
        assert (clock.sleeping, cri.count(SUBSCRIBE_NAME)) == (1, 1)
        await clock.advance(2)
        await until(lambda: cri.count(SUBSCRIBE_NAME) == 2)


async def test_a_runtime_that_is_not_ready_is_asked_for_its_own_stream_again(cri: FakeCri) -> None:
    cri.unimplemented.discard("GetContainerEvents")
    cri.fail("GetContainerEvents", "server is not initialized yet", Code.UNAVAILABLE)
    async with child_tasks(RuntimeEvents(cri.endpoint, SystemClock()).follow(lambda _: None)):
        await until(lambda: cri.subscribers)
    assert (cri.count("GetContainerEvents"), cri.count(SUBSCRIBE_NAME)) == (2, 0)


async def test_neither_a_failing_callback_nor_a_malformed_event_ends_the_stream(cri: FakeCri) -> None:
    seen: list[str] = []

    def changed(container_id: str) -> None:
        seen.append(container_id)
        raise RuntimeError("not now")

    async with child_tasks(RuntimeEvents(cri.endpoint, SystemClock()).follow(changed)) as (following,):
        await until(lambda: cri.subscribers)
        cri.announce("/tasks/start", ContainerEventType.STARTED, "c1", "s")
        cri.announce_raw(b"\xff\xff")
        cri.announce("/tasks/start", ContainerEventType.STARTED, "c2", "s")
        await until(lambda: len(seen) == 2)
        assert not following.done()
    assert cri.count(SUBSCRIBE_NAME) == 1
