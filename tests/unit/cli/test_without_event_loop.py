"""Commands that do one thing at a time run without an event loop, and cannot be told apart by anything but their
speed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from command_line import typed_offline

from setpoint.cli.catalog import ROOT, SEQUENTIAL
from setpoint.cli.command import loaded
from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import flags_of, run_blocking
from setpoint.testing.live import LiveCluster

LINES = """
create deployment web --image=nginx --replicas=2
rollout status deployment web --timeout=60s
wait --for=condition=Available deployment/web --timeout=60s
get deployments,pods -A -o wide
get pods --sort-by={.metadata.name} -o name
get deployment web -o yaml
get --raw /version
describe deployment web
describe pods
logs deployment/web
scale deployment web --replicas=1
set image deployment/web nginx=nginx:2
rollout history deployment web
rollout restart deployment web
autoscale deployment web --min=1 --max=3
expose deployment web --port=80
label deployment web tier=front
annotate deployment web note=text
patch deployment web -p {"spec":{"paused":true}}
apply -f configmap.json
apply --server-side -f configmap.json
diff -f configmap.json
replace -f configmap.json
create configmap other --from-literal=a=b
run one --image=nginx
events
cordon node-1
uncordon node-1
taint node node-1 dedicated=tests:PreferNoSchedule
auth can-i create pods
auth whoami
cluster-info
api-resources
api-versions
explain pods.spec
version
status
loops
history configmap web
why deployment web
__complete get pods ""
__complete logs ""
delete configmap web other
delete deployment web --cascade=foreground --timeout=60s
"""


def test_sequential_commands_do_not_import_asyncio(live_cluster: LiveCluster, tmp_path: Path) -> None:
    script = """
import shlex, sys
from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run
for line in sys.stdin.read().strip().splitlines():
    code = run(shlex.split(line), CommandIO())
    if code or "asyncio" in sys.modules:
        sys.exit(f"{line}: exit code {code}, asyncio loaded: {'asyncio' in sys.modules}")
"""
    (tmp_path / "configmap.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}})
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=LINES.replace('{"spec":{"paused":true}}', shlex.quote('{"spec":{"revisionHistoryLimit":3}}')),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(live_cluster.kubeconfig)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_sequential_commands_and_their_flags_exist(name: str) -> None:
    command = loaded(ROOT.children[name])
    flags = {flag.name.replace("-", "_") for flag in flags_of(command).all}
    assert set(SEQUENTIAL[name]) <= flags


def test_a_command_that_waits_for_an_event_loop_is_reported() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="waited for an event loop"):
        run_blocking(waits())
    assert ended == [True]


def test_a_clock_or_a_connection_of_the_caller_needs_its_event_loop() -> None:
    assert CommandIO().may_block
    assert not CommandIO(stdout=BytesIO(), connect=lambda *_: pytest.fail("not called")).may_block


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_ctrl_c_ends_a_command_that_waits_for_a_response(silent_server: socket.socket, tmp_path: Path) -> None:
    port = silent_server.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "setpoint", "--server", f"http://127.0.0.1:{port}", "get", "--raw", "/x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    connection, _ = silent_server.accept()
    with connection:
        assert connection.recv(4) == b"GET "
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_the_request_timeout_applies(silent_server: socket.socket, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{silent_server.getsockname()[1]}"
    done = typed_offline(f"--server {url} --request-timeout=20ms get --raw /x", tmp_path)
    assert (done.code, done.err) == (1, f"The server at {url} did not answer within 0.02 seconds\n")
