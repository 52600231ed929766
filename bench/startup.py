"""Command to ready: `python bench/startup.py [RUNS] [-- COMMAND ...]`, the default command being `setpoint apiserver`;
`-- python -m setpoint up` is a whole cluster.

Each run uses a fresh data directory (certificates and the first objects are made), then the same one again. Modules are
compiled, as an installation leaves them. CPU is the process's own until then: it says more on a busy machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def free_port() -> str:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return str(chosen.getsockname()[1])


def once(directory: str, port: str, command: list[str]) -> tuple[float, float, float]:
    """Seconds to the ready line, seconds of CPU until then, and MiB resident."""
    compiling = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--port", port, "--data-dir", directory],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=compiling,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "ready" in line:
            break
    took = time.perf_counter() - began
    status, times = Path(f"/proc/{process.pid}/status"), Path(f"/proc/{process.pid}/stat")
    resident = used = 0.0
    if status.exists():
        user, system = times.read_text().rpartition(")")[2].split()[11:13]
        used = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        resident = next(
            int(row.split()[1]) / 1024 for row in status.read_text().splitlines() if row.startswith("VmRSS")
        )
    process.send_signal(signal.SIGTERM)
    process.wait()
    return took, used, resident


def main() -> None:
    arguments = sys.argv[1:]
    command = [str(Path(sys.executable).with_name("setpoint")), "apiserver"]
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    runs = int(arguments[0]) if arguments else 5
    first: list[tuple[float, float, float]] = []
    again: list[tuple[float, float, float]] = []
    for _ in range(runs):
        directory, port = tempfile.mkdtemp(), free_port()
        first.append(once(directory, port, command))
        again.append(once(directory, port, command))
        shutil.rmtree(directory)
    for what, found in (("first start:", first), ("restart:    ", again)):
        took, used = sorted(each[0] for each in found), sorted(each[1] for each in found)
        print(
            f"command to ready, {what} median {took[runs // 2]:.2f} s, best {took[0]:.2f} s; "
            f"CPU median {used[runs // 2]:.2f} s, best {used[0]:.2f} s"
        )
    print(f"resident when ready:           {again[-1][2]:.0f} MiB")


if __name__ == "__main__":
    main()
