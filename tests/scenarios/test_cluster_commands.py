"""A cluster from the command line: detached, found by other commands, stopped, started again, deleted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


class Shell:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = os.pathsep.join(filter(None, (str(Path("src").resolve()), os.environ.get("PYTHONPATH", ""))))
        self.environment = {"HOME": str(directory), "PATH": os.environ["PATH"], "PYTHONPATH": path}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "setpoint", *words]
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=60
        )

    def below(self, name: str) -> Shell:
        """The same user in a subdirectory."""
        (self.directory / name).mkdir(parents=True, exist_ok=True)
        other = Shell(self.directory / name)
        other.environment = self.environment
        return other

    def __call__(self, line: str) -> str:
        done = self.run(*line.split())
        assert done.returncode == 0, f"setpoint {line}: {done.stderr or done.stdout}"
        return done.stdout

    def refused(self, line: str) -> str:
        done = self.run(*line.split())
        assert done.returncode == 1, f"setpoint {line} ended with {done.returncode}: {done.stdout}"
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_cluster_is_started_used_stopped_and_reset(shell: Shell) -> None:
    assert "is ready at https://127.0.0.1:" in shell("up --detach --port 0 --nodes 1 --kubeconfig copy.json")
    try:
        assert json.loads((shell.directory / "copy.json").read_text())["current-context"] == shell.directory.name
        assert (shell.directory / "copy.json").stat().st_mode & 0o777 == 0o600
        # Nobody said where: the cluster of this directory is meant.
        assert shell("get nodes -o name") == "node/node-1\n"
        told = shell("status --interval 10ms")
        assert "1 of 1 ready" in told
        assert "leads" in told
        assert "already running in .setpoint" in shell.refused("up --detach --port 0")
        assert "in use by another process" in shell.refused("up --port 0")
        assert "context mine" in shell("kubeconfig --merge --name mine")
        assert shell("--context mine get ns default -o name") == "namespace/default\n"
    finally:
        assert "is stopped" in shell("down")
    assert shell.run("status").stdout == "No cluster is running in .setpoint.\n"
    assert shell("down") == "No cluster is running in .setpoint.\n"
    (shell.directory / ".setpoint" / "pki").chmod(0o755)
    warned = shell.run("up", "--detach", "--port", "0", "--nodes", "1").stderr
    assert warned == ".setpoint/pki was accessible to other users (mode 0755); changed to mode 0700\n"
    try:
        assert "nothing was removed" in shell.refused("reset")
    finally:
        assert "were removed" in shell("reset --yes")
    assert not (shell.directory / ".setpoint").exists()
    assert "there is no cluster" in shell.refused("kubeconfig")


def test_a_failed_start_reports_its_cause(shell: Shell) -> None:
    (shell.directory / "file").write_text("")
    assert "cannot use the data directory file/x" in shell.refused("up --data-dir file/x --port 0")
    assert "--service-node-port-range must look like" in shell.refused("up --detach --service-node-port-range 7")
    (shell.directory / "mine").mkdir()
    (shell.directory / "mine" / "photo").write_text("")
    assert "does not look like the data directory" in shell.refused("reset --yes --data-dir mine")
    assert (shell.directory / "mine" / "photo").exists()


def test_several_clusters_of_one_user(shell: Shell) -> None:
    """Named after their directories, listed together, found from subdirectories, and forgotten without a trace."""
    assert shell("list") == "There are no clusters on this machine: `setpoint up` starts one.\n"
    (shell.directory / ".kube").mkdir()
    theirs = shell.directory / ".kube" / "config"
    theirs.write_text(FOREIGN)
    shop, deep = shell.below("shop"), shell.below("shop/src/deep")
    told = deep("up --detach --port 0 --nodes 1 --data-dir ../../.setpoint")
    assert "another terminal" not in told
    assert f"{Path(sys.executable)} -m setpoint get nodes" in told
    try:
        assert deep("get nodes -o name") == "node/node-1\n"
        assert deep("config current-context") == "shop\n"
        assert f"in {shop.directory}/.setpoint has been up" in deep("status --interval 10ms")
        assert "already running" in deep.refused("up --port 0"), "in a subdirectory `up` is about the same cluster"
        port = json.loads((shop.directory / ".setpoint" / "running.json").read_text())["url"].rpartition(":")[2]
        refused = shell.below("other").refused(f"up --port {port}")
        assert f"port {port} on 127.0.0.1 is in use by " in refused and "--port 0" in refused
        if sys.platform == "linux":
            assert f"in {deep.directory})" in refused
        shell.below("other")("up --detach --port 0 --nodes 0 --store memory --name second")
        rows = [line.split() for line in shell("list").splitlines()]
        assert rows[0] == ["NAME", "DIRECTORY", "ADDRESS", "STATE", "NODES", "AGE"]
        assert [(row[0], row[1], row[3], row[4]) for row in rows[1:]] == [
            ("second", f"{shell.directory}/other/.setpoint", "Running", "0"),
            ("shop", f"{shop.directory}/.setpoint", "Running", "1"),
        ]
        assert "The context shop was merged into" in shop("kubeconfig --merge")
        assert deep("--context shop get ns default -o name") == "namespace/default\n"
    finally:
        shell.below("other")("down")
        shop("down")
    assert [line.split()[3] for line in shell("list").splitlines()[1:]] == ["Stopped", "Stopped"]
    stopped = deep.refused("get pods")
    assert (
        f"the cluster of this directory ({shop.directory}/.setpoint) is not running: `setpoint up` starts it" in stopped
    )
    assert f"The context shop was removed from {theirs}." in shop("reset --yes")
    left = theirs.read_text()
    assert "shop" not in left and "production" in left
    assert 'current-context: ""' in left
    assert shell("list -o name") == "second\n"
    shutil.rmtree(shell.directory / "other")
    assert shell("list -o json") == "[]\n"


FOREIGN = """
apiVersion: v1
kind: Config
clusters:
- {name: production, cluster: {server: "https://127.0.0.1:1"}}
contexts:
- {name: production, context: {cluster: production, user: production}}
users:
- {name: production, user: {token: secret}}
current-context: production
"""
