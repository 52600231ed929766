"""The code of the documentation page about operators, run as it is there, in tests and as a process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.meta.errors import ApiError
from setpoint.system import SystemClock
from setpoint.testing import LiveCluster, live_cluster

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "write-an-operator.md").read_text()
NAMES = ("teapot_operator", "kettles", "strict", "versions", "test_teapots")
TEAPOT = ("example.com/v1", "Teapot")
CONFIG_MAP = ("v1", "ConfigMap")
_PROCESS = """
import asyncio
import kettles
from setpoint.sdk import Controller, Operator, run
from strict import strict

async def never(ctx, kettle):
    ctx.log.info("it takes its time")
    await asyncio.Event().wait()

if __name__ == "__main__":
    run(Operator("tea", *strict.controllers, *strict.admissions, Controller(kettles.Kettle, never)))
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for name, block in zip(NAMES, blocks, strict=True):
        (tmp_path / f"{name}.py").write_text(block)
    (tmp_path / "process.py").write_text(_PROCESS)
    return tmp_path


def environment(directory: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(directory), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}


def test_the_code_of_the_page_works_in_a_test(page: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "setpoint.testing.plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=page, env=environment(page), capture_output=True, text=True, timeout=120, check=False
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr


class Process:
    def __init__(self, started: subprocess.Popen[str]) -> None:
        self.started = started
        self.said: list[str] = []

    def until(self, pattern: str) -> re.Match[str]:
        """Reads what it says until this has come."""
        assert self.started.stderr is not None
        for line in self.said:
            if found := re.search(pattern, line):
                return found
        for line in self.started.stderr:
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended before it said {pattern!r}:\n{''.join(self.said)}")

    def ends(self) -> int:
        assert self.started.stderr is not None
        self.said += self.started.stderr.readlines()
        return self.started.wait(30)


@contextmanager
def operator(page: Path, cluster: LiveCluster, *flags: str) -> Iterator[Process]:
    command = [
        sys.executable,
        "process.py",
        "--kubeconfig",
        str(cluster.kubeconfig),
        "--webhook-bind-address",
        "127.0.0.1:0",
        *flags,
    ]
    with subprocess.Popen(command, cwd=page, env=environment(page), stderr=subprocess.PIPE, text=True) as started:
        patience = threading.Timer(60.0, started.kill)
        patience.start()
        try:
            yield Process(started)
        finally:
            patience.cancel()
            started.kill()


def get(port: str, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as reply:
        return str(reply.read().decode())


def teapot(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta, "spec": spec}


async def use(cluster: LiveCluster) -> None:
    client: Client = connect(find_access(str(cluster.kubeconfig)), SystemClock())
    try:
        with pytest.raises(ApiError, match="a teapot brews tea"):
            await client.create(teapot("mug", tea="coffee"))
        made = await client.create(teapot("brown", cups=2))
        watch = client.watch(CONFIG_MAP, "default", resource_version=made["metadata"]["resourceVersion"])
        async with watch, asyncio.timeout(30):
            async for _, obj in watch:
                if obj["metadata"]["name"] == "brown":
                    assert obj["data"] == {"cups": "2", "tea": "green"}
                    break
        await client.create({**teapot("copper"), "kind": "Kettle"})
    finally:
        await client.close()


def test_the_code_of_the_page_works_as_a_process(page: Path, tmp_path: Path) -> None:
    with live_cluster(tmp_path / "cluster", nodes=0) as cluster:
        listeners = ("--metrics-bind-address", "127.0.0.1:0", "--health-probe-bind-address", "127.0.0.1:0")
        with operator(page, cluster, "-v", "--leader-elect", *listeners) as process:
            port = process.until(r"/metrics .*127\.0\.0\.1:(\d+)")[1]
            process.until("starting controller teapot-operator")
            asyncio.run(use(cluster))
            process.until(r"Teapot default/brown: done after")
            process.until("it takes its time")
            assert get(port, "/healthz") == "ok"
            assert get(port, "/readyz") == "ok"
            shown = get(port, "/metrics")
            assert 'leader_election_master_status{name="tea"} 1' in shown
            assert re.search(r'rest_client_requests_total\{code="201",host="127[^"]+",method="PATCH"\} [1-9]', shown)
            assert 'webhook_requests_total{webhook="/validate/validate.teapots.example.com",code="200"} 2' in shown
            process.started.send_signal(signal.SIGINT)
            process.until("SIGINT: shutting down gracefully; send another signal to exit immediately")
            process.started.send_signal(signal.SIGTERM)
            assert process.ends() == 128 + signal.SIGTERM
        with operator(page, cluster, "--dry-run") as process:
            process.until("tea is running as a dry run")
            process.started.send_signal(signal.SIGTERM)
            assert process.ends() == 0, process.said
