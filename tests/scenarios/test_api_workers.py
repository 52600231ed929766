"""`setpoint apiserver --workers`: several processes on one port, as clients see them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TOKEN = "admin-token"
_ESTABLISHED = "01"
"""The state of a connection in /proc/net/tcp."""
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Connection:
    """A connection to whichever worker has accepted it."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def send(
        self, method: str, path: str, body: Any = None, kind: str = "application/json"
    ) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        self._http.request(method, path, json.dumps(body) if body is not None else None, headers)
        return self._http.getresponse()

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        answer = self.send(method, path, body, kind)
        data = answer.read()
        return answer.status, json.loads(data) if data.startswith(b"{") else data

    @property
    def port(self) -> int:
        """Return the port at this end."""
        return int(self._http.sock.getsockname()[1])

    def close(self) -> None:
        self._http.close()


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def connect(self) -> Connection:
        return Connection(self.port)

    def connection_of_each(self) -> list[Connection]:
        """Return a connection to each of the two workers, among which the kernel distributes connections."""
        by_worker: dict[int, Connection] = {}
        deadline = time.monotonic() + 15
        while len(by_worker) < 2:
            assert time.monotonic() < deadline, "one worker accepts all connections"
            connection = self.connect()
            assert connection.request("GET", "/readyz")[0] == 200
            by_worker.setdefault(self._worker_of(connection), connection)
        return [*by_worker.values()]

    def _worker_of(self, connection: Connection) -> int:
        """Return the process that has accepted the connection."""
        remote, local = f":{connection.port:04X}", f":{self.port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        # A connection that was closed keeps its row for a minute, and its port may be in use again.
        (inode,) = [
            row[9] for row in rows if row[1].endswith(local) and row[2].endswith(remote) and row[3] == _ESTABLISHED
        ]
        for pid in self.workers():
            for each in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if os.readlink(each) == f"socket:[{inode}]":
                        return pid
        raise AssertionError("no worker has this connection")

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]


@contextmanager
def server(directory: Path, *flags: str) -> Iterator[Server]:
    (directory / "tokens.csv").write_text(f"{TOKEN},admin,uid,system:masters\n")
    command = [sys.executable, "-m", "setpoint", "apiserver", "--port", "0", "--insecure-http", "--workers", "2"]
    command += ["--data-dir", str(directory / "data"), "--token-auth-file", str(directory / "tokens.csv"), *flags]
    with (directory / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert " ready at " in line, (directory / "server.log").read_text()
        yield Server(process, int(line.split(" ready at ")[1].split()[0].rsplit(":", 1)[1]))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def eventually(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_the_workers_are_one_server(tmp_path: Path) -> None:
    with server(tmp_path, "--store", "memory") as running:
        one, other = running.connection_of_each()
        begin = one.request("GET", CONFIGMAPS)[1]["metadata"]["resourceVersion"]

        # What one has acknowledged, the other sees at once, and its writes follow it.
        for number in range(100):
            writer, reader = (one, other) if number % 2 else (other, one)
            status, made = writer.request("POST", CONFIGMAPS, {"metadata": {"name": f"c{number}"}})
            assert status == 201
            assert reader.request("GET", f"{CONFIGMAPS}/c{number}") == (200, made)
            made["data"] = {"a": "b"}
            assert reader.request("PUT", f"{CONFIGMAPS}/c{number}", made)[0] == 200
            assert writer.request("PUT", f"{CONFIGMAPS}/c{number}", made)[0] == 409

        # A watch resumes on the other worker, and a list continues there.
        path = f"{CONFIGMAPS}?watch=1&resourceVersion={begin}&timeoutSeconds=1"
        streams = [each.send("GET", path).read().splitlines() for each in (one, other)]
        assert streams[0] == streams[1]
        assert [json.loads(line)["type"] for line in streams[0]] == ["ADDED", "MODIFIED"] * 100
        page = one.request("GET", f"{CONFIGMAPS}?limit=60")[1]
        rest = other.request("GET", f"{CONFIGMAPS}?limit=60&continue={page['metadata']['continue']}")[1]
        assert len({item["metadata"]["name"] for item in page["items"] + rest["items"]}) == 100

        # A definition is established by the process that owns the store, and served by both.
        names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        assert one.request("POST", CRDS, {"metadata": {"name": "foos.example.com"}, "spec": spec})[0] == 201
        foos = "/apis/example.com/v1/namespaces/default/foos"
        eventually(lambda: one.request("GET", foos)[0] == 200)
        foo = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}}
        status, made = other.request("POST", foos, foo)
        assert status == 201
        assert one.request("GET", f"{foos}/f") == (200, made)

        workers = running.workers()
        running.process.kill()
        eventually(lambda: all(map(ended, workers)), 2.0)


def test_a_worker_dies_under_load(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, the other worker goes on, and the dead one is replaced."""
    with server(tmp_path) as running:
        workers = running.workers()
        assert len(workers) == 2
        acknowledged: list[str] = []
        stop = threading.Event()

        def write(number: int) -> None:
            connection, count = running.connect(), 0
            while not stop.is_set():
                count += 1
                name = f"c-{number}-{count}"
                try:
                    if connection.request("POST", CONFIGMAPS, {"metadata": {"name": name}})[0] == 201:
                        acknowledged.append(name)
                except (OSError, http.client.HTTPException):
                    connection.close()
                    connection = running.connect()
                    time.sleep(0.01)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for each in writers:
            each.start()
        try:
            time.sleep(0.5)
            os.kill(workers[0], signal.SIGKILL)
            before = len(acknowledged)
            eventually(lambda: len(acknowledged) > before + 20)
            eventually(lambda: len(set(running.workers()) - set(workers)) == 1)
        finally:
            stop.set()
            for each in writers:
                each.join()

        def listed(connection: Connection) -> set[str]:
            return {item["metadata"]["name"] for item in connection.request("GET", CONFIGMAPS)[1]["items"]}

        one, other = running.connection_of_each()
        assert set(acknowledged) <= listed(one) == listed(other)

        # The whole server stops in order, and has lost nothing.
        workers = running.workers()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0
        assert all(map(ended, workers))
    with server(tmp_path) as running:
        assert set(acknowledged) <= listed(running.connect())
