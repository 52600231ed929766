"""docs/high-availability.md, command by command: several machines, each a data directory here, one of which dies."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane, blocks, require_etcd
from etcd_process import free_port

pytestmark = [pytest.mark.slow]
PAGE = (Path(__file__).parents[2] / "docs" / "high-availability.md").read_text()
FIRST, *OTHERS, LOOK = blocks(PAGE, "Three machines in three commands")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    require_etcd()
    machines = ControlPlane(tmp_path)
    yield machines
    machines.stop()


def test_any_one_of_three_machines_may_die(plane: ControlPlane) -> None:
    assert "A cluster with 3 nodes is ready at" in plane.run(FIRST)
    for block in OTHERS:
        assert "This machine of the control plane is ready at" in plane.run(block)
    shown = plane.run(LOOK)
    assert shown.count("healthy   voter") == 3
    assert "Nodes:  3 of 3 ready" in shown  # those of the first machine
    # All are one cluster, and accept each other's tokens.
    plane[1].does("create configmap first")
    for number in (2, 3):
        assert "first" in plane[number].does("get configmaps")
    token = plane[2].does("create token default").strip()
    assert "system:serviceaccount:default:default" in plane[3].does(f"auth whoami --token {token}")

    plane[3].die()
    plane[1].does("create configmap second")
    plane[2].does("create configmap third")
    (back,) = blocks(PAGE, "When a machine fails")
    plane.run(back)
    assert {"first", "second", "third"} <= {*plane[3].does("get configmaps").split()}

    # Without it, each of the others is needed.
    plane[3].die()
    refused = plane[1].fails("member", "remove", plane[2].name)
    assert refused.endswith("Start the other machines first; --force removes it nevertheless\n")
    refused = plane[1].fails("reset", "--yes")
    assert "Start the other machines first. Nothing was removed; --force removes this machine's data" in refused

    # It is lost for good, and another one takes its place.
    plane.removed = plane[3].name
    shutil.rmtree(plane[3].directory)
    replace, retire = blocks(PAGE, "Replace a machine")
    assert "unreachable" in plane.run(replace)
    plane.run(OTHERS[-1])
    assert plane[3].name != plane.removed
    for block in blocks(PAGE, "Upgrade"):
        assert plane.run(block).count("healthy   voter") == 3
    plane.run(retire)
    assert not plane[3].directory.exists()
    assert plane[1].setpoint("member", "list").count("voter") == 2
    assert {"first", "second", "third"} <= {*plane[1].does("get configmaps").split()}


def test_a_machine_whose_server_does_not_start_is_no_member(plane: ControlPlane) -> None:
    """Two voters need each other: the first machine could not write without the second one."""
    plane.run(FIRST)
    missing = "--token-auth-file=/nonexistent"
    assert plane[2].start_joining(*plane.join, missing).wait(60) == 1
    assert plane[1].setpoint("member", "list").count("voter") == 1
    # No key of the cluster is left where another one may be started.
    assert {path.name for path in plane[2].directory.iterdir()} == {"etcd.log", "state.db-lock"}
    plane[1].does("create configmap first")
    # The next attempt begins anew.
    plane.run(OTHERS[0])
    assert plane[2].setpoint("member", "list").count("healthy   voter") == 2
    assert "first" in plane[2].does("get configmaps")


def test_a_member_does_not_continue_alone_while_another_runs(plane: ControlPlane) -> None:
    """The etcd of the others would end when it meets the one that has forgotten them."""
    plane.run(FIRST)
    plane.run(OTHERS[0])
    deadline = time.monotonic() + 30
    while not plane[1].record["servers"]:  # it reads the membership every ten seconds
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stop, recover, *_ = blocks(PAGE, "After the loss of half of the machines")[0].lines
    plane[1].setpoint(*shlex.split(stop)[1:])
    refused = plane[1].fails(*shlex.split(recover)[1:])
    assert "members of other machines run: https://127.0.0.1:" in refused
    plane[1].setpoint("up", "--detach")
    plane[2].does("create configmap first")
    assert plane[1].setpoint("member", "list").count("healthy   voter") == 2


def test_a_machine_that_waits_for_a_quorum_can_be_stopped(plane: ControlPlane) -> None:
    plane.run(FIRST)
    plane.run(OTHERS[0])
    for number in (1, 2):
        plane[number].die()
    starting = plane[1].start()
    try:
        deadline = time.monotonic() + 60
        while "is starting" not in (shown := plane[1].status()):
            assert time.monotonic() < deadline, shown
        assert f"(process {starting.pid})" in shown
        assert "is starting" in plane[1].fails("up", "--detach")
        assert "is starting" in plane[1].fails("member", "recover", "--yes")
        plane[1].setpoint("down")
        assert starting.wait() == 0
    finally:
        starting.kill()
    assert "No cluster is running" in plane[1].status()
    for block in blocks(PAGE, "After the loss of half of the machines"):
        plane.run(block)
    plane[1].does("create configmap first")


def test_a_backup_and_the_data_of_one_machine_bring_a_cluster_back(plane: ControlPlane) -> None:
    plane.run(FIRST)
    backup, *restore = blocks(PAGE, "Back up and restore")
    plane[1].does("create configmap first")
    plane.run(backup)
    plane[1].kill_etcd()  # it starts again
    plane[1].does("create configmap second")
    for block in restore:
        plane.run(block)
    found = plane[1].does("get configmaps").split()
    assert ("first" in found, "second" in found) == (True, False)
    for block in blocks(PAGE, "After the loss of half of the machines"):
        plane.run(block)

    # Another machine joins, although its process is killed again and again.
    second = plane[2]
    for sign in ("etcd-member.json", "etcd/member/wal"):
        joining = second.start_joining(*plane.join)
        deadline = time.monotonic() + 60
        while not (second.directory / sign).exists():
            assert joining.poll() is None, second.logs()
            assert time.monotonic() < deadline, f"there is no {sign}: {second.logs()}"
            time.sleep(0.005)
        joining.kill()
        joining.wait()
    plane.run(OTHERS[0])
    assert plane[1].setpoint("member", "list").count("healthy   voter") == 2
    assert "first" in second.does("get configmaps")


def test_a_cluster_moves_from_sqlite_to_etcd(plane: ControlPlane, tmp_path: Path) -> None:
    fences = PAGE.split("## From SQLite to etcd")[1].split("## ")[0].split("```")
    (stop, copy_keys, run_etcd), (copy,) = fences[1].strip().splitlines(), fences[3].strip().splitlines()
    replace_directory, check, start = fences[5].strip().splitlines()
    machine, port = plane[1], free_port()
    up = ["--detach", "--port=0", "--nodes=0"]

    def setpoint(line: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(line)[1:]
        done = subprocess.run(machine.command(*words, *more), cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done

    setpoint("setpoint up", *up)
    machine.directory = tmp_path / ".setpoint"
    machine.does("create configmap first")
    setpoint(stop)
    subprocess.run(copy_keys, shell=True, cwd=tmp_path, check=True)
    ports = [f"--etcd-client-port={port}", "--etcd-peer-port=0", "--advertise-address=127.0.0.1"]
    running = subprocess.Popen(
        machine.command(*shlex.split(run_etcd)[1:], *ports), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        assert f"--etcd-servers https://127.0.0.1:{port}" in running.stdout.readline()
        setpoint(copy.replace("2379", str(port)))
    finally:
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
    before = (machine.directory / "pki" / "ca.crt").read_bytes()
    subprocess.run(replace_directory, shell=True, cwd=tmp_path, check=True)
    assert "no problems" in setpoint(check).stdout
    assert start == f"setpoint up {up[0]}"
    setpoint("setpoint up", *up)
    assert "first" in machine.does("get configmaps")
    assert (machine.directory / "pki" / "ca.crt").read_bytes() == before
