"""Modules that the command line imports at start-up: every command pays for them."""

from __future__ import annotations

import subprocess
import sys

SLOW = ("asyncio", "ssl", "yaml", "rich", "numpy", "cryptography", "tarfile")


def test_slow_modules_are_not_imported_at_start_up() -> None:
    script = f"import sys, setpoint.__main__; print([one for one in {SLOW!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
