from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ServerProcess, server_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("interop"), "--authorization-mode", "RBAC") as running:
        yield running


def kubectls() -> list[Path]:
    """Every kubectl beside the one on the path (some distributions ship several versions), and those that are named in
    SETPOINT_TEST_KUBECTL."""
    found = [Path(path) for path in os.environ.get("SETPOINT_TEST_KUBECTL", "").split(os.pathsep) if path]
    installed = shutil.which("kubectl")
    if installed:
        real = Path(installed).resolve()
        found += sorted(real.parent.glob("kubectl.[0-9]*")) or [real]
    return found
