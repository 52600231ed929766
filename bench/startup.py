"""Command to ready: `python bench/startup.py [RUNS] [-- COMMAND ...]`, the default command being `setpoint apiserver`.

Each run uses a fresh data directory (certificates and the first objects are made), then the same one again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def once(directory: str, command: list[str]) -> tuple[float, float]:
    """Seconds to the ready line, and MiB resident then."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--port", "0", "--data-dir", directory], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "ready" in line:
            break
    took = time.perf_counter() - began
    status = Path(f"/proc/{process.pid}/status")
    resident = 0.0
    if status.exists():
        resident = next(
            int(row.split()[1]) / 1024 for row in status.read_text().splitlines() if row.startswith("VmRSS")
        )
    process.send_signal(signal.SIGTERM)
    process.wait()
    return took, resident


def main() -> None:
    arguments = sys.argv[1:]
    command = [str(Path(sys.executable).with_name("setpoint")), "apiserver"]
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    runs = int(arguments[0]) if arguments else 5
    first: list[float] = []
    again: list[float] = []
    memory = 0.0
    for _ in range(runs):
        directory = tempfile.mkdtemp()
        first.append(once(directory, command)[0])
        took, memory = once(directory, command)
        again.append(took)
        shutil.rmtree(directory)
    first.sort()
    again.sort()
    print(f"command to ready, first start: median {first[runs // 2]:.2f} s, best {first[0]:.2f} s")
    print(f"command to ready, restart:     median {again[runs // 2]:.2f} s, best {again[0]:.2f} s")
    print(f"resident when ready:           {memory:.0f} MiB")


if __name__ == "__main__":
    main()
