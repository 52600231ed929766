"""The runtime of real nodes under faults: lost messages, crashes of the agent and of the container runtime."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
from fake_cri import ExecResult, FakeContainer, FakeCri, FakeError
from host_runtime import NODE_NAME, HostHarness, LossyClient, host_runtime, make_pod, shell, uid_of

from setpoint.kinds.typed import Pod
from setpoint.node.cri.enums import ContainerState, SandboxState
from setpoint.node.runtime.interface import START_ERROR, ContainerRecord, StartResult
from setpoint.wire.grpc import Code


@pytest.fixture
def cri() -> Iterator[FakeCri]:
    with FakeCri() as cri:
        cri.add_image("busybox:1")
        yield cri


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.node.host.cri_runtime._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("setpoint.node.host.container_manager._FIRST_PAUSE", 0.01)
    monkeypatch.setattr("setpoint.node.host.container_manager._START_PAUSES", (0.01, 0.01))
    monkeypatch.setattr("setpoint.node.cri.client.CONNECT_WAIT", 0.2)


@pytest.fixture
async def harness(cri: FakeCri, tmp_path: Path) -> AsyncIterator[HostHarness]:
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        yield harness


async def start(harness: HostHarness, pod: Pod, attempt: int = 0) -> StartResult:
    operation = harness.runtime.start_container(uid_of(pod), harness.config(pod, attempt=attempt), harness.now)
    return await harness.wait(operation)


async def start_pod(harness: HostHarness, pod: Pod) -> ContainerRecord:
    created = await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
    assert not created.error
    result = await start(harness, pod)
    assert result.record is not None, result.error
    return result.record


async def try_all(harness: HostHarness, pod: Pod, *, stop: bool) -> bool:
    """Bring a Pod up, or to its end, once. Return whether that succeeded."""
    runtime, uid = harness.runtime, uid_of(pod)
    if stop:
        return await harness.wait(runtime.stop_pod(uid)) == ""
    if (await harness.wait(runtime.create_sandbox(pod, harness.node))).error:
        return False
    return (await start(harness, pod)).record is not None


# -- lost messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True], ids=["same agent", "agent restarts"])
@pytest.mark.parametrize("lose_answer", [True, False], ids=["answer lost", "request lost"])
async def test_any_message_may_be_lost(cri: FakeCri, tmp_path: Path, crash: bool, lose_answer: bool) -> None:
    """The operations are repeated after a loss, by the same agent or by a restarted one: in the end, there is one
    sandbox with one container, and after the end of the Pod there is nothing."""
    for lost in range(1000):
        client = LossyClient(cri.endpoint)
        pod = make_pod(shell("sleep"), name=f"pod-{lost}")
        async with host_runtime(cri.endpoint, tmp_path, client=client) as harness:
            client.lose_at, client.lose_answer, client.cut = len(client.calls) + lost, lose_answer, crash
            up = await try_all(harness, pod, stop=False)
            down = up and await try_all(harness, pod, stop=True)
            if not crash:
                while not up:
                    up = await try_all(harness, pod, stop=False)
                check_up_or_down(cri, pod)
                assert await try_all(harness, pod, stop=True) or await try_all(harness, pod, stop=True)
                check_ended(cri, pod)
                await remove(harness, cri, pod)
        if crash:
            async with host_runtime(cri.endpoint, tmp_path) as harness:
                if not up:
                    assert await try_all(harness, pod, stop=False)
                check_up_or_down(cri, pod)
                assert await try_all(harness, pod, stop=True)
                check_ended(cri, pod)
                await remove(harness, cri, pod)
        if lost >= len(client.calls) or (down and client.lose_at >= len(client.calls)):
            assert lost > 10
            return
    raise AssertionError("the operations never end")


def check_up_or_down(cri: FakeCri, pod: Pod) -> None:
    sandboxes = [one for one in cri.sandboxes.values() if one.config.metadata.uid == uid_of(pod)]
    assert len(sandboxes) == 1
    containers = [one for one in cri.containers.values() if one.sandbox_id == sandboxes[0].id]
    assert len(containers) == 1
    assert containers[0].state != ContainerState.CREATED


def check_ended(cri: FakeCri, pod: Pod) -> None:
    for sandbox in cri.sandboxes.values():
        if sandbox.config.metadata.uid == uid_of(pod):
            assert sandbox.state == SandboxState.NOT_READY


async def remove(harness: HostHarness, cri: FakeCri, pod: Pod) -> None:
    harness.runtime.remove_pod(uid_of(pod))
    await harness.poll(lambda: not cri.sandboxes and not cri.containers)
    directory = harness.settings.directories
    await harness.poll(lambda: not directory.pod(uid_of(pod)).exists() and not [*directory.logs.glob("*")])


async def test_a_removal_is_repeated_until_it_succeeds(cri: FakeCri, tmp_path: Path) -> None:
    client = LossyClient(cri.endpoint)
    async with host_runtime(cri.endpoint, tmp_path, client=client) as harness:
        pod = make_pod(shell("sleep"))
        await start_pod(harness, pod)
        client.lose_at, client.lose_answer = len(client.calls) + 2, False
        await remove(harness, cri, pod)
        assert client.lose_at < len(client.calls)


async def test_an_interrupted_removal_is_found_again(cri: FakeCri, tmp_path: Path) -> None:
    """An agent that ends while it removes a Pod leaves the Pod's directory, by which the next one finds the rest."""
    pod = make_pod(shell("sleep"))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
        harness.cgroups.error = "the cgroup is in use"
        harness.runtime.remove_pod(uid_of(pod))
        await harness.poll(lambda: not cri.sandboxes and bool(harness.cgroups.calls))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        assert await harness.runtime.orphans(()) == {uid_of(pod)}
        await harness.runtime.remove_orphan(uid_of(pod))
        directories = harness.settings.directories
        assert not [*directories.logs.iterdir(), *directories.pods.iterdir()]


# -- the agent restarts ----------------------------------------------------------------------------------------------


async def test_a_restarted_agent_adopts_what_runs(cri: FakeCri, tmp_path: Path) -> None:
    pod = make_pod(shell("sleep"))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        before = await start_pod(harness, pod)
        ips = harness.runtime.restore_sandbox(pod, harness.node)
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        runtime = harness.runtime
        record = runtime.restore_container(uid_of(pod), harness.config(pod), {}, harness.now)
        assert record == before and record is not before
        assert runtime.restore_sandbox(pod, harness.node) == ips and ips
        assert runtime.restore_container(uid_of(pod), harness.config(pod, "main"), {}, harness.now) is record
        assert cri.count("RunPodSandbox") == cri.count("StartContainer") == 1
        assert await runtime.orphans({uid_of(pod)}) == set()


async def test_a_container_that_ended_while_the_agent_was_away(cri: FakeCri, tmp_path: Path) -> None:
    pod = make_pod(shell("sleep"))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        await start_pod(harness, pod)
    cri.exit(cri.container("main").id, 9)
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        record = harness.runtime.restore_container(uid_of(pod), harness.config(pod), {}, harness.now)
        assert record is not None and (record.exit_code, record.reason) == (9, "Error")


async def test_after_a_reboot_the_sandbox_is_replaced(cri: FakeCri, tmp_path: Path) -> None:
    pod = make_pod(shell("sleep"))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        await start_pod(harness, pod)
    cri.reboot()
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        runtime = harness.runtime
        assert runtime.restore_sandbox(pod, harness.node) is None
        record = runtime.restore_container(uid_of(pod), harness.config(pod), {}, harness.now)
        assert record is not None and (record.exit_code, record.reason) == (255, "Unknown")
        assert not (await harness.wait(runtime.create_sandbox(pod, harness.node))).error
        assert [each.config.metadata.attempt for each in cri.sandboxes.values()] == [1]
        assert runtime.records(uid_of(pod)).current == {}
        assert (await start(harness, pod, attempt=1)).record is not None


async def test_a_pre_stop_hook_runs_once_for_each_run(cri: FakeCri, tmp_path: Path) -> None:
    executed: list[str] = []

    def execute(container: FakeContainer, command: list[str]) -> ExecResult:
        executed.append(container.id)
        return ExecResult(exit_code=1)

    cri.on_exec = execute
    pod = make_pod(shell("sleep"))
    container, hook = pod["spec"]["containers"][0], {"exec": {"command": ["/stop"]}}
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        await start_pod(harness, pod)
        first = harness.runtime.run_hook(uid_of(pod), container, hook, harness.now, pre_stop=True)
        assert not (await harness.wait(first)).success
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        runtime = harness.runtime
        again = runtime.run_hook(uid_of(pod), container, hook, harness.now, pre_stop=True)
        assert (await harness.wait(again)).success
        assert len(executed) == 1
        post_start = runtime.run_hook(uid_of(pod), container, hook, harness.now, pre_stop=False)
        assert not (await harness.wait(post_start)).success
        cri.exit(cri.container("main").id)
        await harness.until(lambda: not runtime.records(uid_of(pod)).current["main"].running)
        await start(harness, pod, attempt=1)
        other_run = runtime.run_hook(uid_of(pod), container, hook, harness.now, pre_stop=True)
        assert not (await harness.wait(other_run)).success
        assert len(executed) == 3


async def test_orphans_are_ended_and_removed(cri: FakeCri, tmp_path: Path) -> None:
    orphan, kept = make_pod(shell("sleep"), name="orphan"), make_pod(shell("sleep"), name="kept")
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        await start_pod(harness, orphan)
        await start_pod(harness, kept)
    (harness.settings.directories.pod("only-a-directory") / "containers").mkdir(parents=True)
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        found = await harness.runtime.orphans({uid_of(kept)})
        assert found == {uid_of(orphan), "only-a-directory"}
        for uid in found:
            await harness.runtime.remove_orphan(uid)
        assert [one.config.metadata.name for one in cri.sandboxes.values()] == ["kept"]
        assert [one.state for one in cri.containers.values()] == [ContainerState.RUNNING]
        assert await harness.runtime.orphans({uid_of(kept)}) == set()
        assert ("unmount", uid_of(orphan)) in harness.volumes.calls and (
            "remove",
            uid_of(orphan),
        ) in harness.cgroups.calls


async def test_foreign_sandboxes_are_ignored(cri: FakeCri, tmp_path: Path) -> None:
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        for labels in {}, {"setpoint.dev/node": "another"}:
            uid = f"foreign-{len(labels)}"
            config = {"metadata": {"name": uid, "uid": uid, "namespace": "default"}, "labels": labels}
            made = await harness.client.call("RunPodSandbox", {"config": config})
            container = {"metadata": {"name": "main"}, "image": {"image": "busybox:1"}, "labels": labels}
            await harness.client.call(
                "CreateContainer",
                {"pod_sandbox_id": made.pod_sandbox_id, "config": container, "sandbox_config": config},
            )
        await harness.runtime.observer.relist()
        assert harness.runtime.state.uids() == set() and await harness.runtime.orphans(set()) == set()
        pod = make_pod(shell("sleep"))
        await start_pod(harness, pod)
        assert cri.sandbox("web").config.labels["setpoint.dev/node"] == NODE_NAME
        harness.runtime.remove_pod(uid_of(pod))
        await harness.until(lambda: not harness.runtime.state.uids())
        assert len(cri.sandboxes) == 2


# -- the container runtime -------------------------------------------------------------------------------------------


async def test_state_is_kept_while_the_runtime_is_away(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    record = await start_pod(harness, pod)
    cri.stop()
    harness.runtime.observer.request_relist()
    await harness.poll(lambda: bool(harness.runtime.observer.last_error))
    assert record.running and harness.runtime.sandbox_ready(uid_of(pod))
    assert harness.runtime.runtime_error() == ""  # not for long enough
    cri.containers[cri.container("main").id].state = ContainerState.EXITED
    cri.container("main").exit_code = 5
    cri.start()
    await harness.until(lambda: not record.running)
    assert (record.exit_code, record.reason) == (5, "Error")
    await harness.poll(lambda: not harness.runtime.observer.last_error)


async def test_a_stop_survives_a_restart_of_the_runtime(cri: FakeCri, harness: HostHarness) -> None:
    cri.ignore_sigterm.add("main")
    pod = make_pod(shell("sleep"))
    record = await start_pod(harness, pod)
    harness.runtime.stop_container(uid_of(pod), "main", harness.now, 2.0)
    await harness.poll(lambda: cri.count("StopContainer") == 1)
    cri.fail("StopContainer", "transport is closing", Code.UNAVAILABLE)
    cri.stop()
    cri.start()
    await harness.until(lambda: not record.running)
    assert record.exit_code == 137


async def test_a_broken_sandbox_is_replaced_with_the_next_attempt(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    await start_pod(harness, pod)
    cri.break_sandbox(cri.sandbox("web").id)
    await harness.until(lambda: not harness.runtime.sandbox_ready(uid_of(pod)))
    result = await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
    assert result.ips == (cri.sandbox("web").ip,)
    assert len(cri.sandboxes) == 1 and cri.sandbox("web").config.metadata.attempt == 1
    assert cri.containers == {} and harness.runtime.records(uid_of(pod)).current == {}


async def test_a_container_that_vanished_has_ended(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    record = await start_pod(harness, pod)
    await harness.client.call("RemoveContainer", {"container_id": cri.container("main").id})
    cri.containers.clear()
    harness.runtime.observer.request_relist()
    await harness.until(lambda: not harness.runtime.records(uid_of(pod)).current)
    assert not record.running and record.exit_code == 137


async def test_failures_have_the_texts_of_the_kubelet(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    cri.fail("RunPodSandbox", 'failed to setup network for sandbox "a": plugin type="ptp" failed')
    result = await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
    text = 'rpc error: code = Unknown desc = failed to setup network for sandbox "a": plugin type="ptp" failed'
    assert result.error == text and not result.ips

    await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
    cri.fail("CreateContainer", "failed to generate container spec: no user")
    started = await start(harness, pod)
    assert started == (None, "failed to generate container spec: no user", "CreateContainerError")

    cri.start_errors["main"] = 'exec: "/none": no such file'
    started = await start(harness, pod)
    assert started.record is not None
    record = started.record
    assert (record.reason, record.exit_code, record.message) == (START_ERROR, 128, 'exec: "/none": no such file')

    cri.fail("StopPodSandbox", "busy")
    error = await harness.wait(harness.runtime.stop_pod(uid_of(pod)))
    text = f'failed to "KillPodSandbox" for "{uid_of(pod)}" with KillPodSandboxError: '
    assert error == text + '"rpc error: code = Unknown desc = busy"'
    assert await harness.wait(harness.runtime.stop_pod(uid_of(pod))) == ""


async def test_an_interrupted_start_is_not_a_run(cri: FakeCri, tmp_path: Path) -> None:
    """The runtime gives a start up if the agent ends. The container cannot be removed while it does so."""
    pod = make_pod(shell("sleep"))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        cri.start_errors["main"] = "failed to create shim task: context canceled: unknown"
        record = await start_pod(harness, pod)
        assert record.reason == START_ERROR
    del cri.start_errors["main"]
    cri.fail("RemoveContainer", "container is in starting state, can't be removed", times=2)
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        assert harness.runtime.records(uid_of(pod)).current == {}
        started = await start(harness, pod)
        assert started.record is not None and started.record.running and started.record.attempt == 0
    assert len(cri.containers) == 1


async def test_a_failed_start_that_was_reported_is_a_run(cri: FakeCri, tmp_path: Path) -> None:
    pod = make_pod(shell("sleep"))
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        cri.start_errors["main"] = 'exec: "/none": no such file'
        record = await start_pod(harness, pod)
    async with host_runtime(cri.endpoint, tmp_path) as harness:
        config, reported = harness.config(pod), {"containerID": record.id}
        restored = harness.runtime.restore_container(uid_of(pod), config, reported, harness.now)
        assert restored is not None and restored.reason == START_ERROR


async def test_only_the_last_two_runs_are_kept(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    cri.exits["main"] = 1
    await start_pod(harness, pod)
    logs = harness.settings.directories.pod_logs("default", "web", uid_of(pod)) / "main"
    messages = harness.settings.directories.container(uid_of(pod), "main")
    for attempt in range(1, 5):
        for name in (f"{attempt - 1}.log", f"{attempt - 1}.log.20300101"):
            (logs / name).touch()
        (messages / f"pre-stop-{cri.container('main').id}").touch()
        assert (await start(harness, pod, attempt=attempt)).record is not None
    assert [one.config.metadata.attempt for one in cri.containers.values()] == [3, 4]
    assert sorted(path.name for path in logs.iterdir()) == ["3.log", "3.log.20300101"]
    assert sorted(path.name for path in messages.iterdir()) == [
        "3.termination-log",
        "4.termination-log",
        f"pre-stop-{next(iter(cri.containers))}",
    ]


async def test_a_stop_is_repeated_only_with_a_shorter_grace_period(cri: FakeCri, harness: HostHarness) -> None:
    cri.ignore_sigterm.add("main")
    cri.second = 1.0
    pod = make_pod(shell("sleep"))
    record = await start_pod(harness, pod)
    for grace in (300.0, 400.0, 200.0, 250.0, 0.0):
        harness.runtime.stop_container(uid_of(pod), "main", harness.now, grace)
        await asyncio.sleep(0)
    await harness.until(lambda: not record.running)
    assert sorted(request.timeout for request in cri.requests("StopContainer")) == [0, 200, 300]
    await harness.poll(lambda: not harness.runtime._containers._deadlines)


async def test_volume_errors_are_results(harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    harness.volumes.error = 'MountVolume.SetUp failed for volume "config" : configmap "a" not found'
    assert await harness.wait(harness.runtime.mount_volumes(pod, harness.provider)) == (harness.volumes.error,)
    harness.volumes.error = ""
    assert await harness.wait(harness.runtime.mount_volumes(pod, harness.provider)) == ()


async def test_volumes_are_refreshed_when_their_sources_change(harness: HostHarness) -> None:
    pod, runtime = make_pod(shell("sleep")), harness.runtime
    refresh = ("refresh", uid_of(pod))
    runtime.refresh_volumes(uid_of(pod))
    await harness.wait(runtime.mount_volumes(pod, harness.provider))
    assert refresh not in harness.volumes.calls
    runtime.refresh_volumes(uid_of(pod))
    runtime.refresh_volumes(uid_of(pod))
    await harness.poll(lambda: not runtime._refreshing)
    assert harness.volumes.calls.count(refresh) in (1, 2)
    harness.volumes.calls.clear()
    runtime.update_pod(uid_of(pod), pod)
    assert not runtime._refreshing
    meta = {**pod["metadata"], "labels": {"app": "other"}}
    runtime.update_pod(uid_of(pod), cast(Pod, {**pod, "metadata": meta}))
    await harness.poll(lambda: refresh in harness.volumes.calls and not runtime._refreshing)
    harness.volumes.calls.clear()
    stopped = runtime.stop_pod(uid_of(pod))
    runtime.refresh_volumes(uid_of(pod))
    assert await harness.wait(stopped) == ""
    await harness.poll(lambda: not runtime._refreshing)
    assert harness.volumes.calls == [("unmount", uid_of(pod))]


async def test_warnings_about_the_resolver_configuration(harness: HostHarness, tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("".join(f"nameserver 192.0.2.{number}\n" for number in range(1, 5)))
    result = await harness.wait(harness.runtime.create_sandbox(make_pod(shell("sleep")), harness.node))
    text = "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "
    assert list(result.warnings) == [("DNSConfigForming", text + "192.0.2.1 192.0.2.2 192.0.2.3")]


async def test_a_missing_variable_is_a_configuration_error(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep", securityContext={"runAsNonRoot": True}))
    await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
    result = await start(harness, pod)
    assert result.record is None and result.reason == "CreateContainerConfigError"
    assert "container has runAsNonRoot and image will run as root" in result.error
    assert cri.count("CreateContainer") == 0


# -- concurrency -----------------------------------------------------------------------------------------------------


async def test_starts_are_bounded_and_pods_do_not_wait_for_each_other(cri: FakeCri, harness: HostHarness) -> None:
    held = cri.hold("RunPodSandbox")
    pods = [make_pod(shell("sleep"), name=f"pod-{number}") for number in range(24)]
    operations = [harness.runtime.create_sandbox(pod, harness.node) for pod in pods]
    for _ in range(20):
        assert await asyncio.to_thread(held.arrived)
    await asyncio.sleep(0.05)
    assert cri.count("RunPodSandbox") == 20  # ten times the number of cores
    mount = harness.runtime.mount_volumes(make_pod(shell("sleep")), harness.provider)
    assert await harness.wait(mount) == ()
    held.release()
    for operation in operations:
        assert (await harness.wait(operation)).ips
    assert len(cri.sandboxes) == 24


async def test_operations_of_a_pod_run_in_order(cri: FakeCri, harness: HostHarness) -> None:
    pod, runtime = make_pod(shell("sleep")), harness.runtime
    sandbox = runtime.create_sandbox(pod, harness.node)
    started = runtime.start_container(uid_of(pod), harness.config(pod), harness.now)
    stopped = runtime.stop_pod(uid_of(pod))
    assert await harness.wait(stopped) == ""
    assert sandbox.result(harness.now) is not None
    result = started.result(harness.now)
    assert result is not None and result.record is not None and not result.record.running
    methods = [name for name, _ in cri.log if name in ("RunPodSandbox", "StartContainer", "StopPodSandbox")]
    assert methods == ["RunPodSandbox", "StartContainer", "StopPodSandbox"]
    assert harness.runtime._executor.busy_pods == 0


async def test_a_cancelled_operation_that_waits_never_runs(cri: FakeCri, harness: HostHarness) -> None:
    held = cri.hold("RunPodSandbox")
    pod = make_pod(shell("sleep"))
    created = harness.runtime.create_sandbox(pod, harness.node)
    assert await asyncio.to_thread(held.arrived)
    start_it = harness.runtime.start_container(uid_of(pod), harness.config(pod), harness.now)
    start_it.cancel()
    created.cancel()  # it has begun, so it runs to its end
    held.release()
    await harness.poll(lambda: harness.runtime.sandbox_ready(uid_of(pod)))
    await harness.poll(lambda: harness.runtime._executor.busy_pods == 0)
    assert cri.count("CreateContainer") == 0 and start_it.result(harness.now) is None


# -- images ----------------------------------------------------------------------------------------------------------


def with_secrets(*names: str, image: str = "private.example/app:1") -> Pod:
    return make_pod(shell("sleep", image=image), imagePullSecrets=[{"name": name} for name in names])


async def test_pulls_of_one_image_are_shared_if_the_credentials_are_equal(cri: FakeCri, harness: HostHarness) -> None:
    config = {"auths": {"private.example": {"username": "a", "password": "b"}}}
    harness.secrets.add("one", json.dumps(config))
    harness.secrets.add("same", json.dumps(config))
    harness.secrets.add("other", json.dumps({"auths": {"private.example": {"username": "c", "password": "d"}}}))
    held = cri.hold("PullImage")
    pulls = [
        harness.runtime.pull_image("private.example/app:1", with_secrets(name), harness.node, harness.now)
        for name in ("one", "same", "other", "absent")
    ]
    assert await asyncio.to_thread(held.arrived)
    await asyncio.sleep(0.02)
    assert cri.count("PullImage") == 1  # pulls of the same image run one after the other
    pulls[0].cancel()  # the pull goes on for the second
    held.release()
    results = [await harness.wait(pull) for pull in pulls[1:]]
    assert all(result.image is not None for result in results)
    assert results[2].waited_seconds >= results[2].seconds
    users = [request.auth.username for request in cri.requests("PullImage")]
    assert users == ["a", "c", ""]


async def test_three_images_are_pulled_at_once(cri: FakeCri, harness: HostHarness) -> None:
    held = cri.hold("PullImage")
    pods = [make_pod(shell("sleep", image=f"app-{number}:1")) for number in range(5)]
    pulls = [harness.runtime.pull_image(f"app-{n}:1", pod, harness.node, harness.now) for n, pod in enumerate(pods)]
    for _ in range(3):
        assert await asyncio.to_thread(held.arrived)
    await asyncio.sleep(0.02)
    assert cri.count("PullImage") == 3
    held.release()
    for pull in pulls:
        assert (await harness.wait(pull)).image is not None


async def test_pull_errors_are_those_of_the_kubelet(cri: FakeCri, harness: HostHarness) -> None:
    async def pull(image: str) -> tuple[str, str]:
        pod = make_pod(shell("sleep", image=image))
        result = await harness.wait(harness.runtime.pull_image(image, pod, harness.node, harness.now))
        return result.reason, result.error

    cri.missing_image("busybox:none")
    text = 'failed to pull and unpack image "busybox:none": failed to resolve reference "busybox:none": busybox:none: not found'
    assert await pull("busybox:none") == ("ErrImagePull", f"rpc error: code = NotFound desc = {text}")
    cri.pull_errors["closed:1"] = FakeError("dial tcp 127.0.0.1:5999: connect: connection refused")
    assert await pull("closed:1") == ("ErrImagePull", "dial tcp 127.0.0.1:5999: connect: connection refused")
    cri.pull_errors["down:1"] = FakeError("RegistryUnavailable: 503")
    text = "image pull failed for down:1 because the registry is unavailable: 503"
    assert await pull("down:1") == ("RegistryUnavailable", text)
    cri.pull_errors["signed:1"] = FakeError("SignatureValidationFailed: no signature")
    text = "image pull failed for signed:1 because the signature validation failed: no signature"
    assert await pull("signed:1") == ("SignatureValidationFailed", text)


async def test_all_credentials_are_tried(cri: FakeCri, harness: HostHarness) -> None:
    auths = {"private.example/team": {"username": "team", "password": "1"}, "private.example": {"auth": "aG9zdDoy"}}
    harness.secrets.add("one", json.dumps({"auths": auths}))
    harness.secrets.add(
        "old",
        json.dumps({"https://private.example/v1/": {"username": "old", "password": "3"}}),
        "kubernetes.io/dockercfg",
    )
    image = "private.example/team/app:1"
    cri.fail("PullImage", "pull access denied", times=2)
    pod = with_secrets("one", "old", image=image)
    result = await harness.wait(harness.runtime.pull_image(image, pod, harness.node, harness.now))
    assert result.image is not None
    assert [request.auth.username for request in cri.requests("PullImage")] == ["team", "host", "old"]


async def test_a_lookup_that_fails_has_the_error_of_the_runtime(cri: FakeCri, harness: HostHarness) -> None:
    pod = make_pod(shell("sleep"))
    cri.fail("ImageStatus", "disk error")
    found = await harness.wait(harness.runtime.find_image("busybox:1", pod, harness.node))
    assert found == (None, "rpc error: code = Unknown desc = disk error")
    found = await harness.wait(harness.runtime.find_image("busybox:1", pod, harness.node))
    assert found.image is not None
    assert found.image.name == "docker.io/library/busybox:1" and "@sha256:" in found.image.id


async def test_nothing_is_kept_of_removed_pods(cri: FakeCri, harness: HostHarness) -> None:
    runtime = harness.runtime
    for number in range(20):
        pod = make_pod(shell("sleep"), name=f"pod-{number}")
        await harness.wait(runtime.mount_volumes(pod, harness.provider))
        record = await start_pod(harness, pod)
        runtime.stop_container(uid_of(pod), "main", harness.now, 1.0)
        await harness.until(lambda record=record: not record.running)  # type: ignore[misc]
        if number % 2:
            assert await harness.wait(runtime.stop_pod(uid_of(pod))) == ""
        runtime.remove_pod(uid_of(pod))
        runtime.remove_pod(uid_of(pod))
    await harness.poll(lambda: not runtime._removing)
    state, executor = runtime.state, runtime._executor
    tables = (runtime._pods, runtime._mounted, runtime._refreshing, state._pods, state._uids, state._removed)
    assert [len(table) for table in tables] == [0] * len(tables)
    assert executor.busy_pods == 0 and not runtime.images._pulls and not runtime._containers._deadlines
    assert cri.sandboxes == {} and cri.containers == {}
    await harness.poll(lambda: not runtime.observer._hints and len(executor._tasks) == 0)
    directories = harness.settings.directories
    assert [*directories.pods.iterdir()] == [*directories.logs.iterdir()] == []
