"""Who may import whom, held to by import-linter; and what the rooms may not touch."""

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
def loggers_stay_on() -> Iterator[None]:
    """The linter configures logging for itself, and switches off all that it does not know."""
    yield
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


def test_rooms_import_only_what_lies_below(monkeypatch, loggers_stay_on: None) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename=str(ROOT / ".importlinter"), cache_dir=None) == 0


def _calls(path: Path, wanted: set[str]) -> set[str]:
    text = path.read_text()
    if not any(name in text for name in wanted):
        return set()
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)} & wanted


FORBIDDEN = {
    "time.time", "time.monotonic", "time.sleep", "datetime.now", "datetime.utcnow", "uuid4", "uuid.uuid4",
    "random.random", "random.randint", "random.choice", "asyncio.create_task",
}  # fmt: skip


def test_time_and_chance_are_injected() -> None:
    """Nothing outside the composition roots and the command line takes the machine's clock or randomness."""
    offenders = {
        str(path.relative_to(SOURCE)): found
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("cluster", "cli", "system.py")
        if (found := _calls(path, FORBIDDEN))
    }
    assert offenders == {}


def test_meta_and_kinds_are_pure() -> None:
    """No I/O and no asyncio in the vocabulary and the kinds."""
    impure = {"asyncio", "socket", "ssl", "sqlite3", "threading", "subprocess", "http", "urllib.request"}
    offenders = []
    for room in ("meta", "kinds"):
        for path in (SOURCE / room).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if any(name in text for name in impure) else ():
                names = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import)
                    else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                )  # fmt: skip
                offenders += [f"{path.relative_to(SOURCE)}: {name}" for name in names if name in impure]
    assert offenders == []
