from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Typed
from local_server import LocalServer

from setpoint.meta.objects import Obj


@pytest.fixture
async def web(local_server: LocalServer) -> None:
    spec = {
        "securityContext": {"runAsUser": 1000},
        "containers": [{"name": "main", "image": "i", "livenessProbe": {"tcpSocket": {"port": 80}}}],
    }
    meta = {"name": "web", "namespace": "default", "labels": {"app": "web"}}
    await local_server.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    await local_server.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})


async def pod(typed: Typed, name: str) -> Obj:
    found: Obj = json.loads(await typed(f"get pod {name} -o json"))
    return found


async def test_an_ephemeral_container(typed: Typed, web: None) -> None:
    done = await typed.run("debug web --image=busybox --target=main -- sh -c 'echo hi'")
    assert done.code == 0
    targeting, name = done.out.splitlines()
    assert targeting.startswith('Targeting container "main".')
    assert "Non-root user is configured for the entire target Pod" in done.err
    (made,) = (await pod(typed, "web"))["spec"]["ephemeralContainers"]
    assert name == f"Defaulting debug container name to {made['name']}."
    assert made["command"] == ["sh", "-c", "echo hi"] and made["targetContainerName"] == "main"
    assert made["securityContext"] == {"capabilities": {"add": ["SYS_PTRACE"]}}


async def test_a_copy_of_a_pod(typed: Typed, web: None) -> None:
    await typed("debug web --copy-to=again --image=busybox -c shell -q --set-image=*=other")
    made = await pod(typed, "again")
    assert "labels" not in made["metadata"] and made["spec"]["shareProcessNamespace"] is True
    main, shell = made["spec"]["containers"]
    assert main["image"] == "other" and "livenessProbe" not in main
    assert shell["image"] == "busybox"


async def test_a_debugging_pod_on_a_node(typed: Typed, web: None) -> None:
    out = await typed("debug node/n1 --image=busybox --profile=sysadmin")
    name = out.split()[3]
    assert out == f"Creating debugging pod {name} with container debugger on node n1.\n"
    spec = (await pod(typed, name))["spec"]
    assert spec["nodeName"] == "n1" and spec["hostPID"] and spec["hostNetwork"] and spec["hostIPC"]
    assert spec["containers"][0]["securityContext"] == {"privileged": True}
    assert {"mountPath": "/host", "name": "host-root"} in spec["containers"][0]["volumeMounts"]


async def test_a_custom_profile(typed: Typed, web: None, tmp_path: Path) -> None:
    custom = tmp_path / "custom.yaml"
    custom.write_text("env: [{name: A, value: b}]\nsecurityContext: {runAsUser: 0}\n")
    done = await typed.run(f"debug web --image=busybox -c own --env=C=d --custom={custom}")
    assert (done.code, done.err) == (0, "")
    (made,) = (await pod(typed, "web"))["spec"]["ephemeralContainers"]
    assert made["securityContext"] == {"runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE"]}}
    assert sorted(one["name"] for one in made["env"]) == ["A", "C"]
    custom.write_text("image: other\n")
    assert "are not modifiable via custom profile" in await typed.refused(f"debug web --image=x --custom={custom}")
    custom.write_text("- a\n")
    assert "does not contain a valid container spec" in await typed.refused(f"debug web --image=x --custom={custom}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("debug --image=x", "NAME or filename is required for debug"),
        ("debug web", "you must specify --image when not using --copy-to."),
        ("debug web --image=x -t", "-i/--stdin is required for containers with -t/--tty=true"),
        ("debug web --image=x --profile=y", "unknown profile: y"),
        ("debug web --image=x --env=y", "y must be formatted as key=value"),
        ("debug ns/default --image=x", '"v1, Kind=Namespace" not supported by debug'),
    ],
)
async def test_invalid_arguments_are_rejected(typed: Typed, web: None, line: str, told: str) -> None:
    assert told in await typed.refused(line)
