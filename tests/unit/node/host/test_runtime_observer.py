from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

import pytest
from stopped_clock import StoppedClock, settle

from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.enums import ContainerState
from setpoint.node.cri.messages import METHODS
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.runtime_observer import RuntimeObserver
from setpoint.tasks import TaskRegistry
from setpoint.wire.grpc import Code


class ScriptedClient:
    """A container runtime with one Pod, whose answers are attributes."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.error: CriError | None = None
        self.status_errors: dict[str, CriError] = {}
        self.containers: dict[str, int] = {"c": ContainerState.RUNNING}
        self.reported: dict[str, int] = {}
        """The states in statuses that lag behind, by id."""

    async def call(self, method: str, request: Mapping[str, Any], *, timeout: float) -> Any:
        self.calls.append(method)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        answer = METHODS[method].response
        match method:
            case "Version":
                return answer(runtime_name="containerd", runtime_version="1.6.20")
            case "ListPodSandbox":
                meta = {"name": "web", "uid": "uid", "namespace": "default"}
                return answer(items=[{"id": "s", "metadata": meta, "created_at": 1}])
            case "ListContainers":
                listed = [
                    {"id": each, "pod_sandbox_id": "s", "metadata": {"name": each}, "state": state}
                    for each, state in self.containers.items()
                ]
                return answer(containers=listed)
            case "PodSandboxStatus":
                return answer(status={"id": "s", "network": {"ip": "10.0.0.2"}})
            case "ContainerStatus":
                identifier = request["container_id"]
                if identifier in self.status_errors:
                    raise self.status_errors[identifier]
                if identifier not in self.containers:
                    raise CriError(Code.NOT_FOUND, "not found")
                state = self.reported.get(identifier, self.containers[identifier])
                return answer(status={"id": identifier, "state": state, "started_at": 1, "finished_at": 2})
        raise AssertionError(method)


class Events:
    def __init__(self) -> None:
        self.changed: Callable[[str], None] = lambda identifier: None
        self.reconnected: Callable[[], None] = lambda: None

    async def follow(self, changed: Callable[[str], None], reconnected: Callable[[], None]) -> None:
        self.changed, self.reconnected = changed, reconnected
        await asyncio.Event().wait()


class InlinePool:
    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


class Observed:
    def __init__(self) -> None:
        self.clock, self.client, self.events = StoppedClock(), ScriptedClient(), Events()
        pool = cast(BlockingPool, InlinePool())
        self.observer = RuntimeObserver(cast(CriClient, self.client), self.events, "node-1", pool, self.clock)
        self.changes: list[str] = []
        self.observer.state.on_change = self.changes.append

    def running(self, name: str = "c") -> bool:
        record = self.observer.state.records("uid").current.get(name)
        return record is not None and record.running

    def count(self, method: str) -> int:
        return self.client.calls.count(method)


@pytest.fixture
async def observed() -> AsyncIterator[Observed]:
    made, tasks = Observed(), TaskRegistry()
    tasks.start(made.observer.run())
    await settle()
    yield made
    await tasks.stop()


async def test_the_first_list_shows_everything(observed: Observed) -> None:
    assert observed.observer.listed.is_set() and observed.running() and observed.changes
    sandbox = observed.observer.state.ready_sandbox("uid")
    assert sandbox is not None and sandbox.ips == ("10.0.0.2",)
    assert observed.observer.runtime_version == "1.6.20" and observed.observer.runtime_error() == ""
    assert observed.observer.state.records("uid").current["c"].id == "containerd://c"


async def test_an_event_requests_the_status_at_once(observed: Observed) -> None:
    observed.client.containers["c"] = ContainerState.EXITED
    observed.events.changed("c")
    await settle()
    assert not observed.running() and observed.count("ListContainers") == 1


async def test_a_status_that_lags_behind_the_event_is_requested_again(observed: Observed) -> None:
    observed.client.containers["c"], observed.client.reported["c"] = ContainerState.EXITED, ContainerState.RUNNING
    observed.events.changed("c")
    await settle()
    assert observed.running()
    await observed.clock.advance(0.02)
    assert observed.running()
    observed.client.reported.clear()
    await observed.clock.advance(0.1)
    assert not observed.running()
    requests = observed.count("ContainerStatus")
    await observed.clock.advance(5)
    assert observed.count("ContainerStatus") == requests


async def test_an_unchanged_status_is_not_requested_forever(observed: Observed) -> None:
    observed.events.changed("c")
    await observed.clock.advance(5)
    assert observed.count("ContainerStatus") == 1 + 4


async def test_events_of_unknown_containers_are_ignored(observed: Observed) -> None:
    observed.events.changed("foreign")
    await observed.clock.advance(1)
    assert observed.count("ContainerStatus") == 1


async def test_a_list_every_ten_seconds_finds_what_no_event_announced(observed: Observed) -> None:
    observed.client.containers["c"] = ContainerState.EXITED
    await observed.clock.advance(9)
    assert observed.running()
    await observed.clock.advance(2)
    assert not observed.running()


async def test_without_events_the_lists_are_frequent(observed: Observed) -> None:
    observed.client.containers["c"] = ContainerState.EXITED
    await observed.clock.advance(10.5)
    lists = observed.count("ListContainers")
    await observed.clock.advance(5)
    assert observed.count("ListContainers") == lists + 5
    observed.events.changed("c")
    await observed.clock.advance(1)
    lists = observed.count("ListContainers")
    await observed.clock.advance(9)
    assert observed.count("ListContainers") == lists


async def test_a_reconnected_stream_causes_a_list(observed: Observed) -> None:
    observed.client.containers["c"] = ContainerState.EXITED
    observed.events.reconnected()
    await settle()
    assert not observed.running()


async def test_the_state_is_kept_while_the_runtime_is_away(observed: Observed) -> None:
    observed.client.error = CriError(Code.UNAVAILABLE, "gone")
    await observed.clock.advance(29)
    assert observed.running() and observed.observer.runtime_error() == ""
    assert observed.observer.last_error == "rpc error: code = Unavailable desc = gone"
    await observed.clock.advance(2)
    assert observed.running() and observed.observer.runtime_error() == "container runtime is down"
    lists = observed.count("ListPodSandbox")
    await observed.clock.advance(5)
    assert observed.count("ListPodSandbox") - lists == 5
    observed.client.error = None
    await observed.clock.advance(1.5)
    assert observed.observer.runtime_error() == observed.observer.last_error == ""


async def test_a_container_without_a_status_does_not_affect_the_others(observed: Observed) -> None:
    observed.client.containers |= {"broken": ContainerState.RUNNING, "good": ContainerState.RUNNING}
    observed.client.status_errors["broken"] = CriError(Code.UNKNOWN, "corrupt")
    await observed.clock.advance(40)
    assert observed.running("good") and not observed.running("broken")
    assert observed.observer.runtime_error() == ""
    with pytest.raises(CriError):
        await observed.observer.relist("uid")
    del observed.client.status_errors["broken"]
    await observed.observer.relist("uid")
    assert observed.running("broken")


async def test_a_container_that_never_has_a_status_does_not_hold_up_the_start() -> None:
    made, tasks = Observed(), TaskRegistry()
    made.client.status_errors["c"] = CriError(Code.UNKNOWN, "corrupt")
    tasks.start(made.observer.run())
    await settle()
    assert made.observer.runtime_error() == "" and not made.observer.listed.is_set()
    await made.clock.advance(2.5)
    assert made.observer.listed.is_set()
    await tasks.stop()


def test_before_the_first_answer_the_runtime_is_not_ready() -> None:
    text = "container runtime status check may not have completed yet"

    async def check() -> None:
        assert Observed().observer.runtime_error() == text

    asyncio.run(check())
