"""Run the unit tests on every supported Python that is installed: `make test-pythons`.

Each interpreter gets a virtual environment of its own (`.venv-3.12`, ...). Interpreters are searched on PATH and among
the versions of pyenv. Exits with 1 if a run fails, or if no interpreter was found.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.12", "3.13")


def runs(program: str | Path, version: str) -> bool:
    """Return whether the program is a Python of this version; a shim may exist without the interpreter."""
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([program, "-c", question], capture_output=True, text=True, timeout=30)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == version


def interpreter(version: str) -> str:
    """Return the path of an interpreter of this version; empty if there is none."""
    found = shutil.which(f"python{version}")
    installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    candidates = [*([found] if found else []), *map(str, installed)]
    return next((one for one in candidates if runs(one, version)), "")


def test_on(version: str, program: str, words: list[str]) -> bool:
    """Install the project for this interpreter, run the unit tests, and return whether they passed."""
    environment = ROOT / f".venv-{version}"
    python = environment / "bin" / "python"
    if not runs(python, version):
        subprocess.run([program, "-m", "venv", "--clear", environment], check=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[dev]"]
    subprocess.run([python, *install], check=True, cwd=ROOT)
    tests = words or ["-n", "3", "--dist", "loadfile", "tests/unit"]
    return subprocess.run([python, "-m", "pytest", *tests], cwd=ROOT).returncode == 0


def main(words: list[str]) -> int:
    outcomes = {}
    for version in VERSIONS:
        program = interpreter(version)
        if not program:
            print(f"Python {version}: not installed, skipped")
            continue
        print(f"Python {version}: {program}", flush=True)
        outcomes[version] = test_on(version, program, words)
    for version, passed in outcomes.items():
        print(f"Python {version}: {'passed' if passed else 'FAILED'}")
    return 0 if outcomes and all(outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
