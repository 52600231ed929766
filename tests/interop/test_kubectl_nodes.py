"""Requests of kubectl to nodes, through the server: logs, top, exec, attach."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubectl_environment import kubectl_environment
from kubectl_runner import Kubectl, kubectls
from up_process import up_process

BINARIES = kubectls()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BINARIES, reason="no kubectl on the path, nor in SETPOINT_TEST_KUBECTL"),
]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The newest one."""
    directory = tmp_path_factory.mktemp("up")
    with up_process(directory, "--nodes", "2") as kubeconfig:
        yield Kubectl(BINARIES[-1], kubeconfig, directory, "default")


@pytest.fixture(scope="module")
def counter(kubectl: Kubectl) -> str:
    """A Pod that counts to three, a second each, again and again."""
    script = "echo begin >&2; for i in 1 2 3; do echo $i; sleep 1; done; exit 1"
    kubectl("run", "counter", "--image=busybox", "--", "sh", "-c", script)
    kubectl("wait", "pod/counter", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    return "counter"


def test_logs(kubectl: Kubectl, counter: str) -> None:
    followed = kubectl("logs", "-f", counter)
    assert followed == "begin\n1\n2\n3\n"
    kubectl("wait", "pod/counter", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "--timeout=30s")
    assert kubectl("logs", counter, "--previous") == followed
    assert kubectl("logs", counter, "--previous", "--tail=2") == "2\n3\n"
    assert kubectl("logs", counter, "--previous", "--limit-bytes=7") == "begin\n1"
    stamped = kubectl("logs", counter, "--previous", "--timestamps").splitlines()
    assert [line.split(" ", 1)[1] for line in stamped] == followed.splitlines()
    since = stamped[-1].split(" ")[0][:19] + "Z"
    assert kubectl("logs", counter, "--previous", f"--since-time={since}").endswith("3\n")
    assert "[pod/counter/counter] begin" in kubectl("logs", counter, "--previous", "--all-containers", "--prefix")


def test_missing_logs(kubectl: Kubectl) -> None:
    kubectl("run", "waits", "--image=nowhere.invalid/nothing:v1")
    told = kubectl.refused("logs", "waits")
    assert 'container "waits" in pod "waits" is waiting to start' in told
    assert 'pods "none" not found' in kubectl.refused("logs", "none")


def test_logs_of_the_control_plane(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    of = ("-n", "kube-system", "logs", "-l")
    told = kubectl(*of, "component=kube-controller-manager", "--tail=50")
    assert 'reason="SuccessfulCreate"' in told and len(told.splitlines()) <= 50
    assert 'reason="Scheduled"' in kubectl(*of, "component=kube-scheduler", "--tail=50")
    assert "serving on" in kubectl(*of, "component=kube-apiserver", "--tail=50")
    before = kubectl("-n", "kube-system", "get", "pod", "kube-scheduler-node-1", "-o", "jsonpath={.metadata.uid}")
    kubectl("-n", "kube-system", "delete", "pod", "kube-scheduler-node-1", "--wait=false")
    kubectl("-n", "kube-system", "wait", "pod", "-l", "component=kube-scheduler", "--for=create", "--timeout=20s")
    deadline = time.monotonic() + 20
    while True:
        now = kubectl.run("-n", "kube-system", "get", "pod", "kube-scheduler-node-1", "-o", "jsonpath={.metadata.uid}")
        if now.out not in ("", before):
            break
        assert time.monotonic() < deadline


def test_top(kubectl: Kubectl) -> None:
    kubectl("run", "busy", "--image=nginx", "--annotations=simulate.setpoint.dev/cpu=250m")
    kubectl("wait", "pod/busy", "--for=condition=Ready", "--timeout=30s")
    nodes = kubectl("top", "nodes").splitlines()
    assert [line.split()[0] for line in nodes] == ["NAME", "node-1", "node-2"]
    deadline = time.monotonic() + 60
    while True:
        result = kubectl.run("top", "pod", "busy")
        if result.code == 0:
            break
        assert time.monotonic() < deadline, result.err
        time.sleep(1)
    assert result.out.splitlines()[1].split()[:2] == ["busy", "250m"]


@pytest.mark.parametrize("binary", [BINARIES[0], BINARIES[-1]] if BINARIES else [], ids=lambda path: path.name)
def test_exec(kubectl: Kubectl, binary: Path) -> None:
    """The older ones speak SPDY, the newer ones WebSocket."""
    kubectl = replace(kubectl, binary=binary)
    box = f"box-{kubectl.minor}"
    kubectl("run", box, "--image=busybox", "--", "sleep", "1000")
    kubectl("wait", f"pod/{box}", "--for=condition=Ready", "--timeout=30s")
    assert kubectl("exec", box, "--", "echo", "hi") == "hi\n"
    assert "    1 root      0:00 sleep 1000\n" in kubectl("exec", box, "--", "ps")
    ended = kubectl.run("exec", box, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (ended.code, ended.out) == (3, "out\n")
    assert "err\n" in ended.err and "command terminated with exit code 3" in ended.err
    assert kubectl("exec", "-i", box, "--", "cat", stdin="typed\n") == "typed\n"
    given = kubectl.home / f"given-{box}"
    given.write_text("copied\n")
    kubectl("cp", str(given), f"{box}:/tmp/there")
    assert kubectl("exec", box, "--", "cat", "/tmp/there") == "copied\n"
    kubectl("cp", f"{box}:/tmp/there", f"{given}-back")
    assert Path(f"{given}-back").read_text() == "copied\n"
    assert "executable file not found" in kubectl.refused("exec", box, "--", "mysql")
    assert "container nope is not valid" in kubectl.refused("exec", box, "-c", "nope", "--", "ls")


@pytest.mark.parametrize("binary", [BINARIES[0], BINARIES[-1]] if BINARIES else [], ids=lambda path: path.name)
def test_port_forward(kubectl: Kubectl, binary: Path) -> None:
    """The older ones speak SPDY, the newer ones SPDY in a WebSocket."""
    kubectl = replace(kubectl, binary=binary)
    name = f"web-{kubectl.minor}"
    kubectl("run", name, "--image=nginx", "--port=80")
    kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=30s")
    command = [
        str(binary),
        "--kubeconfig",
        str(kubectl.kubeconfig),
        "-n",
        kubectl.namespace,
        "port-forward",
        name,
        ":80",
    ]
    environment = kubectl_environment(kubectl.home)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"Forwarding from 127.0.0.1:(\d+) -> 80\n", line)
            assert found is not None, line
            for _ in range(40):
                with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/", timeout=10) as reply:
                    assert "Welcome to nginx!" in reply.read().decode()
        finally:
            process.kill()
