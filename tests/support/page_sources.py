"""The TypeScript sources of the page, for tests that need node and installed packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "page"


def require_node() -> None:
    if shutil.which("node") is None or not (PAGE / "node_modules").is_dir():
        pytest.skip("node is missing, or `npm ci --ignore-scripts` was not run in page/")


def node(*command: str) -> None:
    """Run a script of an installed package."""
    require_node()
    done = subprocess.run(["node", *command], cwd=PAGE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def bundle(script: Path, target: Path) -> Path:
    """Make one file of a script and all that it imports from the page."""
    node(
        "node_modules/rolldown/bin/cli.mjs", str(script), "--file", str(target), "--platform", "node", "--format", "esm"
    )
    return target
