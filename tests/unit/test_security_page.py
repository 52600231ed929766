"""The page on security names tests that are there and that say what they are for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from setpoint.cluster.admission_config import plugin_documents

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| CVE-")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_each_hole_is_named_where_it_is_tested(row: str) -> None:
    tests = [(ROOT / path).read_text() for path in re.findall(r"`(tests/[^`]+)`", row)]
    assert tests
    for hole in re.findall(r"CVE-\d+-\d+", row):
        assert any(hole in text for text in tests), hole
    assert all(re.search(r"CVE-\d+-\d+", text) for text in tests)


def test_the_example_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "quota.yaml").write_text("kind: x")
    (tmp_path / "admission.yaml").write_text(example)
    found = plugin_documents(str(tmp_path / "admission.yaml"))
    assert yaml.safe_load(found.get("PodSecurity") or b"")["defaults"]["enforce"] == "baseline"
    assert found.get("ResourceQuota") == b"kind: x"
