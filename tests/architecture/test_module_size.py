"""No module outgrows what a reader can take in."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "setpoint"
MAX_LINES = 500


def test_modules_are_at_most_500_lines_long() -> None:
    sizes = {path.relative_to(SOURCE): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path): lines for path, lines in sizes.items() if lines > MAX_LINES} == {}
