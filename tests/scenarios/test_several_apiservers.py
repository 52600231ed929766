"""Two `setpoint apiserver` processes on one etcd, as clients see them."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from etcd_process import EtcdProcess, etcd_process

TOKEN = "admin-token"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
UPKEEP_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/setpoint-upkeep"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if data.startswith(b"{") else data

    def get(self, path: str) -> Any:
        status, body = self.request("GET", path)
        assert status == 200, body
        return body

    def ports(self) -> list[int]:
        """The ports of the API servers, as their EndpointSlices say."""
        found = self.get(f"{SLICES}?labelSelector=kubernetes.io/service-name=kubernetes")["items"]
        return sorted(each["ports"][0]["port"] for each in found)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    with etcd_process(tmp_path) as running:
        yield running


@contextmanager
def servers(directory: Path, endpoint: str) -> Iterator[list[Server]]:
    """Two servers that start at the same moment."""
    (directory / "tokens.csv").write_text(f"{TOKEN},admin,uid,system:masters\n")
    processes = []
    for name in ("one", "other"):
        command = [sys.executable, "-m", "setpoint", "apiserver", "--port", "0", "--insecure-http"]
        command += ["--data-dir", str(directory / name), "--cert-dir", str(directory / "pki")]
        command += ["--etcd-servers", endpoint, "--token-auth-file", str(directory / "tokens.csv")]
        with (directory / f"{name}.log").open("wb") as log:
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True))
    try:
        started = []
        for process in processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert " ready at " in line, line
            started.append(Server(process, int(line.split(" ready at ")[1].split()[0].rsplit(":", 1)[1])))
        yield started
    finally:
        for process in processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_servers_form_one_cluster(tmp_path: Path, etcd: EtcdProcess) -> None:
    with servers(tmp_path, etcd.endpoint) as pair:
        one, other = pair
        ports = sorted(server.port for server in pair)
        eventually(lambda: one.ports() == ports)
        assert other.ports() == ports
        roles = one.get(ROLES)["items"]
        assert roles == other.get(ROLES)["items"]

        # A definition that one has established is served by the other at once.
        names = {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        status, made = one.request("POST", CRDS, {"metadata": {"name": "foos.example.com"}, "spec": spec})
        assert status == 201, made

        def established() -> bool:
            conditions = one.get(f"{CRDS}/foos.example.com")["status"].get("conditions") or []
            return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)

        eventually(established)
        foos = "/apis/example.com/v1/namespaces/default/foos"
        foo = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}}
        status, made = other.request("POST", foos, foo)
        assert status == 201, made
        assert one.get(f"{foos}/f") == made

        # The server that maintains the cluster stops: the other one takes over at once.
        holder = one.get(UPKEEP_LEASE)["spec"]["holderIdentity"]
        leases = one.get(f"{UPKEEP_LEASE.rpartition('/')[0]}/{holder}")
        port = int(leases["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"].rpartition(":")[2])
        leader, candidate = (one, other) if one.port == port else (other, one)
        stopped = time.monotonic()
        leader.process.send_signal(signal.SIGTERM)
        eventually(lambda: candidate.ports() == [candidate.port])
        assert time.monotonic() - stopped < 12, "it did not wait for the Lease to expire"
        assert candidate.get(UPKEEP_LEASE)["spec"]["holderIdentity"] not in ("", holder)
        assert leader.process.wait(20) == 0
