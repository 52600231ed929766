"""The pytest plugin, and the examples of its page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from setpoint.testing import exploring
from setpoint.view.fault_plan import KINDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "test-your-operator.md").read_text()
BLOCKS: dict[str, str] = dict(re.findall(r"(\w+\.py):\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
"""By the name that the page gives the file."""


def run_pytest(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(directory), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "setpoint.testing.plugin", "-p", "no:cacheprovider", *flags]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_examples_of_the_page_pass(tmp_path: Path) -> None:
    assert len(BLOCKS) == PAGE.count("```python"), "each says what to call it"
    for name, code in BLOCKS.items():
        if name != "test_any_language.py" or shutil.which("kubectl"):
            (tmp_path / name).write_text(code)
    done = run_pytest(tmp_path, "--tb=short")
    assert re.search(r"^1 failed, \d+ passed", done.stdout, re.MULTILINE), done.stdout + done.stderr
    shown = "\n".join(line.removeprefix("E   ") for line in done.stdout.splitlines())
    (failure,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert failure in shown, shown


def test_assertions_of_the_package_are_not_rewritten() -> None:
    """Pytest would rewrite all modules of a distribution with a plugin, which is slow."""
    assert isinstance(exploring.__loader__, SourceFileLoader)
    assert not isinstance(sys.modules[__name__].__loader__, SourceFileLoader), "those of this file are rewritten"


def test_the_page_describes_every_fault() -> None:
    assert {kind for kind in KINDS if f"`{kind}:" not in PAGE} == set()


def test_markers_parameters_and_classes(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        """
import pytest

pytestmark = pytest.mark.cluster(nodes=1)

@pytest.mark.parametrize("name", ["a", "b"])
async def test_parameters(name, cluster, tmp_path):
    assert len(await cluster.all(("v1", "Node"), "")) == 1

@pytest.mark.cluster(nodes=2)
async def test_a_mark_of_its_own(cluster):
    assert len(await cluster.all(("v1", "Node"), "")) == 2

class TestThings:
    async def test_method(self, cluster):
        assert len(await cluster.all(("v1", "Node"), "")) == 1

async def test_no_rest(cluster):
    import asyncio
    async def never(name="x"):
        number = 0
        while True:
            number += 1
            await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": f"x{number}", "namespace": "default"}})
            await cluster.sleep(0.5)
    restless = asyncio.ensure_future(never())
    with pytest.raises(AssertionError, match="not settle within 5 s:\\n  kubernetes-admin creates configmaps default/"):
        await cluster.settle(within=5)
    restless.cancel()
"""
    )
    done = run_pytest(tmp_path)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_an_overridden_cluster_fixture_is_used(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef cluster():\n    return 'mine'\n")
    (tmp_path / "test_mine.py").write_text("def test_mine(cluster):\n    assert cluster == 'mine'\n")
    assert "1 passed" in run_pytest(tmp_path).stdout


@pytest.mark.parametrize("flag", ["--markers", "--fixtures"])
def test_fixtures_and_markers_are_documented(tmp_path: Path, flag: str) -> None:
    shown = run_pytest(tmp_path, flag).stdout
    assert ("cluster(**options)" if flag == "--markers" else "live_cluster") in shown


def test_an_unused_plugin_loads_no_cluster() -> None:
    script = "import sys, setpoint.testing.plugin; print(sorted(m for m in sys.modules if m.startswith('setpoint')))"
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True)
    assert loaded.stdout == "['setpoint', 'setpoint.testing', 'setpoint.testing.plugin']\n"


def test_the_virtual_time_fixture_advances_time(tmp_path: Path) -> None:
    (tmp_path / "test_time.py").write_text(
        """
async def test_alone(virtual_time, tmp_path):
    before = virtual_time.now()
    await virtual_time.advance("1h30m")
    assert (virtual_time.now() - before).total_seconds() == 5400

async def test_with_a_cluster(cluster, virtual_time):
    before = cluster.clock.now()
    await virtual_time.advance("5m")
    assert (cluster.clock.now() - before).total_seconds() == 300
"""
    )
    done = run_pytest(tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
