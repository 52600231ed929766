"""Servers of components in processes of their own: health checks for all clients, metrics for authorized ones."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from component_process import component_process
from server_process import ServerProcess, server_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("components"), "--authorization-mode", "Node,RBAC") as running:
        yield running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str, token: str = "", certificate: Path | None = None) -> tuple[int, str]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def administrator(server: ServerProcess) -> Path:
    """Its certificate and key in one file."""
    from base64 import b64decode

    user = json.loads(server.kubeconfig.read_text())["users"][0]["user"]
    path = server.directory / "admin.pem"
    path.write_bytes(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
    return path


@pytest.mark.parametrize(
    ("component", "measured"),
    [
        ("scheduler", 'scheduler_pending_pods{queue="active"} 0'),
        ("controller-manager", 'workqueue_adds_total{name="namespace"}'),
    ],
)
def test_health_is_public_and_metrics_need_authorization(server: ServerProcess, component: str, measured: str) -> None:
    port = free_port()
    flags = ("--bind-address=127.0.0.1", f"--secure-port={port}")
    with component_process(component, server.kubeconfig, *flags):
        for path in ("/healthz", "/livez", "/readyz"):
            assert get(port, path) == (200, "ok")
        assert "[+]leaderElection ok" in get(port, "/healthz?verbose", "admin-token")[1]
        status, body = get(port, "/metrics")
        assert status == 403
        assert json.loads(body)["message"] == 'forbidden: User "system:anonymous" cannot get path "/metrics"'
        assert get(port, "/metrics", "limited-token")[0] == 403
        assert get(port, "/metrics", "no-such-token")[0] == 401
        status, body = get(port, "/metrics", "admin-token")
        assert status == 200 and measured in body
        assert f'leader_election_master_status{{name="kube-{component}"}} 1' in body
        assert "process_resident_memory_bytes" in body
        assert 'rest_client_requests_total{code="200",host="127.0.0.1:' in body
        assert get(port, "/metrics", certificate=administrator(server))[0] == 200
        assert get(port, "/other", "admin-token") == (404, "404 page not found\n")
        # A second one says in a sentence that the place is taken.
        command = [sys.executable, "-m", "setpoint", component, "--kubeconfig", str(server.kubeconfig), *flags]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert second.returncode == 1
        assert second.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")


def test_the_kubelet_server_authenticates_clients(server: ServerProcess) -> None:
    port = free_port()
    flags = ("--nodes=1", "--address=127.0.0.1", f"--port={port}")
    with component_process("nodes", server.kubeconfig, *flags):
        assert get(port, "/metrics")[0] == 401
        status, body = get(port, "/metrics", "admin-token")
        assert status == 200 and "kubelet_running_pods " in body
        assert get(port, "/metrics", "limited-token") == (
            403,
            "Forbidden (user=limited, verb=get, resource=nodes, subresource(s)=[metrics,proxy])",
        )
