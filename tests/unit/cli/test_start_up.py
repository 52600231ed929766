"""What a command line loads before it knows what is asked for: every millisecond of it is paid by every command."""

from __future__ import annotations

import subprocess
import sys

SLOW = ("asyncio", "ssl", "yaml", "rich", "numpy", "cryptography", "websockets", "tarfile")


def test_nothing_slow_is_loaded_early() -> None:
    script = f"import sys, setpoint.__main__; print([one for one in {SLOW!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
