"""What every command costs at its start and end."""

from __future__ import annotations

import subprocess
import sys

SLOW = ("asyncio", "ssl", "yaml", "rich", "numpy", "cryptography", "tarfile")


def test_slow_modules_are_not_imported_at_start_up() -> None:
    script = f"import sys, setpoint.__main__; print([one for one in {SLOW!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_json_that_is_sent_as_yaml_is_read_without_yaml() -> None:
    script = """
import sys
from setpoint.meta.body import parse_yaml
print(parse_yaml(b'{"b": 1.0, "a": [{"d": null, "c": "x"}]}'), "yaml" in sys.modules)
print(parse_yaml(b"{a: 1}"), "yaml" in sys.modules)
"""
    assert _run(script).stdout.splitlines() == [
        "({'a': [{'c': 'x', 'd': None}], 'b': 1}, []) False",
        "({'a': 1}, []) True",
    ]


def test_the_process_ends_at_once_with_all_output_and_the_exit_code() -> None:
    script = """
import asyncio, atexit, sys
from setpoint.cli.main import main
atexit.register(print, "freed")
print("before", end=" ")
main(sys.argv[1:])
"""
    done = _run(script, "version", "--client")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("before Client Version: ")
    assert "freed" not in done.stdout
    done = _run(script, "get", "--no-such-flag")
    assert done.returncode == 1
    assert "unknown flag: --no-such-flag" in done.stderr


def test_the_process_waits_for_its_threads() -> None:
    script = """
import asyncio, threading, sys
from setpoint.cli.main import main
ends = threading.Timer(0.2, print, ["the last word"])
ends.start()
main(sys.argv[1:])
"""
    assert _run(script, "version", "--client").stdout.endswith("the last word\n")


def _run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
