"""The TypeScript sources of the page, for tests that need node and installed packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "page"


def require_node() -> None:
    """Skip the test without node and the packages of the page; with SETPOINT_REQUIRE_NODE it fails."""
    if shutil.which("node") is None or not (PAGE / "node_modules").is_dir():
        what = "node is missing, or `npm ci --ignore-scripts` was not run in page/"
        if os.environ.get("SETPOINT_REQUIRE_NODE"):
            pytest.fail(f"{what}, and SETPOINT_REQUIRE_NODE is set")
        pytest.skip(what)


def node(*command: str) -> None:
    """Run a script of an installed package."""
    require_node()
    done = subprocess.run(["node", *command], cwd=PAGE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def page_code(script: Path, directory: Path) -> Iterator[Callable[[str, Any], Any]]:
    """Run a script that uses the page's code while the block runs, and yield a function that tells it what happens: it
    sends the name of an event and its data, and returns the answer. `directory` is for the bundled script."""
    target = directory / script.name
    node(
        "node_modules/rolldown/bin/cli.mjs", str(script), "--file", str(target), "--platform", "node", "--format", "esm"
    )
    with subprocess.Popen(["node", target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def happens(event: str, data: Any = None) -> Any:
            stdin.write(json.dumps([event, data]) + "\n")
            stdin.flush()
            return json.loads(stdout.readline())

        try:
            yield happens
        finally:
            process.kill()
