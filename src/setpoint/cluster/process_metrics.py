"""What this process takes of the machine, under the names that every client of Prometheus uses."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from setpoint.apiserver.version import VERSION
from setpoint.meta.exposition import Family, counter, gauge

_STARTED = time.time()


def process_families() -> list[Family]:
    """Memory and open files only where the system tells them as Linux does."""
    build = {
        name: VERSION[key] for name, key in (("git_version", "gitVersion"), ("major", "major"), ("minor", "minor"))
    }
    found = [
        gauge("kubernetes_build_info", "What runs here.", [(build, 1)]),
        counter("process_cpu_seconds_total", "CPU time spent.", [({}, round(time.process_time(), 3))]),
        gauge("process_start_time_seconds", "When it began.", [({}, round(_STARTED, 2))]),
    ]
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        found.append(gauge("process_resident_memory_bytes", "Memory that is resident.", [({}, memory)]))
    with suppress(OSError):
        found.append(gauge("process_open_fds", "Open files.", [({}, len(os.listdir("/proc/self/fd")))]))
    return found
