"""Import rules between packages, checked by import-linter, and the modules that a package may not use."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "setpoint"


@pytest.fixture
def enabled_loggers() -> Iterator[None]:
    """Enable all loggers again afterwards: the linter configures logging and disables those it does not know."""
    yield
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


def test_packages_import_only_lower_layers(monkeypatch: pytest.MonkeyPatch, enabled_loggers: None) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=str(ROOT / ".importlinter"), cache_dir=None) == 0


def _calls(path: Path, wanted: set[str]) -> set[str]:
    text = path.read_text()
    if not any(name in text for name in wanted):
        return set()
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)} & wanted


FORBIDDEN = {
    "time.time",
    "time.monotonic",
    "time.sleep",
    "datetime.now",
    "datetime.utcnow",
    "uuid4",
    "uuid.uuid4",
    "random.random",
    "random.randint",
    "random.choice",
}


def test_time_and_randomness_are_injected() -> None:
    """Only the composition root and the command line use the clock and the randomness of the machine."""
    offenders = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("cluster", "cli", "system.py")
        if (found := _calls(path, FORBIDDEN))
    }
    assert offenders == {}


def test_pure_packages() -> None:
    """These packages do no I/O and do not use asyncio."""
    impure = {"asyncio", "socket", "ssl", "sqlite3", "threading", "subprocess", "http", "urllib.request"}
    impure |= {"setpoint.system", "setpoint.tasks"}
    offenders = []
    for package in ("meta", "kinds", "view"):
        for path in (SOURCE / package).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if any(name in text for name in impure) else ():
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
                offenders += [f"{path.relative_to(SOURCE)}: {name}" for name in names if name in impure]
    assert offenders == []


def test_only_wire_parses_http() -> None:
    """There is one HTTP stack: no other package parses HTTP or reads raw streams, except to forward TCP ports."""
    marks = ("httptools", "asyncio.start_server", "asyncio.open_connection")
    offenders = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "wire"
        if (found := [mark for mark in marks if mark in path.read_text()])
    }
    assert offenders == {"cli/verbs/port_forward.py": ["asyncio.start_server"]}
