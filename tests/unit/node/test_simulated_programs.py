"""Simulated programs behave like the real ones, or report that they are not simulated."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_shell import run

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.node.runtime.files import Files, User
from setpoint.testing import VirtualCluster, virtual

PODS = builtin("pods")


@pytest.mark.parametrize(
    ("script", "code", "expected"),
    [
        ("echo x > /f; chown 5:6 /f; stat -c '%u %g' /f; chgrp 7 /f; stat -c '%u %g' /f", 0, "5 6\n5 7\n"),
        (
            "mkdir /d; echo x > /d/f; chown -R 5 /d; stat -c %u /d/f; chown nobody /d || echo $?",
            0,
            "5\nchown: unknown user nobody\n1\n",
        ),
        (
            "adduser -D -u 7 me; echo x > /f; chown me /f; stat -c %u /f; adduser me",
            1,
            "7\nadduser: user 'me' in use\n",
        ),
        (
            "echo a > /f; ln -s /f /g; cat /g; echo b > /f; cat /g; readlink /g; [ -L /g ] && rm /g; cat /f",
            0,
            "a\nb\n/f\nb\n",
        ),
        ("mkdir -p /v1; echo 1 > /v1/x; ln -s v1 /now; cat /now/x; ls /now", 0, "1\nx\n"),
        ("ln /none /x", 1, "ln: /none: No such file or directory\n"),
        (
            "echo hello > /f; gzip /f; ls /f.gz; gunzip -c /f.gz; gunzip /f.gz; cat /f; echo no | gunzip || echo $?",
            0,
            "/f.gz\nhello\nhello\ngunzip: invalid magic\n1\n",
        ),
        (
            "printf 'a b\\nc' | xargs echo x; printf 'a\\nb' | xargs -n 1 echo; printf 'a\\nb' | xargs -I{} echo [{}]",
            0,
            "x a b c\na\nb\n[a]\n[b]\n",
        ),
        ("su -c 'echo hi' root; umask; ulimit -n", 0, "hi\n0022\n1048576\n"),
        ("which cat nothing || echo $?; command -v sh; type cat", 0, "/bin/cat\n1\n/bin/sh\ncat is /bin/cat\n"),
        (
            "d=$(mktemp -d); f=$(mktemp); [ -d $d ] && [ -f $f ] && rmdir $d; [ -d $d ] || echo gone; rmdir /tmp",
            1,
            "gone\nrmdir: '/tmp': Directory not empty\n",
        ),
        (
            "echo a > /f; echo b > /g; diff /f /g; cmp -s /f /g || echo differ; printf '1\\n2\\n' | tac; echo ab | rev",
            0,
            "--- /f\n+++ /g\n@@ -1 +1 @@\n-a\n+b\ndiffer\n2\n1\nba\n",
        ),
        ("truncate -s 3 /f; wc -c /f; nproc; echo x | egrep 'x|y'; declare y=2; echo $y", 0, "3 /f\n8\nx\n2\n"),
        (
            "echo abc > /d/f; chmod 600 /d/f; mkdir /d/e; touch /d/.x; ls /d; ls -l /d/f; ls -la /d | wc -l; "
            "echo hello | head -c 2",
            0,
            "e\nf\n-rw-------    1 root     root             4 /d/f\n3\nhe",
        ),
        (
            "mkdir -p /d/e /d/g; touch /d/f /d/e/h /d/e/.x; ls -R /d; cd /d/e; ls /d/g .",
            0,
            "/d:\ne\nf\ng\n\n/d/e:\nh\n\n/d/g:\n/d/g:\n\n.:\nh\n",
        ),
        (
            "mkdir -p /d/e /empty; echo 1 > /d/f; echo 2 > /d/e/g; cp /d /t; cp -r /d /t; cp -rv /d /t; cp -a /empty /t; "
            "mv /d /moved; cat /t/f /t/e/g /t/d/e/g /moved/e/g; ls /t; ls -d /d",
            1,
            "cp: omitting directory '/d'\n'/d' -> '/t/d'\n1\n2\n2\n2\nd\ne\nempty\nf\n"
            "ls: /d: No such file or directory\n",
        ),
        ("mkdir /d; echo 1 > /d/f; cp -r /d /d/e; ls -R /d", 0, "/d:\ne\nf\n\n/d/e:\nf\n"),
        ("echo 'x=5' > /s; . /s; echo $x", 0, "5\n"),
        (
            "mount /a /b; umount /b; mkfifo /p; free; top",
            1,
            "mount: permission denied (are you root?)\numount: can't unmount /b: Operation not permitted\n"
            "mkfifo: /p: Operation not supported\nfree: can't open '/proc/meminfo': No such file or directory\n"
            "top: no process info in /proc\n",
        ),
        (
            "stress --cpu 2 --timeout 5s; date +%s",
            0,
            "stress: info: [1] dispatching hogs: 2 cpu, 0 io, 0 vm, 0 hdd\n"
            "stress: info: [1] successful run completed in 5s\n5\n",
        ),
    ],
)
def test_output_and_exit_code(script: str, code: int, expected: str) -> None:
    found, output = run(script)
    assert (found, output) == (code, expected)


def test_only_root_changes_owners() -> None:
    files = Files(initial={"/f": "x"}, user=User(uid=1000))
    assert run("chown 5 /f", files=files) == (1, "chown: /f: Operation not permitted\n")


async def start(cluster: VirtualCluster, name: str, image: str, command: list[str], **spec: Any) -> None:
    container = {"name": "c", "image": image, "command": command, **spec.pop("c", {})}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container], "restartPolicy": "Never", **spec},
        }
    )


async def terminated_state(cluster: VirtualCluster, name: str) -> Obj:
    (status,) = (await cluster.client.get(PODS, name, "default"))["status"]["containerStatuses"]
    found: Obj = status["state"].get("terminated") or {}
    return found


@virtual(nodes=1)
async def test_a_fully_known_image_has_no_other_programs(cluster: VirtualCluster) -> None:
    await start(cluster, "script", "busybox", ["sh", "-c", "frobnicate && echo well"])
    await start(cluster, "bash", "ubuntu", ["bash", "-c", "jq . /x || frobnicate"])
    await start(cluster, "first", "busybox", ["frobnicate", "-x"])
    await start(cluster, "own", "example.com/app", ["frobnicate", "-x"])
    await start(cluster, "server", "busybox", ["httpd", "-f"])
    await cluster.sleep(3)
    logs = {
        name: (await cluster.client.sender.request("GET", f"/api/v1/namespaces/default/pods/{name}/log")).body.decode()
        for name in ("script", "bash")
    }
    assert logs == {
        "script": "sh: frobnicate: not found\n",
        "bash": "jq: this program is not simulated\nbash: line 1: frobnicate: command not found\n",
    }
    assert [
        (await terminated_state(cluster, name)).get("exitCode") for name in ("script", "bash", "own", "server")
    ] == [
        127,
        127,
        None,
        None,
    ]
    failed = await terminated_state(cluster, "first")
    message = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        "unable to start container process: error during container init: "
        'exec: "frobnicate": executable file not found in $PATH'
    )
    assert (failed["reason"], failed["exitCode"], failed["message"]) == ("StartError", 128, message)
    assert failed["startedAt"] == "1970-01-01T00:00:00Z"
    assert ("Warning", "Failed", f"Error: {message}") in await cluster.events("first")


@virtual(nodes=1)
async def test_stress_uses_the_requested_resources(cluster: VirtualCluster) -> None:
    limits = {"resources": {"limits": {"memory": "100Mi"}}}
    args = ["stress", "--vm", "1", "--vm-bytes"]
    await start(cluster, "small", "polinux/stress", [*args, "50M", "--vm-hang", "1"], c=limits)
    await start(cluster, "large", "polinux/stress", [*args, "250M", "--vm-hang", "1"], c=limits)
    await cluster.sleep(20)
    large = await terminated_state(cluster, "large")
    assert (large["reason"], large["exitCode"]) == ("OOMKilled", 137)
    assert await terminated_state(cluster, "small") == {}
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/small"
    reply = await cluster.client.sender.request("GET", path)
    assert b'"memory":"50Mi"' in bytes(reply.body), reply.body
