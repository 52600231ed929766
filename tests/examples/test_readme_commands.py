"""The commands of the first example's readme, with a real `setpoint up`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from up_process import up_process

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "examples" / "postgres_operator" / "README.md"
FENCE = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow


def test_the_first_three_commands(tmp_path: Path) -> None:
    first, second = FENCE.findall(README.read_text())[:2]
    begin, start = first.splitlines()
    assert begin == "setpoint up --detach"
    with up_process(tmp_path, "--nodes", "1", "--store", "memory") as kubeconfig:

        def words(line: str) -> list[str]:
            program, *rest = shlex.split(line)
            rest = [str(kubeconfig) if word == ".setpoint/admin.kubeconfig" else word for word in rest]
            if program == "python":
                return [sys.executable, *rest]
            return [sys.executable, "-m", "setpoint", *rest, "--kubeconfig", str(kubeconfig)]

        with open(tmp_path / "operator.log", "wb") as log:
            operator = subprocess.Popen(words(start), cwd=ROOT, stderr=log)
        try:
            # The reader's second terminal; the kind is served a moment after the operator was started.
            deadline = time.monotonic() + 60
            while subprocess.run(words(second.strip()), cwd=ROOT, capture_output=True).returncode != 0:
                assert operator.poll() is None, (tmp_path / "operator.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
            ready = "setpoint wait --for=condition=Ready postgrescluster/orders --timeout=60s"
            subprocess.run(words(ready), cwd=ROOT, check=True, capture_output=True)
        finally:
            operator.terminate()
            assert operator.wait(30) == 0
