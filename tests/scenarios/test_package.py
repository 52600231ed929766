"""The wheel: small, for any platform, with its data and its command."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(ROOT)], check=True)
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_is_small_and_for_any_platform(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 5 * 1024 * 1024


def test_the_wheel_has_code_data_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for module in (ROOT / "src").rglob("*"):
            if module.is_file() and "__pycache__" not in module.parts:
                assert str(module.relative_to(ROOT / "src")) in names
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "setpoint = setpoint.__main__:main" in archive.read(entry_points).decode()


def test_the_program_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The wheel's own code, not the checkout's: only the dependencies come from this environment."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = "import setpoint, sys; from setpoint.cli import main; print(setpoint.__file__); main(['--help'])"
    ran = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(str(tmp_path))
    assert "apiserver" in ran.stdout and "up" in ran.stdout
