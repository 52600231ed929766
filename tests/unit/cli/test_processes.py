"""What commands know about the process of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from setpoint.cli.running import find_process, find_running, gone, process_recorded

PARENT = """
import os, sys
child = os.fork()
if not child:
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the proc file system")
def test_a_process_that_has_ended_is_gone_although_its_parent_does_not_know() -> None:
    """Process 1 of many containers waits for no children."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    while ") Z " not in Path(f"/proc/{child}/stat").read_text():
        pass  # it ends at once
    assert gone(child)
    parent.communicate()
    assert not gone(os.getpid())


def test_a_process_is_known_before_its_cluster_is_ready(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with process_recorded(directory, "memory"):
        found = find_process(directory)
        assert found is not None and found.pid == os.getpid()
        assert find_running(directory) is None
        with process_recorded(directory, "memory"):  # another one, which will be refused
            pass
        assert find_process(directory) == found
    assert not directory.exists()
