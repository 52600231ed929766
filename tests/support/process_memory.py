"""The memory of processes."""

from __future__ import annotations

from pathlib import Path


def resident(process: int | str = "self") -> int:
    """Return the bytes of memory that a process occupies; this one by default."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))
