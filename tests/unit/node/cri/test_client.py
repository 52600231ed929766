"""Calls to a container runtime: errors, deadlines, lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from fake_cri import FakeCri
from stopped_clock import StoppedClock

from setpoint.node.cri import client as client_module
from setpoint.node.cri.client import CriClient, CriError, MissingDependency, go_name, open_channel
from setpoint.system import SystemClock
from setpoint.tasks import child_tasks
from setpoint.wire.grpc import Channel, Code, GrpcError

SANDBOX = {"config": {"metadata": {"name": "a", "namespace": "n", "uid": "u"}}}


@pytest.fixture
def cri() -> Iterator[FakeCri]:
    with FakeCri() as made:
        yield made


@pytest.fixture
async def client(cri: FakeCri) -> Any:
    made = CriClient(cri.endpoint, SystemClock())
    yield made
    made.close()


async def failure(client: CriClient, method: str, request: dict[str, Any] | None = None, **options: Any) -> CriError:
    with pytest.raises(CriError) as caught:
        await client.call(method, request, **options)
    return caught.value


async def test_a_call_returns_the_response(cri: FakeCri, client: CriClient) -> None:
    assert not client.connected
    assert (await client.call("Version")).runtime_name == "containerd"
    assert client.connected
    made = (await client.call("RunPodSandbox", SANDBOX)).pod_sandbox_id
    listed = await client.call("ListPodSandbox", {"filter": {"state": {"state": 0}}})
    assert [one.id for one in listed.items] == [made]
    assert cri.requests("RunPodSandbox")[0].config.metadata.uid == "u"


async def test_methods_of_both_services_are_called_by_name(cri: FakeCri, client: CriClient) -> None:
    pulled = (await client.call("PullImage", {"image": {"image": "busybox:1"}})).image_ref
    assert (await client.call("ImageStatus", {"image": {"image": pulled}})).image.repo_tags == [
        "docker.io/library/busybox:1"
    ]
    assert not (await client.call("ImageStatus", {"image": {"image": "absent"}})).HasField("image")


async def test_errors_have_the_form_of_go(cri: FakeCri, client: CriClient) -> None:
    error = await failure(client, "ContainerStatus", {"container_id": "x"})
    assert error.code is Code.NOT_FOUND
    assert error.message == 'an error occurred when try to find container "x": not found'
    assert str(error) == f"rpc error: code = NotFound desc = {error.message}"


@pytest.mark.parametrize(
    ("code", "name"),
    [(Code.OK, "OK"), (Code.CANCELLED, "Canceled"), (Code.UNKNOWN, "Unknown"), (Code.DATA_LOSS, "DataLoss")],
)
def test_codes_have_the_names_of_go(code: Code, name: str) -> None:
    assert go_name(code) == name


async def test_text_that_is_not_ascii_arrives(cri: FakeCri, client: CriClient) -> None:
    cri.fail("Version", 'open "/tmp/ä%": no such file')
    assert (await failure(client, "Version")).message == 'open "/tmp/ä%": no such file'
    assert (await client.call("Version")).runtime_name == "containerd"


async def test_a_missing_method_is_remembered_until_the_runtime_restarts(cri: FakeCri, client: CriClient) -> None:
    assert not client.lacks("RuntimeConfig")
    error = await failure(client, "RuntimeConfig")
    assert (error.code, client.lacks("RuntimeConfig")) == (Code.UNIMPLEMENTED, True)
    assert not client.lacks("Version")
    cri.unimplemented.clear()
    await asyncio.to_thread(_restart, cri)
    assert (await client.call("Version")).runtime_name == "containerd"
    assert not client.lacks("RuntimeConfig")
    assert (await client.call("RuntimeConfig")).linux.cgroup_driver == 1


@pytest.mark.parametrize(
    "request_",
    [{"unknown": 1}, {"config": {"hostname": 5}}, {"config": {"hostname": "\ud800"}}, {"config": "text"}],
)
async def test_a_malformed_request_is_refused_before_it_is_sent(
    cri: FakeCri, client: CriClient, request_: dict[str, Any]
) -> None:
    error = await failure(client, "RunPodSandbox", request_)
    assert error.code is Code.INVALID_ARGUMENT
    assert error.message.startswith("the request of RunPodSandbox is malformed: ")
    assert cri.log == []


async def test_a_malformed_response_is_an_error(client: CriClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unary(*_: Any, **__: Any) -> bytes:
        return b"\xff\xff"

    monkeypatch.setattr(Channel, "unary", unary)
    error = await failure(client, "Version")
    assert error.code is Code.INTERNAL
    assert error.message.startswith("the response of Version is malformed: ")


async def test_a_call_ends_at_its_deadline(cri: FakeCri, client: CriClient) -> None:
    held = cri.hold("StopPodSandbox")
    error = await failure(client, "StopPodSandbox", {"pod_sandbox_id": "x"}, timeout=0.05)
    assert str(error) == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    held.release()


async def test_an_answer_after_the_deadline_is_the_deadline(client: CriClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """containerd notices the deadline too, and may answer with another code before the client ends the call."""
    clock = StoppedClock()

    async def unary(*_: Any, **__: Any) -> bytes:
        await clock.advance(1.0)
        raise GrpcError(Code.UNKNOWN, 'failed to kill exec "x": context deadline exceeded: unknown')

    monkeypatch.setattr(client, "_clock", clock)
    await client.call("Version")
    monkeypatch.setattr(Channel, "unary", unary)
    assert (await failure(client, "ExecSync", timeout=1.0)).code is Code.DEADLINE_EXCEEDED
    assert (await failure(client, "ExecSync", timeout=2.0)).code is Code.UNKNOWN


@pytest.mark.parametrize(("timeout", "waits"), [(120.0, 5.0), (1.0, 1.0)])
async def test_a_call_waits_a_bounded_time_for_a_runtime_that_is_away(timeout: float, waits: float) -> None:
    clock = StoppedClock()
    client = CriClient("unix:///nowhere/cri.sock", clock)
    async with child_tasks(client.call("Version", timeout=timeout)) as (calling,):
        await clock.advance(waits - 0.01)
        assert not calling.done()
        await clock.advance(0.02)
        assert calling.done()
        with pytest.raises(CriError) as caught:
            await calling
    assert str(caught.value) == (
        "rpc error: code = Unavailable desc = the container runtime is not available: "
        "cannot connect to unix:///nowhere/cri.sock: No such file or directory"
    )


async def test_concurrent_first_calls_share_one_connection(cri: FakeCri, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, answered, attempts = StoppedClock(), asyncio.Event(), list[str]()

    async def slow(endpoint: str) -> Channel:
        attempts.append(endpoint)
        await answered.wait()
        return await open_channel(endpoint)

    monkeypatch.setattr(client_module, "open_channel", slow)
    client = CriClient(cri.endpoint, clock)
    async with child_tasks(*(client.call("Version") for _ in range(20))) as calls:
        await clock.advance(1)
        assert len(attempts) == 1
        answered.set()
        assert {(await one).runtime_name for one in calls} == {"containerd"}
    client.close()


async def test_waiting_calls_share_the_attempts_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, attempts = StoppedClock(), []

    async def counted(endpoint: str) -> Channel:
        attempts.append(clock.monotonic())
        return await open_channel(endpoint)

    monkeypatch.setattr(client_module, "open_channel", counted)
    client = CriClient("unix:///nowhere/cri.sock", clock)
    async with child_tasks(*(client.call("Version") for _ in range(50))) as calls:
        await clock.advance(6)
        assert all(isinstance(one.exception(), CriError) for one in calls)
    assert 5 < len(attempts) < 12
    pauses = [after - before for before, after in pairwise(attempts)]
    assert pauses[:3] == pytest.approx([0.05, 0.1, 0.2])
    assert max(pauses) <= 1.0


async def test_calls_continue_when_the_runtime_comes_back(cri: FakeCri, client: CriClient) -> None:
    await client.call("RunPodSandbox", SANDBOX)
    await asyncio.to_thread(cri.stop)
    async with child_tasks(*(client.call("ListPodSandbox") for _ in range(5))) as calls:
        await asyncio.sleep(0.02)
        await asyncio.to_thread(cri.start)
        assert [len((await one).items) for one in calls] == [1] * 5


async def test_a_call_that_may_have_had_an_effect_is_not_repeated(cri: FakeCri, client: CriClient) -> None:
    held = cri.hold("RunPodSandbox")
    async with child_tasks(client.call("RunPodSandbox", SANDBOX)) as (calling,):
        await asyncio.to_thread(held.arrived)
        await asyncio.to_thread(_restart, cri)
        with pytest.raises(CriError) as caught:
            await calling
    assert caught.value.code is Code.UNAVAILABLE
    await client.call("Version")
    assert cri.count("RunPodSandbox") == 1


async def test_a_read_is_repeated_when_the_connection_is_lost(cri: FakeCri, client: CriClient) -> None:
    held = cri.hold("ListContainers")
    async with child_tasks(client.call("ListContainers")) as (calling,):
        await asyncio.to_thread(held.arrived)
        await asyncio.to_thread(_restart, cri)
        assert len((await calling).containers) == 0
    assert cri.count("ListContainers") == 2


async def test_unavailable_as_the_answer_of_the_runtime_is_not_repeated(cri: FakeCri, client: CriClient) -> None:
    cri.fail("Version", "server is not initialized yet", Code.UNAVAILABLE)
    assert (await failure(client, "Version")).message == "server is not initialized yet"
    assert cri.count("Version") == 1


async def test_a_cancelled_call_does_not_disturb_others(cri: FakeCri, client: CriClient) -> None:
    held = cri.hold("PullImage")
    async with child_tasks(client.call("PullImage", {"image": {"image": "a"}})):
        await asyncio.to_thread(held.arrived)
    held.release()
    assert (await client.call("Version")).runtime_name == "containerd"


async def test_a_closed_client_fails_at_once(cri: FakeCri, client: CriClient) -> None:
    held = cri.hold("PullImage")
    async with child_tasks(client.call("PullImage", {"image": {"image": "a"}})) as (calling,):
        await asyncio.to_thread(held.arrived)
        client.close()
        with pytest.raises(CriError, match="code = Unavailable"):
            await calling
    assert (await failure(client, "Version")).message == "the client of the container runtime is closed"


@pytest.mark.parametrize("endpoint", ["/run/containerd.sock", "tcp://127.0.0.1:1", "unix://relative", ""])
def test_only_unix_sockets_are_endpoints(endpoint: str) -> None:
    with pytest.raises(ValueError, match="the endpoint of the container runtime must be unix:///path"):
        CriClient(endpoint, StoppedClock())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(client_module, "import_module", absent)
    with pytest.raises(MissingDependency) as caught:
        CriClient("unix:///run/cri.sock", StoppedClock())
    assert str(caught.value) == (
        "a real node needs the extra [node], of which hpack is not installed: pip install 'setpoint[node]'"
    )


def _restart(cri: FakeCri) -> None:
    cri.stop()
    cri.start()
