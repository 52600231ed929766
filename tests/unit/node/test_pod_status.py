"""The status of a Pod, and the patches by which it is reported."""

from __future__ import annotations

from typing import Any

from scripted_pod import ScriptedPod

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.node.pod_status import status_changes, with_changes

PODS = builtin("pods")


async def test_pod_gets_another_address(local_server: Any) -> None:
    """A Pod whose sandbox was lost, such as in a reboot, has another address in the new one."""
    meta = {"name": "web", "namespace": "default"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**meta, "name": "default"}}
    await local_server.client.create(account)
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    pod: Obj = await local_server.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    for addresses in (["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::1"], ["10.0.0.3"]):
        wanted = {"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]}
        patch = {"status": status_changes(pod["status"], wanted)}
        pod = await local_server.client.patch(PODS, "web", patch, "default", kind="strategic", subresource="status")
        assert pod["status"]["podIPs"] == wanted["podIPs"]
        assert status_changes(pod["status"], wanted) == {}


def test_local_status_has_no_directives() -> None:
    conditions = [
        {"type": "Ready", "status": "True", "reason": None},
        {"type": "PodResizePending", "$patch": "delete"},
    ]
    found = with_changes({"qosClass": "BestEffort", "phase": "Pending"}, {"phase": "Running", "conditions": conditions})
    assert found == {"qosClass": "BestEffort", "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def test_recursive_read_only_mounts() -> None:
    """They are read-only recursively if the default handler of the runtime supports that."""
    modes: list[Obj] = [
        {"readOnly": True, "recursiveReadOnly": "Enabled"},
        {"readOnly": True, "recursiveReadOnly": "IfPossible", "mountPropagation": "None"},
        {"readOnly": True, "recursiveReadOnly": "IfPossible", "mountPropagation": "HostToContainer"},
        {"readOnly": True, "recursiveReadOnly": "Disabled"},
        {"readOnly": True},
        {},
    ]
    mounts = [{"name": "v", "mountPath": f"/{at}", **mode} for at, mode in enumerate(modes)]
    spec = {"containers": [{"name": "main", "image": "example.com/image:1", "volumeMounts": mounts}], "volumes": []}

    def reported(*handlers: Obj) -> list[str | None]:
        pod = ScriptedPod(spec)
        pod.node.object = {"metadata": {"name": "node-1"}, "spec": {}, "status": {"runtimeHandlers": handlers}}
        pod.sync()
        found = pod.stored["status"]["containerStatuses"][0]["volumeMounts"]
        assert [each["mountPath"] for each in found] == [each["mountPath"] for each in mounts]
        return [each.get("recursiveReadOnly") for each in found]

    supported = {"features": {"recursiveReadOnlyMounts": True}}
    none: list[str | None] = ["Disabled"] * 5 + [None]
    assert reported({"name": "", **supported}, {"name": "other"}) == ["Enabled", "Enabled", *none[2:]]
    assert reported({"name": ""}, {"name": "other", **supported}) == none
    assert reported() == none
