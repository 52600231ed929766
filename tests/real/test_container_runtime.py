"""The contract of ContainerRuntime with containerd, and what only real containers show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from container_runtime_suite import FOREVER, ContainerRuntimeSuite
from host_runtime import HostHarness, host_runtime, make_pod, shell, uid_of
from images import TAG
from real_containerd import Containerd
from real_registry import PORT

from setpoint.kinds.typed import Pod
from setpoint.node.runtime.interface import ContainerRecord

pytestmark = pytest.mark.real

IMAGE = f"127.0.0.1:{PORT}/busybox:{TAG}"


@pytest.fixture
async def harness(containerd: Containerd, tmp_path: Path) -> AsyncIterator[HostHarness]:
    async with host_runtime(containerd.endpoint, tmp_path, cgroup_root=containerd.cgroup_root) as harness:
        yield harness
        for uid in harness.runtime.state.uids():
            await harness.runtime.remove_orphan(uid)


class TestContainerd(ContainerRuntimeSuite):
    image = IMAGE
    missing_image = f"127.0.0.1:{PORT}/missing:{TAG}"


async def start(harness: HostHarness, pod: Pod) -> ContainerRecord:
    """Bring a Pod with one container up."""
    runtime, uid = harness.runtime, uid_of(pod)
    assert (await harness.wait(runtime.create_sandbox(pod, harness.node))).error == ""
    pulled = await harness.wait(runtime.pull_image(IMAGE, pod, harness.node, harness.now))
    assert pulled.error == ""
    result = await harness.wait(runtime.start_container(uid, harness.config(pod), harness.now))
    assert result.record is not None, result.error
    return result.record


async def end(harness: HostHarness, pod: Pod) -> ContainerRecord:
    record = await start(harness, pod)
    await harness.until(lambda: not record.running)
    return record


async def test_the_termination_message_is_from_the_file(harness: HostHarness) -> None:
    script = "echo -n finished > /dev/termination-log; exit 3"
    record = await end(harness, make_pod(shell(script, image=IMAGE)))
    assert (record.exit_code, record.message) == (3, "finished")


async def test_the_termination_message_falls_back_to_the_log(harness: HostHarness) -> None:
    script = "for n in $(seq 100); do echo line $n; done; exit 1"
    container = shell(script, image=IMAGE, terminationMessagePolicy="FallbackToLogsOnError")
    record = await end(harness, make_pod(container))
    assert record.message == "".join(f"line {number}\n" for number in range(21, 101))


async def test_a_container_without_memory_is_oom_killed(harness: HostHarness) -> None:
    resources = {"limits": {"memory": "32Mi"}}
    record = await end(harness, make_pod(shell("exec tail /dev/zero", image=IMAGE, resources=resources)))
    assert (record.exit_code, record.reason) == (137, "OOMKilled")


async def test_files_of_the_pod(harness: HostHarness) -> None:
    aliases = [{"ip": "192.0.2.7", "hostnames": ["alias"]}]
    script = "{ hostname; grep -E 'alias|web' /etc/hosts; } > /dev/termination-log"
    pod = make_pod(shell(script, image=IMAGE), hostAliases=aliases)
    record = await end(harness, pod)
    ip = harness.runtime.state.sandboxes(uid_of(pod))[0].ips[0]
    assert record.message == f"web\n{ip}\tweb\n192.0.2.7\talias\n"


async def test_an_exit_is_observed_soon(harness: HostHarness) -> None:
    pod = make_pod(shell("sleep 0.5; exit 7", image=IMAGE))
    record = await end(harness, pod)
    assert record.finished_at is not None and record.exit_code == 7
    assert harness.now - record.finished_at < 3.0  # long before the next list


async def test_probes_and_hooks_reach_the_pod(harness: HostHarness) -> None:
    pod = make_pod(shell("mkdir /w && echo hi > /w/index.html && exec httpd -f -p 8080 -h /w", image=IMAGE))
    await start(harness, pod)
    runtime, uid, container = harness.runtime, uid_of(pod), pod["spec"]["containers"][0]
    ip = runtime.state.sandboxes(uid)[0].ips[0]

    async def probe(spec: dict[str, object]) -> tuple[bool, str]:
        found = await harness.wait(runtime.probe(uid, container, "readiness", spec, pod, ip))
        assert not found.errored
        return found.success, found.output

    async with asyncio.timeout(20):
        while not (await probe({"tcpSocket": {"port": 8080}}))[0]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert await probe({"httpGet": {"port": 8080, "path": "/"}, "timeoutSeconds": 10}) == (True, "")
    found = await probe({"httpGet": {"port": 8080, "path": "/none"}, "timeoutSeconds": 10})
    assert found == (False, "HTTP probe failed with statuscode: 404")
    found = await probe({"httpGet": {"port": 81, "path": "/"}})
    assert found == (False, f'Get "http://{ip}:81/": dial tcp {ip}:81: connect: connection refused')
    found = await probe({"exec": {"command": ["sleep", "20"]}, "timeoutSeconds": 1})
    assert found == (False, 'command timed out: "sleep 20" timed out after 1s')
    hook = {"httpGet": {"port": 8080, "path": "/stop"}}
    assert (await harness.wait(runtime.run_hook(uid, container, hook, harness.now, pre_stop=True))).success


async def test_containers_outlive_containerd_and_the_agent(
    containerd: Containerd, harness: HostHarness, tmp_path: Path
) -> None:
    forever, ends = make_pod(shell(FOREVER, image=IMAGE)), make_pod(shell("sleep 1; exit 9", image=IMAGE), name="ends")
    running, ending = await start(harness, forever), await start(harness, ends)
    await asyncio.to_thread(containerd.kill)
    await asyncio.sleep(1.5)
    assert running.running and ending.running
    await asyncio.to_thread(containerd.start)
    await harness.until(lambda: not ending.running)
    # containerd 2.x has forgotten the exit code of a container that ended while it did not run.
    assert running.running and (ending.exit_code, ending.reason) in ((9, "Error"), (255, "Unknown"))
    async with host_runtime(containerd.endpoint, tmp_path, cgroup_root=containerd.cgroup_root) as second:
        restored = second.runtime.restore_container(uid_of(forever), second.config(forever), {}, second.now)
        assert restored == running
        assert await second.runtime.orphans({uid_of(ends)}) >= {uid_of(forever)}
        await second.runtime.remove_orphan(uid_of(forever))
        assert uid_of(forever) not in second.runtime.state.uids()
    await harness.runtime.observer.relist()
    assert not running.running
