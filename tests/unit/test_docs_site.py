"""The documentation site builds without warnings, and a browser loads nothing of it from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from setpoint import sdk, testing
from setpoint.cli.catalog import GROUPS

ROOT = Path(__file__).resolve().parents[2]
_REMOTE = r"""=["']?(?:https?:)?//"""
LOADED = re.compile(rf"<(?:script|img|iframe|source)\b[^>]*\bsrc{_REMOTE}|<link\b[^>]*\bhref{_REMOTE}")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("mkdocs") is None or find_spec("material") is None,
        reason="mkdocs-material is not installed: pip install -e '.[docs]'",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []
    styles = [sheet for sheet in site.rglob("*.css") if re.search(r"url\([\"']?(https?:)?//", sheet.read_text())]
    assert styles == []
    # Material's script would fetch Mermaid for such blocks.
    assert [page.name for page in pages if 'class="mermaid"' in page.read_text()] == []


def test_the_reference_is_complete(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text()
    names = [name for group in GROUPS.values() for name, command in group.items() if not command.hidden]
    assert [name for name in names if f"<code>setpoint {name}</code>" not in commands] == []
    for page, module in (("sdk", sdk), ("testing", testing)):
        text = (site / "reference" / f"{page}.html").read_text()
        assert [name for name in module.__all__ if f"<code>{name}</code>" not in text] == []
