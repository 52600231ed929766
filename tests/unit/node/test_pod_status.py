"""The patches by which the status of a Pod is reported."""

from __future__ import annotations

from typing import Any

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
