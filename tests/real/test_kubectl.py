"""The commands of kubectl that reach into containers, on a real node."""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubectl_runner import until
from real_kubectl import PodClient, Terminal, pod
from real_registry import Registry

pytestmark = pytest.mark.real
TICKS = 'i=0; while [ $i -lt 5 ]; do echo "tick $i"; i=$((i+1)); sleep 0.3; done'


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode().strip())


def test_run_and_logs(pods: PodClient, registry: Registry) -> None:
    image = registry.image("busybox")
    pods.kubectl("run", "ticks", f"--image={image}", "--restart=Never", "--", "sh", "-c", TICKS)
    until(lambda: pods.status("ticks", "ticks").get("state", {}).keys() & {"running", "terminated"}, 60.0)
    with pods.session("logs", "--follow", "ticks") as follow:
        out, _ = follow.communicate(timeout=30)
    assert out.splitlines() == [f"tick {number}" for number in range(5)]
    assert follow.returncode == 0

    found = pods.wait_phase("ticks", "Succeeded")
    status = found["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["reason"] == "Completed"
    assert status["containerID"].startswith("containerd://")
    assert pods.kubectl("logs", "ticks", "--tail=2").splitlines() == ["tick 3", "tick 4"]
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\S+Z tick 4", pods.kubectl("logs", "ticks", "--timestamps", "--tail=1").strip()
    )
    assert [reason for reason, _ in pods.events("ticks")] == ["Scheduled", "Pulling", "Pulled", "Created", "Started"]


def test_run_with_standard_input_until_its_end(pods: PodClient, registry: Registry) -> None:
    options = ("--rm", "-i", "--quiet", "--restart=Never", f"--image={registry.image('busybox')}")
    out = pods.kubectl("run", "reader", *options, "--", "sh", "-c", "sleep 1; cat; echo end", stdin="one\ntwo\n")
    assert out.split()[:3] == ["one", "two", "end"]


def test_exec_has_streams_and_exit_code(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("shell", registry.image("busybox"), "sleep", "1000"))
    result = pods.kubectl.run("exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.code, result.out) == (7, "out\n")
    assert result.err.startswith("err\n")
    assert "command terminated with exit code 7" in result.err

    absent = pods.kubectl.refused("exec", "shell", "--", "/no/such/program")
    assert "no such file or directory" in absent


def test_exec_delivers_the_end_of_its_input(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("shell", registry.image("busybox"), "sleep", "1000"))
    text = "".join(random.Random(1).choices("abcdefghij\n", k=500_000))
    found = pods.kubectl("exec", "-i", "shell", "--", "sha256sum", stdin=text)
    assert found.split()[0] == hashlib.sha256(text.encode()).hexdigest()


def test_exec_on_a_terminal(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("shell", registry.image("busybox"), "sleep", "1000"))
    terminal = pods.terminal("exec", "-it", "shell", "--", "sh")
    terminal.until("# ")
    terminal.type("tty; echo $((6*7))\r")
    terminal.until("/dev/pts/")
    terminal.until("42")
    terminal.resize(31, 97)
    until(lambda: _size(terminal) == "31 97", 10.0)
    terminal.type("echo now; sleep 100\r")
    terminal.until("\nnow\r\n")  # until then the shell drops what is typed
    terminal.type("\x03")
    terminal.until("# ")
    terminal.type("exit 5\r")
    assert terminal.end() == 5


def _size(terminal: Terminal) -> str:
    terminal.type("stty size\r")
    terminal.until("# ")
    found = re.search(r"\d+ \d+", terminal.seen)
    return found[0] if found else ""


def test_cp_in_both_directions(pods: PodClient, registry: Registry, tmp_path: Path) -> None:
    pods.run(pod("shell", registry.image("busybox"), "sleep", "1000"))
    sent, received = tmp_path / "sent", tmp_path / "received"
    (sent / "inner").mkdir(parents=True)
    (sent / "large").write_bytes(random.Random(2).randbytes(3_000_000))
    (sent / "inner" / "small").write_text("text\n")
    pods.kubectl("cp", str(sent), "shell:/tmp/copy")
    assert pods.execute("shell", "cat /tmp/copy/inner/small") == "text\n"
    pods.kubectl("cp", "shell:/tmp/copy", str(received))
    for name in ("large", "inner/small"):
        assert (received / name).read_bytes() == (sent / name).read_bytes()


def test_port_forward(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("web", registry.image("web"), container={"ports": [{"containerPort": 8080}]}))
    with pods.session("port-forward", "pod/web", ":8080") as forward:
        assert forward.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+) -> 8080", forward.stdout.readline())
        assert found
        url = f"http://127.0.0.1:{found[1]}"
        assert get(f"{url}/hostname") == "web"
        with ThreadPoolExecutor(5) as pool:
            assert list(pool.map(get, [f"{url}/cgi-bin/echo?{number}" for number in range(10)]))[3].startswith(
                "GET  3 "
            )


def test_port_forward_to_a_closed_port(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("shell", registry.image("busybox"), "sleep", "1000"))
    with pods.session("port-forward", "pod/shell", ":81") as forward:
        assert forward.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
        assert found
        with pytest.raises(OSError):
            get(f"http://127.0.0.1:{found[1]}/")
        until(lambda: "connection refused" in (forward.stdout.readline() if forward.stdout else ""))


def test_attach(pods: PodClient, registry: Registry) -> None:
    echo = 'while read line; do echo "got $line"; done'
    pods.run(pod("reader", registry.image("busybox"), "sh", "-c", echo, container={"stdin": True}))
    with pods.session("attach", "-i", "reader", "--quiet") as attached:
        assert attached.stdin is not None and attached.stdout is not None
        attached.stdin.write("first\n")
        attached.stdin.flush()
        line = ""
        while "got first" not in line:
            line = attached.stdout.readline()
            assert line
    assert "got first" in pods.kubectl("logs", "reader")


def test_attach_to_a_terminal(pods: PodClient, registry: Registry) -> None:
    options = ("-it", "--rm", "--quiet", "--restart=Never", f"--image={registry.image('busybox')}")
    terminal = pods.terminal("run", "typed", *options, "--", "sh")
    terminal.until("#", 60.0)
    terminal.type("echo $((6*7))\r")
    terminal.until("42")
    terminal.type("exit\r")
    assert terminal.end() == 0


def test_debug_sees_the_processes_of_its_target(pods: PodClient, registry: Registry) -> None:
    pods.run(pod("web", registry.image("web")))
    image = f"--image={registry.image('tools')}"
    pods.kubectl("debug", "web", image, "-c", "tools", "--target=main", "--", "sh", "-c", "ps; sleep 1000")
    until(lambda: "running" in pods.status("web", "tools").get("state", {}), 60.0)
    until(lambda: "httpd" in pods.kubectl("logs", "web", "-c", "tools"))
    assert "httpd" in pods.execute("web", "cat /proc/1/root/bin/serve", "tools")
    assert pods.status("web")["restartCount"] == 0


def test_top(pods: PodClient, registry: Registry) -> None:
    busy = "while true; do :; done"
    limits = {"resources": {"limits": {"cpu": "200m", "memory": "64Mi"}}}
    pods.run(pod("busy", registry.image("busybox"), "sh", "-c", busy, container=limits))

    def usage() -> int:
        result = pods.kubectl.run("top", "pod", "busy", "--no-headers")
        found = re.search(r"(\d+)m\s+(\d+)Mi", result.out)
        return int(found[1]) if found else 0

    assert 50 <= until(lambda: usage() if usage() > 50 else 0, 90.0) <= 300
    assert re.search(r"real-1\s+\d+m\s+\d+%\s+\d+Mi", pods.kubectl("top", "node", "--no-headers"))


def test_node_shows_the_machine(pods: PodClient) -> None:
    node = pods.kubectl.get("node", "real-1")
    info = node["status"]["nodeInfo"]
    kernel = subprocess.run(["uname", "-r"], capture_output=True, text=True, check=True).stdout.strip()
    assert info["kernelVersion"] == kernel
    assert info["containerRuntimeVersion"].startswith("containerd://")
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    assert conditions == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }
