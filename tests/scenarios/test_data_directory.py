"""A cluster whose database is deleted while it runs stops and says why; a backup brings it back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def environment(directory: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(Path("src").resolve()), os.environ.get("PYTHONPATH", ""))))
    return {"HOME": str(directory), "PATH": os.environ["PATH"], "PYTHONPATH": path}


def setpoint(directory: Path, line: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "setpoint", *line.split()],
        cwd=directory,
        env=environment(directory),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, f"setpoint {line}: {done.stderr or done.stdout}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_deleted_database_stops_the_cluster_and_a_backup_brings_it_back(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "setpoint", "up", "--port", "0", "--nodes", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            assert "is ready at" in running.stdout.readline()
            setpoint(tmp_path, "create configmap kept --from-literal=a=b")
            assert "holds the cluster's state" in setpoint(tmp_path, "backup one.backup")
            assert "forbidden" in setpoint(tmp_path, "get --raw /setpoint/backup --as somebody", code=1)
            assert "already running" in setpoint(tmp_path, "restore one.backup --force", code=1)
            (tmp_path / ".setpoint" / "state.db").unlink()
            _, said = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 1
    assert "error: .setpoint/state.db was deleted while the store was in use" in said
    assert "Traceback" not in said

    assert "state.db is missing, but revision" in setpoint(tmp_path, "up --port 0 --nodes 0", code=1)
    assert "continues at revision 10000" in setpoint(tmp_path, "restore one.backup")
    assert "is ready at" in setpoint(tmp_path, "up --port 0 --nodes 0 --detach")
    try:
        assert setpoint(tmp_path, "get configmap kept -o name") == "configmap/kept\n"
    finally:
        setpoint(tmp_path, "down")
