"""Changes settings of the kernel's network (sysctl), and restores the former values when the node leaves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final

from setpoint.node.host.blocking import BlockingPool

log = logging.getLogger("setpoint.node")

SYSCTL_ROOT: Final = Path("/proc/sys")
FORWARDING: Final = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
"""The settings that make the machine a router, by address family."""


def accept_advertisements(interface: str) -> str:
    """Return the setting of an interface for IPv6 router advertisements. Once the machine is a router, the kernel
    ignores them unless the value is 2."""
    return f"net/ipv6/conf/{interface}/accept_ra"


class KernelSettings:
    """Settings with a record of their former values, which outlives the agent."""

    def __init__(self, record: Path, pool: BlockingPool, root: Path = SYSCTL_ROOT) -> None:
        """Create the settings. `record` is the file for the former values."""
        self._record = record
        self._pool = pool
        self._root = root
        self._lock = Lock()
        """Held while the record is read and written, by threads of the pool."""

    async def apply(self, values: Mapping[str, str]) -> list[str]:
        """Set the settings whose paths are the keys, and return a sentence for each one that cannot be set. Settings
        that have the value already are not recorded."""
        return await self._pool.run(self._locked, partial(self._apply, dict(values)))

    async def restore(self) -> list[str]:
        """Restore the recorded values, and return a sentence for each one that cannot be restored. A setting that was
        changed again in the meantime stays as it is."""
        return await self._pool.run(self._locked, self._restore)

    def _locked(self, change: Callable[[], list[str]]) -> list[str]:
        with self._lock:
            return change()

    def _apply(self, values: Mapping[str, str]) -> list[str]:
        problems, record = [], self._read_record()
        for path, value in values.items():
            try:
                before = (self._root / path).read_text().strip()
                if before == value:
                    continue
                if path not in record:
                    # First the record: the change must not outlive the knowledge of the former value.
                    record[path] = [before, value]
                    self._write_record(record)
                (self._root / path).write_text(value)
            except OSError as error:
                problems.append(f"cannot set {path} to {value}: {error.strerror}")
        return problems

    def _restore(self) -> list[str]:
        problems, record = [], self._read_record()
        for path, (before, value) in record.items():
            try:
                if (self._root / path).read_text().strip() == value:
                    (self._root / path).write_text(before)
            except FileNotFoundError:
                continue  # The interface is gone.
            except OSError as error:
                problems.append(f"cannot restore {path}: {error.strerror}")
        if not problems:
            self._record.unlink(missing_ok=True)
        return problems

    def _read_record(self) -> dict[str, list[str]]:
        try:
            found = json.loads(self._record.read_text())
        except FileNotFoundError:
            return {}
        except ValueError:
            log.warning("%s is damaged; former settings of the kernel are not restored", self._record)
            return {}
        return {path: list(values) for path, values in found.items()}

    def _write_record(self, record: Mapping[str, list[str]]) -> None:
        self._record.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._record.with_name(f".{self._record.name}.new")
        temporary.write_text(json.dumps(record, indent=2) + "\n")
        temporary.replace(self._record)
