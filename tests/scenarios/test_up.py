"""`setpoint up` as a process: kubectl, Ctrl-C, and a restart."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.system import SystemClock, outward_address

PODS = builtin("pods")
WEB: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 5,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "nginx"}]},
        },
    },
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "setpoint", "up", *flags]


@contextmanager
def up(directory: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running cluster and what it said; killed if the test did not end it."""
    process = subprocess.Popen(
        command("--data-dir", str(directory), "--port", str(port)), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Ctrl-C"):
                break
        assert "is ready at" in said, said
        yield process, said
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def stop(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(20)


async def pods_when(kubeconfig: Path, wanted: int, without: str = "") -> dict[str, str]:
    """Uids by name, as soon as so many Pods run; `without` is the name of one that must be gone."""
    client: Client = connect(find_access(str(kubeconfig)), SystemClock())
    found = await client.list(PODS, "default")
    items = {item["metadata"]["name"]: item for item in found.items}

    def done() -> bool:
        ready = [pod for pod in items.values() if pod["status"]["phase"] == "Running"]
        return len(ready) == len(items) == wanted and without not in items

    async with asyncio.timeout(20), client.watch(PODS, "default", resource_version=found.resource_version) as watch:
        while not done():
            kind, pod = await watch.__anext__()
            if kind == "DELETED":
                items.pop(pod["metadata"]["name"], None)
            elif kind != "BOOKMARK":
                items[pod["metadata"]["name"]] = pod
    await client.close()
    return {name: pod["metadata"]["uid"] for name, pod in items.items()}


def apply_with_kubectl(kubeconfig: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(
        ["kubectl", "apply", "-f", "-"], input=json.dumps(WEB), text=True, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert "deployment.apps/web created" in done.stdout


async def apply(kubeconfig: Path) -> None:
    if shutil.which("kubectl"):
        apply_with_kubectl(kubeconfig)
        return
    client = connect(find_access(str(kubeconfig)), SystemClock())
    await client.create(WEB)
    await client.close()


def status_of(url: str, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(url, context=context, timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def unauthenticated_clients_see_only_health(directory: Path, port: int) -> None:
    modes = {path: path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    secret = [path for path in modes if path.suffix in (".key", ".kubeconfig", ".db", ".pem")]
    assert {path.name for path in secret} >= {"admin.kubeconfig", "scheduler.kubeconfig", "ca.key", "apiserver.key"}
    assert {modes[path] for path in secret} == {0o600}
    context = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
    here = f"https://127.0.0.1:{port}"
    expected = {"/healthz": 200, "/livez": 200, "/readyz": 200, "/version": 200, "/api": 403, "/metrics": 403, "/": 403}
    assert {path: status_of(here + path, context) for path in expected} == expected
    assert status_of(f"{here}/api/v1/namespaces/kube-system/secrets", context) == 403
    outward = outward_address()
    if outward:
        with pytest.raises(OSError), socket.create_connection((outward, port), timeout=5):
            pass


async def test_up_runs_and_repairs_a_deployment_and_continues_after_a_restart(tmp_path: Path) -> None:
    directory, port = tmp_path / "cluster", free_port()
    kubeconfig = directory / "admin.kubeconfig"
    with up(directory, port) as (process, said):
        assert f"https://127.0.0.1:{port}" in said
        assert f"export KUBECONFIG={kubeconfig}" in said
        await asyncio.to_thread(unauthenticated_clients_see_only_health, directory, port)
        await apply(kubeconfig)
        before = await pods_when(kubeconfig, 5)
        victim = min(before)
        client = connect(find_access(str(kubeconfig)), SystemClock())
        await client.delete(PODS, victim, "default")
        await client.close()
        after = await pods_when(kubeconfig, 5, without=victim)
        assert len(after.keys() - before.keys()) == 1
        assert await asyncio.to_thread(stop, process, signal.SIGTERM) == 0
    with up(directory, port) as (process, _):
        assert await pods_when(kubeconfig, 5) == after, "nothing is lost, nothing happens twice"
        assert await asyncio.to_thread(stop, process, signal.SIGINT) == 0


def refused(*flags: str) -> str:
    done = subprocess.run(command(*flags), capture_output=True, text=True, timeout=30)
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_port_in_use_gives_a_clear_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} on 127.0.0.1 is in use" in refused("--data-dir", str(tmp_path), "--port", str(port))


def test_a_data_directory_in_use_gives_a_clear_error(tmp_path: Path) -> None:
    with up(tmp_path, free_port()) as (process, _):
        assert "in use" in refused("--data-dir", str(tmp_path), "--port", "0")
        assert stop(process, signal.SIGTERM) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="to root, every directory is writable")
def test_an_unwritable_data_directory_gives_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot write" in refused("--data-dir", str(tmp_path), "--port", "0")


def test_a_data_directory_that_is_a_file_gives_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    assert "cannot use the data directory" in refused("--data-dir", str(path), "--port", "0")


def test_a_corrupt_store_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database" * 500)
    (tmp_path / "state.db").chmod(0o600)
    assert "state.db" in refused("--data-dir", str(tmp_path), "--port", "0")
