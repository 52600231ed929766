"""The contract of `setpoint.node.runtime.interface.ContainerRuntime`: subclass it and provide the fixture `harness`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from host_runtime import make_pod, shell, uid_of

from setpoint.kinds.typed import Pod
from setpoint.node.node_state import NodeState
from setpoint.node.pod_status import format_epoch
from setpoint.node.runtime.interface import (
    START_ERROR,
    ContainerConfig,
    ContainerRecord,
    ContainerRuntime,
    EnvironmentProvider,
    Operation,
    T,
)

FOREVER = "trap 'exit 0' TERM; while true; do sleep 0.05; done"
STUBBORN = "trap '' TERM; while true; do sleep 0.05; done"


class RuntimeHarness(Protocol):
    """A runtime, and how to wait for it."""

    @property
    def runtime(self) -> ContainerRuntime: ...

    @property
    def node(self) -> NodeState: ...

    @property
    def provider(self) -> EnvironmentProvider: ...

    @property
    def now(self) -> float: ...

    async def wait(self, operation: Operation[T]) -> T: ...

    async def until(self, condition: Callable[[], bool]) -> None: ...

    def config(self, pod: Pod, name: str = "main", attempt: int = 0) -> ContainerConfig: ...


class ContainerRuntimeSuite:
    """Each test begins without Pods."""

    image = "busybox:1"
    missing_image = "missing:1"

    def pod(self, script: str, **fields: Any) -> Pod:
        return make_pod(shell(script, image=self.image, **fields))

    async def running_pod(self, harness: RuntimeHarness, script: str = FOREVER, **fields: Any) -> Pod:
        """Create a Pod and its sandbox; its image is present."""
        pod = self.pod(script, **fields)
        assert not await harness.wait(harness.runtime.mount_volumes(pod, harness.provider))
        assert (await harness.wait(harness.runtime.create_sandbox(pod, harness.node))).error == ""
        pulled = await harness.wait(harness.runtime.pull_image(self.image, pod, harness.node, harness.now))
        assert pulled.error == ""
        return pod

    async def start(self, harness: RuntimeHarness, pod: Pod, attempt: int = 0) -> ContainerRecord:
        config = harness.config(pod, attempt=attempt)
        found = await harness.wait(harness.runtime.find_image(config.spec["image"], pod, harness.node))
        assert found.image is not None
        config.image, config.image_id = found.image.name, found.image.id
        result = await harness.wait(harness.runtime.start_container(uid_of(pod), config, harness.now))
        assert result.record is not None, result.error
        return result.record

    async def ended(self, harness: RuntimeHarness, record: ContainerRecord) -> ContainerRecord:
        await harness.until(lambda: not record.running)
        return record

    async def remove(self, harness: RuntimeHarness, pod: Pod) -> None:
        uid = uid_of(pod)
        harness.runtime.remove_pod(uid)
        await harness.until(lambda: not harness.runtime.records(uid).current)

    # -- images --------------------------------------------------------------------------------------------------------

    async def test_an_image_is_found_after_its_pull(self, harness: RuntimeHarness) -> None:
        pod, runtime = self.pod(FOREVER), harness.runtime
        result = await harness.wait(runtime.pull_image(self.image, pod, harness.node, harness.now))
        assert result.image is not None and result.error == "" and result.image.size_bytes > 0
        found = await harness.wait(runtime.find_image(self.image, pod, harness.node))
        assert found.image == result.image

    async def test_a_missing_image_is_not_found_and_its_pull_fails(self, harness: RuntimeHarness) -> None:
        pod, runtime = make_pod(shell(FOREVER, image=self.missing_image)), harness.runtime
        found = await harness.wait(runtime.find_image(self.missing_image, pod, harness.node))
        assert found.image is None and found.error == ""
        result = await harness.wait(runtime.pull_image(self.missing_image, pod, harness.node, harness.now))
        assert result.image is None and result.error and result.reason == "ErrImagePull"

    # -- sandbox -------------------------------------------------------------------------------------------------------

    async def test_a_sandbox_has_addresses_and_is_created_once(self, harness: RuntimeHarness) -> None:
        pod, runtime = self.pod(FOREVER), harness.runtime
        uid = uid_of(pod)
        assert not runtime.sandbox_ready(uid)
        first = await harness.wait(runtime.create_sandbox(pod, harness.node))
        assert first.ips and not first.error and runtime.sandbox_ready(uid)
        again = await harness.wait(runtime.create_sandbox(pod, harness.node))
        assert tuple(again.ips) == tuple(first.ips)
        assert tuple(runtime.restore_sandbox(pod, harness.node) or ()) == tuple(first.ips)
        runtime.remove_pod(uid)
        await harness.until(lambda: not runtime.sandbox_ready(uid))

    async def test_a_restored_run_knows_that_its_image_changed(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        record = await self.start(harness, pod)
        reported = {
            "containerID": record.id,
            "image": record.image,
            "imageID": record.image_id,
            "state": {"running": {"startedAt": format_epoch(record.started_at)}},
        }
        for image, outdated in ((self.image, False), ("other:2", True)):
            config = harness.config(pod)
            config.spec = {**config.spec, "image": image}
            found = harness.runtime.restore_container(uid_of(pod), config, reported, harness.now)
            assert found is not None and found.id == record.id and found.outdated == outdated
        await self.remove(harness, pod)

    async def test_a_stopped_pod_has_no_sandbox(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness, "exit 0")
        await self.ended(harness, await self.start(harness, pod))
        assert await harness.wait(harness.runtime.stop_pod(uid_of(pod))) == ""
        assert not harness.runtime.sandbox_ready(uid_of(pod))
        assert await harness.wait(harness.runtime.stop_pod(uid_of(pod))) == ""
        await self.remove(harness, pod)

    # -- containers ----------------------------------------------------------------------------------------------------

    async def test_a_started_container_runs(self, harness: RuntimeHarness) -> None:
        pod, began = await self.running_pod(harness), harness.now
        record = await self.start(harness, pod)
        assert record.running and record.name == "main" and record.attempt == 0 and "://" in record.id
        assert began - 1 <= record.started_at <= harness.now + 1
        assert record.image and record.image_id
        assert harness.runtime.records(uid_of(pod)).current == {"main": record}
        await self.remove(harness, pod)

    async def test_the_record_shows_the_exit(self, harness: RuntimeHarness) -> None:
        for script, code, reason in (("exit 3", 3, "Error"), ("exit 0", 0, "Completed")):
            pod = await self.running_pod(harness, script)
            record = await self.ended(harness, await self.start(harness, pod))
            assert (record.exit_code, record.reason) == (code, reason)
            assert record.finished_at is not None and record.finished_at >= record.started_at
            assert harness.runtime.records(uid_of(pod)).current["main"] is record
            await self.remove(harness, pod)

    async def test_a_restart_keeps_the_previous_run(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness, "exit 4")
        first = await self.ended(harness, await self.start(harness, pod))
        second = await self.ended(harness, await self.start(harness, pod, attempt=1))
        third = await self.ended(harness, await self.start(harness, pod, attempt=2))
        assert len({first.id, second.id, third.id}) == 3 and third.attempt == 2
        records = harness.runtime.records(uid_of(pod))
        assert records.current == {"main": third} and records.previous == {"main": second}
        await self.remove(harness, pod)

    async def test_a_program_that_does_not_exist_is_a_start_error(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness, "", command=["no-such-program"])
        record = await self.start(harness, pod)
        assert not record.running
        assert (record.reason, record.exit_code) == (START_ERROR, 128)
        assert "no-such-program" in record.message
        await self.remove(harness, pod)

    async def test_a_stopped_container_ends(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        record = await self.start(harness, pod)
        # The kernel drops a signal that the first process gets before its trap is set: then the grace period ends it.
        harness.runtime.stop_container(uid_of(pod), "main", harness.now, 2.0)
        await self.ended(harness, record)
        assert record.finished_at is not None and record.finished_at <= harness.now + 1
        await self.remove(harness, pod)

    async def test_a_later_stop_shortens_the_grace_period(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness, STUBBORN)
        record = await self.start(harness, pod)
        harness.runtime.stop_container(uid_of(pod), "main", harness.now, 300.0)
        assert record.running
        harness.runtime.stop_container(uid_of(pod), "main", harness.now, 1.0)
        assert (await self.ended(harness, record)).exit_code == 137
        await self.remove(harness, pod)

    async def test_a_killed_container_has_the_given_reason(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness, STUBBORN)
        record = await self.start(harness, pod)
        harness.runtime.kill_container(uid_of(pod), "main", harness.now, "RestartingAllContainers")
        await self.ended(harness, record)
        assert (record.exit_code, record.reason) == (137, "RestartingAllContainers")
        await self.remove(harness, pod)

    async def test_stopping_what_does_not_run_does_nothing(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness, "exit 0")
        harness.runtime.stop_container(uid_of(pod), "main", harness.now, 1.0)
        harness.runtime.kill_container(uid_of(pod), "absent", harness.now, "OOMKilled")
        record = await self.ended(harness, await self.start(harness, pod))
        harness.runtime.kill_container(uid_of(pod), "main", harness.now, "OOMKilled")
        assert (record.exit_code, record.reason) == (0, "Completed")
        await self.remove(harness, pod)

    async def test_resources_are_updated(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        await self.start(harness, pod)
        config = harness.config(pod)
        config.spec = {**config.spec, "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}
        assert await harness.wait(harness.runtime.update_resources(uid_of(pod), config)) == ""
        await self.remove(harness, pod)

    async def test_a_removed_pod_leaves_nothing(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        await self.start(harness, pod)
        await self.remove(harness, pod)
        await harness.until(lambda: not harness.runtime.sandbox_ready(uid_of(pod)))
        assert harness.runtime.records(uid_of(pod)).current == {}

    # -- probes and hooks ----------------------------------------------------------------------------------------------

    async def probe(self, harness: RuntimeHarness, pod: Pod, spec: Mapping[str, Any]) -> tuple[bool, str]:
        container = pod["spec"]["containers"][0]
        operation = harness.runtime.probe(uid_of(pod), container, "readiness", spec, pod, "127.0.0.1")
        result = await harness.wait(operation)
        return result.success, result.output

    async def test_exec_probes_follow_the_exit_code(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        await self.start(harness, pod)
        assert (await self.probe(harness, pod, {"exec": {"command": ["/bin/true"]}}))[0]
        failing = {"exec": {"command": ["/bin/sh", "-c", "echo not yet; exit 1"]}}
        assert await self.probe(harness, pod, failing) == (False, "not yet\n")
        await self.remove(harness, pod)

    async def test_exec_hooks_follow_the_exit_code(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        await self.start(harness, pod)
        container = pod["spec"]["containers"][0]
        for command, expected in (["/bin/true"], True), (["/bin/false"], False):
            hook = {"exec": {"command": command}}
            operation = harness.runtime.run_hook(uid_of(pod), container, hook, harness.now, pre_stop=False)
            assert (await harness.wait(operation)).success is expected
        await self.remove(harness, pod)

    async def test_sleep_hooks_succeed(self, harness: RuntimeHarness) -> None:
        pod = await self.running_pod(harness)
        await self.start(harness, pod)
        hook, container = {"sleep": {"seconds": 1}}, pod["spec"]["containers"][0]
        operation = harness.runtime.run_hook(uid_of(pod), container, hook, harness.now, pre_stop=True)
        assert operation.result(harness.now) is None
        assert (await harness.wait(operation)).success
        await self.remove(harness, pod)
