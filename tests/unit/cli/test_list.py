"""`setpoint list`: the clusters of this machine with their names, addresses and states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pytest
from stopped_clock import StoppedClock

from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run
from setpoint.cli.running import KnownClusters


class Machine:
    """A home directory, and the clusters that were started from it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = StoppedClock()

    def cluster(self, folder: str, name: str, *, nodes: int = 3, minutes: int = 5) -> Path:
        directory = self.home / folder / ".setpoint"
        directory.mkdir(parents=True)
        clusters = [{"name": name, "cluster": {"server": f"https://127.0.0.1:{7000 + nodes}"}}]
        (directory / "admin.kubeconfig").write_text(json.dumps({"current-context": name, "clusters": clusters}))
        KnownClusters({}, self.home).remember(directory, nodes, self.clock.now() - timedelta(minutes=minutes))
        return directory

    def start(self, directory: Path, pid: int, *, store: str = "memory", nodes: int = 9) -> None:
        record = {
            "pid": pid,
            "url": "https://127.0.0.1:9999",
            "kubeconfig": str(directory / "admin.kubeconfig"),
            "nodes": nodes,
            "started": "2030-01-01T00:00:00Z",
            "store": store,
        }
        (directory / "running.json").write_text(json.dumps(record))

    def list(self, *arguments: str) -> tuple[int, str, str]:
        out, err = BytesIO(), BytesIO()
        io = CommandIO(stdin=BytesIO(), stdout=out, stderr=err, environment={}, home=self.home, clock=self.clock)
        return run(["list", *arguments], io), out.getvalue().decode(), err.getvalue().decode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_table_has_every_cluster_by_directory(machine: Machine) -> None:
    stopped = machine.cluster("b", "beta", nodes=3, minutes=125)
    running = machine.cluster("a", "alpha", nodes=1)
    machine.start(running, os.getpid())
    code, out, _ = machine.list()
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["NAME", "DIRECTORY", "ADDRESS", "STATE", "NODES", "AGE"],
        ["alpha", str(running), "https://127.0.0.1:9999", "Running", "9", "5m"],
        ["beta", str(stopped), "https://127.0.0.1:7003", "Stopped", "3", "125m"],
    ]
    assert machine.list("-o", "name")[1] == "alpha\nbeta\n"
    assert [*map(str.lower, out.split()[:6])] == [*json.loads(machine.list("-o", "json")[1])[0]]
    assert [each["state"] for each in json.loads(machine.list("-o", "json")[1])] == ["Running", "Stopped"]


def test_records_of_processes_that_have_ended_are_stale(machine: Machine) -> None:
    directory = machine.cluster("a", "alpha")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    machine.start(directory, ended.pid)
    assert "Stopped" in machine.list()[1]
    # A process of this id runs, but it is another one: it does not have the database open.
    machine.start(directory, os.getpid(), store="sqlite")
    assert "Stopped" in machine.list()[1]
    (directory / "running.json").write_text("{}")
    assert "Stopped" in machine.list()[1]


def test_a_cluster_without_a_readable_kubeconfig_is_listed(machine: Machine) -> None:
    directory = machine.cluster("a", "alpha")
    for content in ("", "[]", '{"current-context": "x"}'):
        (directory / "admin.kubeconfig").write_text(content)
        (row,) = json.loads(machine.list("-o", "json")[1])
        assert (row["name"], row["address"], row["directory"]) == ("", "", str(directory))


def test_without_clusters_it_says_how_to_start_one(machine: Machine) -> None:
    assert machine.list() == (0, "There are no clusters on this machine: `setpoint up` starts one.\n", "")
    assert json.loads(machine.list("-o", "json")[1]) == []
    assert machine.list("-o", "name")[1] == ""


@pytest.mark.parametrize("arguments", [("-o", "yaml"), ("surplus",)])
def test_wrong_usage_is_an_error(machine: Machine, arguments: tuple[str, ...]) -> None:
    code, out, err = machine.list(*arguments)
    assert code != 0
    assert out == ""
    assert arguments[-1] in err
