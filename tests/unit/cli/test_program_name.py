"""The program name in the banner of `up` works in the user's shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from setpoint.cli.up import program_name


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("setpoint", "python"):
        (binaries / name).write_text("#!/bin/sh\n")
        (binaries / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_after_make_up(checkout: Path) -> None:
    assert program_name({"PATH": "/usr/bin"}, [".venv/bin/setpoint"]) == ".venv/bin/setpoint"
    assert program_name({"PATH": "/usr/bin"}, [f"{checkout}/.venv/bin/setpoint"]) == ".venv/bin/setpoint"


def test_in_an_activated_environment(checkout: Path) -> None:
    assert program_name({"PATH": f"{checkout}/.venv/bin:/usr/bin"}, [f"{checkout}/.venv/bin/setpoint"]) == "setpoint"


def test_another_program_of_the_same_name_is_not_used(checkout: Path) -> None:
    other = checkout / "other"
    other.mkdir()
    (other / "setpoint").write_text("#!/bin/sh\n")
    (other / "setpoint").chmod(0o755)
    assert program_name({"PATH": str(other)}, [".venv/bin/setpoint"]) == ".venv/bin/setpoint"


def test_from_another_directory_and_as_a_module(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "a b").mkdir()
    monkeypatch.chdir(checkout / "a b")
    assert program_name({}, [f"{checkout}/.venv/bin/setpoint"]) == f"{checkout}/.venv/bin/setpoint"
    module = [f"{checkout}/src/setpoint/__main__.py"]
    assert program_name({}, module, f"{checkout}/.venv/bin/python") == f"{checkout}/.venv/bin/python -m setpoint"
