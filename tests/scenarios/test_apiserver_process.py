"""`setpoint apiserver` as a process: errors at start-up and while it runs, and how it ends."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

COMMAND = (sys.executable, "-m", "setpoint", "apiserver")


def start(
    directory: Path, *flags: str, port: int = 0, prepare: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "--port", str(port), "--data-dir", str(directory), "--insecure-http", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def ready(process: subprocess.Popen[str]) -> int:
    """The port that the ready line names."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert " ready at http://" in line, line
    return int(line.split(" ready at ")[1].split()[0].rsplit(":", 1)[1])


def refused(process: subprocess.Popen[str]) -> str:
    """One sentence on standard error and exit code 1."""
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1, (process.returncode, out, err)
    assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err, err
    return err


def token_of(directory: Path) -> str:
    config = json.loads((directory / "admin.kubeconfig").read_text())
    return str(config["users"][0]["user"]["token"])


def post(port: int, token: str, name: str, size: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = f'{{"metadata":{{"name":"{name}"}},"data":{{"a":"{"x" * size}"}}}}'
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/namespaces/default/configmaps", body, headers)
    return connection.getresponse().status


def test_a_signal_ends_it_with_code_0(tmp_path: Path) -> None:
    process = start(tmp_path)
    port = ready(process)
    idle = socket.create_connection(("127.0.0.1", port))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    idle.close()


def test_a_graceful_stop_moves_clients_away_and_answers_what_it_has_begun(tmp_path: Path) -> None:
    process = start(tmp_path, "--shutdown-delay-duration", "2s")
    try:
        port, token = ready(process), token_of(tmp_path)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        path = "/api/v1/namespaces/default/configmaps"

        def connection() -> http.client.HTTPConnection:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=30)

        watch, used, slow = connection(), connection(), connection()
        watch.request("GET", f"{path}?watch=true&allowWatchBookmarks=true&resourceVersion=0", headers=headers)
        events = watch.getresponse()
        used.request("GET", f"{path}/none", headers=headers)
        assert (answer := used.getresponse()).read() and answer.getheader("Connection") is None
        body = b'{"metadata":{"name":"slow"}}'
        slow.putrequest("POST", path)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            slow.putheader(name, value)
        slow.endheaders(body[:10])

        process.send_signal(signal.SIGTERM)
        status = 200
        while status == 200:
            probe = connection()
            probe.request("GET", "/readyz")
            answered = probe.getresponse()
            status, shown = answered.status, answered.read()
        assert status == 500 and b"[-]shutdown failed" in shown
        used.request("POST", path, b'{"metadata":{"name":"late"}}', headers)
        answer = used.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (201, "close")
        while socket.socket().connect_ex(("127.0.0.1", port)) == 0:
            time.sleep(0.05)
        assert process.poll() is None
        slow.send(body[10:])
        answer = slow.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (201, "close")
        lines = [json.loads(line) for line in events.read().splitlines()]  # fails if the end is missing
        assert lines[-1]["type"] == "BOOKMARK"
        created = {each["object"]["metadata"].get("name"): each["object"]["metadata"] for each in lines}
        assert int(lines[-1]["object"]["metadata"]["resourceVersion"]) >= int(created["late"]["resourceVersion"])
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_data_directory_in_use(tmp_path: Path) -> None:
    first = start(tmp_path)
    try:
        ready(first)
        assert "in use" in refused(start(tmp_path))
    finally:
        first.kill()
        first.wait()


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is in use" in refused(start(tmp_path, port=port))


def test_a_file_that_is_not_a_store(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    file.touch(0o600)
    file.write_bytes(b"this is not a database" * 1000)
    assert "state.db" in refused(start(tmp_path))


def test_an_invalid_setting(tmp_path: Path) -> None:
    assert "--service-node-port-range" in refused(start(tmp_path, "--service-node-port-range", "9-1"))
    assert "--shutdown-delay-duration" in refused(start(tmp_path, "--shutdown-delay-duration", "-1s"))
    assert "nosuch" in refused(start(tmp_path, "--enable-admission-plugins", "nosuch"))
    assert "--token-auth-file" in refused(start(tmp_path, "--token-auth-file", str(tmp_path / "none.csv")))


def test_a_full_disk_ends_the_server_and_loses_nothing(tmp_path: Path) -> None:
    def small_files() -> None:
        # Beyond the limit a write fails, as on a full disk.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))

    process = start(tmp_path, prepare=small_files)
    port, token = ready(process), token_of(tmp_path)
    stored = []
    for number in range(200):
        try:
            status = post(port, token, f"c{number}", 100_000)
        except OSError:
            break
        if status != 201:
            break
        stored.append(f"c{number}")
    assert stored
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1, err
    assert "error: " in err and "Traceback" not in err, err

    again = start(tmp_path)
    try:
        port, token = ready(again), token_of(tmp_path)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for name in stored:
            path = f"/api/v1/namespaces/default/configmaps/{name}"
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, name
    finally:
        again.kill()
        again.wait()


def test_metrics_have_upstreams_names(tmp_path: Path) -> None:
    process = start(tmp_path, "--store", "memory")
    try:
        port, token = ready(process), token_of(tmp_path)
        assert post(port, token, "a", 10) == 201
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
    finally:
        process.kill()
        process.wait()
    for name in (
        "apiserver_request_total",
        "apiserver_request_duration_seconds_bucket",
        "apiserver_current_inflight_requests",
        "apiserver_longrunning_requests",
    ):
        assert f"# TYPE {name.removesuffix('_bucket')} " in text, name
    assert 'apiserver_request_total{verb="POST",group="",version="v1",resource="configmaps"' in text


def test_a_restart_continues_with_the_stored_state(tmp_path: Path) -> None:
    for number in range(2):
        process = start(tmp_path)
        port, token = ready(process), token_of(tmp_path)
        assert post(port, token, f"run-{number}", 10) == 201
        process.kill()
        process.wait()
    process = start(tmp_path)
    try:
        port, token = ready(process), token_of(tmp_path)
        assert post(port, token, "run-0", 10) == 409
        assert post(port, token, "run-1", 10) == 409
    finally:
        process.kill()
        process.wait()
