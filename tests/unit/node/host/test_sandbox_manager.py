"""The sandboxes of a node's Pods."""

from __future__ import annotations

from pathlib import Path

from fake_cri import FakeCri
from host_runtime import host_runtime, make_pod, shell


async def test_a_sandbox_has_the_handler_of_the_pods_runtime_class(tmp_path: Path) -> None:
    classes = {"sandboxed": "gvisor"}
    with FakeCri() as cri:
        async with host_runtime(
            cri.endpoint, tmp_path, runtime_handler=lambda pod: classes.get(pod["spec"].get("runtimeClassName", ""))
        ) as harness:
            pod = make_pod(shell("sleep"), runtimeClassName="sandboxed")
            created = await harness.wait(harness.runtime.create_sandbox(pod, harness.node))
            assert not created.error
            assert [each.runtime_handler for each in cri.requests("RunPodSandbox")] == ["gvisor"]
            absent = make_pod(shell("sleep"), runtimeClassName="absent")
            created = await harness.wait(harness.runtime.create_sandbox(absent, harness.node))
            assert created.error == 'runtimeclass.node.k8s.io "absent" not found'
            assert cri.count("RunPodSandbox") == 1
