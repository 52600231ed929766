"""`setpoint up --detach`: run the cluster in a background process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from setpoint.cli.failures import Failed
from setpoint.cli.fleet_file import pace_of
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import directory_of, find_running
from setpoint.cli.serving import STARTED

_LOOK_EVERY, _LONGEST = 0.01, 300.0
_LAST_WORDS = 2000


def start_detached(call: Invocation) -> int:
    from setpoint.cli.up import welcome

    directory = directory_of(call)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = directory / "up.log"
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "setpoint", "up", *_flags(call)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while True:
        running = find_running(directory)
        if running is not None and running.pid == process.pid:
            break
        if process.poll() is not None:
            raise Failed(_last_words(log) or f"the cluster ended with {process.returncode}; see {log}")
        if time.monotonic() - STARTED > _LONGEST:
            raise Failed(f"the cluster is not ready after {_LONGEST:.0f} s; it continues to start, see {log}")
        time.sleep(_LOOK_EVERY)
    for line in _warnings(log):
        call.print_err(line)
    took = time.monotonic() - STARTED
    call.print(welcome(call, running.url, Path(running.kubeconfig), running.nodes, took))
    return 0


def _flags(call: Invocation) -> list[str]:
    """Return the flags for the background process, with the pace, which it cannot derive from a terminal."""
    typed = [f"--{flag.name}={value}" for flag, value in call.flags.occurrences if flag.name not in ("detach", "pace")]
    return [*typed, f"--pace={pace_of(call)}"]


def _warnings(log: Path) -> list[str]:
    """Return the warnings in the log before our own lines."""
    text = log.read_bytes()[:_LAST_WORDS].decode("utf-8", "replace")
    return [line for line in text.partition("A cluster with ")[0].splitlines() if line]


def _last_words(log: Path) -> str:
    text = log.read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
    return text.rpartition("error: ")[2]
