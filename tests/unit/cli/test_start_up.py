"""What every command costs at its start and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from setpoint.testing.live import LiveCluster

SLOW = ("asyncio", "ssl", "yaml", "rich", "numpy", "cryptography", "tarfile")


def test_slow_modules_are_not_imported_at_start_up() -> None:
    script = f"import sys, setpoint.__main__; print([one for one in {SLOW!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


MOST_LOADED = {
    "get namespaces": (30, 54),
    "get pods -o wide": (30, 54),
    "get deployment web -o yaml": (30, 60),
    "get deployment web -o json": (30, 59),
    "scale deployment web --replicas=2": (30, 56),
    "label deployment web tier=front": (30, 67),
    "set image deployment/web nginx=nginx:2": (30, 70),
    "describe namespace default": (30, 67),
    "apply -f configmap.json": (52, 80),
    "delete configmap web": (30, 56),
}
"""Frequent commands, with the greatest numbers of modules that they may load: those that `pathlib`, `ssl`
and `urllib.parse` have not loaded, whose parts differ between versions of Python, and those of this package. The
time of a command is mostly that of loading modules, so an import at the top of a module that few commands need makes
all of them slower (`python -X importtime` shows which)."""
SLOW_FOR_ALL = {"asyncio", *SLOW[2:], "hashlib", "random", "logging", "setpoint.kinds.strategy"}
SLOW_FOR_MOST = {"dataclasses", "inspect", "orjson", "uuid", "setpoint.meta.body"}


def test_frequent_commands_load_few_modules(live_cluster: LiveCluster, tmp_path: Path) -> None:
    script = """
import pathlib, ssl, sys, urllib.parse
before = set(sys.modules)
from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run
code = run(sys.argv[1:], CommandIO())
print(code, *sorted(set(sys.modules) - before), file=sys.stderr)
"""
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(live_cluster.kubeconfig)}
    (tmp_path / "configmap.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}})
    )

    def loaded(command: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", script, *command.split()],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=environment,
        )
        code, *modules = done.stderr.split()
        assert code == "0", done.stderr
        return set(modules)

    loaded("create deployment web --image=nginx")
    for command, (most, most_own) in MOST_LOADED.items():
        found = loaded(command)
        own = {name for name in found if name.startswith("setpoint")}
        assert len(own) <= most_own, (command, len(own), sorted(own))
        assert len(found - own) <= most, (command, len(found - own), sorted(found - own))
        assert not found & SLOW_FOR_ALL, command
        if not command.startswith("apply"):
            assert not found & SLOW_FOR_MOST, command


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
import atexit, sys
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
import threading, sys
from setpoint.cli.main import main
ends = threading.Timer(0.2, print, ["the last word"])
ends.start()
main(sys.argv[1:])
"""
    assert _run(script, "version", "--client").stdout.endswith("the last word\n")


def _run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
