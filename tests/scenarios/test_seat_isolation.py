"""The process of a class's seats, traced: whatever a learner does, it opens no file of the machine, starts no program
and makes no connection. Needs strace; SETPOINT_REQUIRE_STRACE makes it a failure that it is missing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_client import PageTab, open_tab

SEAT, HOST = "s00000001", "class.test"
SECRET = "what-only-the-machine-knows"
CALLS = "%file,socket,connect,bind,execve,execveat,fork,vfork,clone,clone3"
READS = ("open", "openat", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink")
_LINE = re.compile(r"\d+ +(?P<at>[\d.]+) (?P<call>\w+)\((?P<arguments>.*)")


def _missing(what: str) -> None:
    if os.environ.get("SETPOINT_REQUIRE_STRACE"):
        pytest.fail(f"{what}, and SETPOINT_REQUIRE_STRACE is set")
    pytest.skip(what)


class TracedWorker:
    """A worker whose system calls with names of files, connections and processes are recorded."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "worker"
        self._trace = folder / "trace"
        command = ["strace", "-f", "--seccomp-bpf", "-qq", "-ttt", "-e", f"trace={CALLS}", "-o", str(self._trace)]
        command += [sys.executable, "-m", "setpoint", "__class-worker"]
        # The current directory is no place for modules.
        environment = {**os.environ, "MACHINE_SECRET": SECRET, "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=folder, env=environment)
        settings = {
            "socket": str(self.socket),
            "seats": 2,
            "hosts": [HOST],
            "tls": False,
            "lessons": "",
            "sleepAfter": 300,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        self._process.stdin.flush()
        deadline = time.monotonic() + 60
        while not self.socket.exists() and time.monotonic() < deadline:
            time.sleep(0.1)

    async def add_seat(self) -> None:
        """Take a seat, as the front does."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        data = json.dumps({"nickname": "Eve"}).encode()
        head = f"PUT /class/v1/seats/{SEAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n"
        writer.write(f"{head}\r\n".encode() + data)
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200"), answer

    def stop(self) -> None:
        """End the worker, by the end of its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def calls(self, since: float, until: float) -> list[tuple[str, str]]:
        """Return the calls between two times, with their arguments."""
        lines = map(_LINE.match, self._trace.read_text(errors="replace").splitlines())
        return [(line["call"], line["arguments"]) for line in lines if line and since < float(line["at"]) < until]


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[TracedWorker]:
    if shutil.which("strace") is None:
        _missing("strace is not installed")
    if subprocess.run(["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "true"], capture_output=True).returncode:
        pytest.skip("the kernel does not permit to trace processes here, which no package changes")
    (tmp_path / "process").mkdir()
    found = TracedWorker(tmp_path / "process")
    yield found
    found.stop()


def code_of_the_worker() -> tuple[str, ...]:
    """Return the directories with the code of the worker, which it loads when it is first used."""
    command = [sys.executable, "-P", "-c", "import sys; print(sys.prefix, sys.base_prefix, *sys.path, sep='\\n')"]
    return tuple(filter(None, subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()))


PROCESSORS = "/sys/devices/system/cpu/possible"
"""The number of processors, which numpy reads when it is loaded, with the first Pod of a cluster."""


def violations(calls: list[tuple[str, str]]) -> list[str]:
    """Return the calls with which something of the machine can be reached."""
    found, code = [], code_of_the_worker()
    for call, arguments in calls:
        path = re.search(r'"((?:[^"\\]|\\.)*)"', arguments)
        writes = re.search("O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", arguments) or call not in READS
        if call in ("clone", "clone3"):
            harmless = "CLONE_THREAD" in arguments
        elif path is None:
            harmless = call in READS  # the file is one that is open already
        else:
            is_code = not path[1] or os.path.normpath(path[1]).startswith(code)
            harmless = (is_code and (not writes or "__pycache__" in path[1])) or (path[1] == PROCESSORS and not writes)
        if not harmless:
            found.append(f"{call}({arguments[:200]}")
    return found


LINES = (
    "cat {canary}; cat < {canary}; head {canary}; . {canary}; source {canary}; cd {folder} && ls; ls {folder} /root /proc",
    "echo $(cat {canary}); cat /home/user/../..{canary}; cat ../../../../../../..{canary}; cat /proc/self/environ",
    "echo changed > {canary}; rm -rf {folder} /; mv {canary} {canary}.moved; ln -s {canary} link; cat link",
    "env; printenv; export; set; echo $MACHINE_SECRET $HOME $PATH $PYTHONPATH",
    "sh -c 'cat {canary}'; bash -c 'cat {canary}'; /bin/cat {canary}; python3 -c 'print(open(\"{canary}\").read())'",
    "curl http://127.0.0.1:{port}/; wget http://127.0.0.1:{port}/; nc 127.0.0.1 {port}; ssh 127.0.0.1; ping 127.0.0.1",
    "kubectl apply -f {canary}; kubectl apply -f {folder}; kubectl apply -k {folder}; kubectl diff -f {canary}",
    "kubectl apply -f http://127.0.0.1:{port}/x.yaml; kubectl create -f https://127.0.0.1:{port}/x.yaml",
    "kubectl apply -k http://127.0.0.1:{port}/x; kubectl kustomize {folder}",
    "kubectl create configmap leaked --from-file={canary}; kubectl create secret generic l --from-file={canary}",
    "kubectl get pods --kubeconfig {canary}; KUBECONFIG={canary} kubectl get pods; kubectl config view --raw",
    "kubectl get pods --server http://127.0.0.1:{port}; kubectl --token x -s https://127.0.0.1:{port} get nodes",
    "kubectl get --raw /../../..{canary}; kubectl get pods -o jsonpath-file={canary}; kubectl get pods --cache-dir {folder}",
    "kubectl cp {canary} box:/tmp/x; kubectl cp box:/etc/hostname {folder}/copied; kubectl cluster-info dump --output-directory {folder}",
    "kubectl proxy --port 0; kubectl port-forward pod/box {port}; kubectl plugin list; kubectl hello; kubectl edit node node-1",
    "setpoint up --data-dir {folder}; setpoint down; setpoint lesson test {folder}; setpoint page; setpoint class; setpoint apiserver",
    "kubectl exec box -- cat {canary}; kubectl exec box -- wget -O- http://127.0.0.1:{port}/; kubectl exec box -- sh -c 'cat /proc/1/environ {canary}'",
    "kubectl exec box -- nc 127.0.0.1 {port}; kubectl exec box -- nslookup localhost; kubectl logs box; kubectl attach box",
)


async def typed(tab: PageTab, line: str, most: float = 2.0) -> str:
    """Type a line into the terminal, and return what it shows. What takes more than so many seconds is interrupted, what
    edits is closed."""
    tab.send(1, "say", data={"line": line})
    shown = ""
    while True:
        interrupt = asyncio.get_running_loop().call_later(most, lambda: tab.send(1, "say", data={"input": "\x03"}))
        last, read = await tab.until(1, "prompt", "edit")
        interrupt.cancel()
        shown += "".join(str(each.get("output", "")) for each in read)
        if "prompt" in last:
            return shown
        tab.send(1, "say", data={"edited": last["edit"]["id"], "saved": False})


def hook(port: int) -> dict[str, Any]:
    """A webhook for new ConfigMaps that is at another server."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "out"},
        "webhooks": [
            {
                "name": "out.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
                "rules": [rule],
            }
        ],
    }


def api_service(port: int) -> dict[str, Any]:
    """A part of the API that another server answers."""
    spec = {"group": "out.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    service = {"namespace": "default", "name": "out", "port": port}
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.out.example.com"}}
    return {**kind, "spec": {**spec, "insecureSkipTLSVerify": True, "service": service}}


def reaching_pod(folder: Path, port: int) -> dict[str, Any]:
    """A Pod with a directory of the machine, and with checks that connect to the machine."""
    check = {"httpGet": {"host": "127.0.0.1", "port": port}, "periodSeconds": 1}
    script = f"cat /machine/canary.yaml {folder}/canary.yaml; wget -O- http://127.0.0.1:{port}/; sleep 1d"
    container = {
        "name": "c",
        "image": f"127.0.0.1:{port}/image",
        "command": ["sh", "-c", script],
        "readinessProbe": check,
        "lifecycle": {"postStart": {"httpGet": check["httpGet"]}},
        "volumeMounts": [{"name": "machine", "mountPath": "/machine"}],
    }
    volumes = [{"name": "machine", "hostPath": {"path": str(folder)}}]
    spec = {"hostNetwork": True, "hostPID": True, "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reaching"}, "spec": spec}


LESSON = """---
title: Mine
start: {nodes: 1}
---
![picture](../../../..CANARY) ![picture](http://127.0.0.1:PORT/x.png) [link](file://CANARY)

:::file ../../../..CANARY
changed
:::

:::check leaked
say: The file is {text}
let: {text: 'file("../../../../..CANARY")'}
when: 'file("CANARY") != ""'
:::

:::solution
kubectl get pods
:::
"""


async def use_api(tab: PageTab, folder: Path, port: int) -> str:
    """Create objects that name the machine, and return the answers."""
    shown = []
    default = "/api/v1/namespaces/default"
    for path, body in (
        (
            f"{default}/services",
            {"metadata": {"name": "out"}, "spec": {"type": "ExternalName", "externalName": "localhost"}},
        ),
        ("/apis/apiregistration.k8s.io/v1/apiservices", api_service(port)),
        (f"{default}/pods", reaching_pod(folder, port)),
        ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", hook(port)),
        (f"{default}/configmaps", {"metadata": {"name": "hooked"}}),
    ):
        answer = await tab.request(path, "POST", body=body)
        shown.append(answer)
    assert [each["status"] for each in shown] == [201, 201, 201, 201, 500], shown
    assert "this server does not call others" in shown[-1]["body"]["message"]
    await asyncio.sleep(1.5)  # a probe or two, and the check of the APIService
    for path in (
        "/apis/out.example.com/v1",
        f"{default}/pods/reaching",
        f"{default}/pods/reaching/log",
        f"{default}/pods/reaching:{port}/proxy/",
        f"{default}/services/out:{port}/proxy/",
        "/api/v1/nodes/node-1/proxy/logs/../../etc/passwd",
        f"/setpoint/v1/snapshots/{folder}",
    ):
        shown.append(await tab.request(path))
    return json.dumps(shown)


async def use_conversations(tab: PageTab, folder: Path, port: int) -> str:
    """Edit files and take lessons by names of files of the machine, and return the answers."""
    canary = f"{folder}/canary.yaml"
    tab.open(2, "editor")
    shown: list[Any] = []
    for number, (do, path) in enumerate((do, path) for do in ("read", "write") for path in (canary, f"../..{canary}")):
        tab.send(2, "say", data={"id": number, "do": do, "path": path, "text": "changed"})
        shown.append((await tab.until(2, "id"))[0])
    for channel, args in enumerate(
        (
            {"lesson": f"../../../..{canary}"},
            {"lesson": f"own/../../..{canary}"},
            {"name": "mine", "text": LESSON.replace("CANARY", canary).replace("PORT", str(port))},
            {"name": "mine", "text": f"---\ntitle: Mine\nstart: {{nodes: 1, apply: [../../../..{canary}]}}\n---\n"},
        ),
        start=3,
    ):
        tab.open(channel, "lesson", **args)
        while (message := await tab.receive(30.0)) is not None and (message["id"], message["type"]) != (channel, "end"):
            shown.append(message)
        assert message is not None and message["error"]["code"] in (400, 404), message
        shown.append(message)
    tab.open(9, "lesson", lesson="loop")
    shown.append((await tab.until(9, "checks"))[1])
    return json.dumps(shown)


@pytest.mark.slow
async def test_a_seat_reaches_nothing_of_the_machine(traced: TracedWorker, tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    canary = folder / "canary.yaml"
    canary.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {SECRET}}}\n")
    (folder / "kustomization.yaml").write_text("resources: [canary.yaml]\n")
    content = canary.read_text()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        await traced.add_seat()
        async with open_tab(f"http://{HOST}", SEAT, traced.socket) as (tab, _):
            since = time.time()
            shown = await use_api(tab, folder, port)
            tab.open(1, "terminal", size=[100, 40])
            await tab.until(1, "prompt")
            await typed(tab, "kubectl delete validatingwebhookconfiguration out")
            await typed(tab, "kubectl run box --image=busybox --command -- sleep 1d")
            await typed(tab, "kubectl wait --for=condition=Ready pod/box", most=30)
            for line in "; ".join(LINES).split("; "):
                shown += await typed(tab, line.format(canary=canary, folder=folder, port=port))
            shown += await use_conversations(tab, folder, port)
            until = time.time()
        traced.stop()
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert SECRET not in shown
    calls = traced.calls(since, until)
    assert violations(calls) == []
    assert canary.read_text() == content and sorted(os.listdir(folder)) == ["canary.yaml", "kustomization.yaml"]
