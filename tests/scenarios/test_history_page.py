"""The page docs/history.md: its commands are run one after the other, and show what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from why_scenarios import World

from setpoint.testing import run_virtual, virtual_cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "history.md"
BLOCK = re.compile(r"^```(?:sh|text)\n.*?^```|^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""Blocks without a language are commands that are run, and their output; others are skipped (empty)."""


def without_numbers(text: str) -> list[list[str]]:
    """Return the cells of a table without revisions and ages."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.strip().split("\n")]
    return [row[2:] if row[0].isdigit() else row for row in rows]


@pytest.mark.memory_store("the page shows the writes of one run, as they were merged there")
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    pairs: list[tuple[str, str]] = []

    async def main() -> None:
        async with virtual_cluster() as cluster:
            world = World(cluster, tmp_path)
            last = ""
            for block in filter(None, BLOCK.findall(PAGE.read_text())):
                if not block.startswith("setpoint "):
                    pairs.append((block, last))
                    continue
                for line in block.strip().split("\n"):
                    code, out, error = await world.typed(line.removeprefix("setpoint "))
                    assert code == (1 if line.startswith("setpoint diff") else 0), f"{line}: {error}"
                    last = out if not line.startswith("setpoint diff") or line.endswith(" deployments") else last
                    await cluster.sleep(2)

    run_virtual(main)
    (history, shown), (diff, differences) = pairs
    assert without_numbers(shown) == without_numbers(history)
    assert differences == diff
