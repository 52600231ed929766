"""Every write of the API server is committed in one place, which records its cause."""

from __future__ import annotations

import ast
from pathlib import Path

_APISERVER = Path(__file__).parents[2] / "src" / "setpoint" / "apiserver"


def test_only_transactions_calls_the_store() -> None:
    callers = {
        path.relative_to(_APISERVER).as_posix()
        for path in _APISERVER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "txn"
    }
    assert callers == {"transactions.py"}


def test_only_the_write_path_prepares_objects() -> None:
    """Handlers and the server's own writes cannot bypass preparation and validation."""
    importers = {
        path.relative_to(_APISERVER).as_posix()
        for path in _APISERVER.rglob("*.py")
        if "import" in (text := path.read_text()) and ("prepare_create" in text or "prepare_update" in text)
    }
    assert importers == {"preparation.py", "write_path.py"}
