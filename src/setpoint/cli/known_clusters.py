"""The clusters that this user has started on this machine: the data of `setpoint list`.

Each cluster has one small file in `$XDG_STATE_HOME/setpoint/clusters`, so that clusters can start concurrently. A file
only contains where a cluster is: everything else is read from its data directory. A file whose data directory is gone
is removed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from setpoint.cli.private_file import write_privately
from setpoint.meta.times import format_time, parse_time

_MOST = 1000
"""The maximum number of clusters; the least recently started are removed first."""


class Known(NamedTuple):
    directory: Path
    created: datetime
    """When the cluster was first started."""
    nodes: int
    """The number of simulated nodes when it was last started."""


class KnownClusters:
    def __init__(self, environment: Mapping[str, str], home: Path) -> None:
        state = environment.get("XDG_STATE_HOME") or ""
        base = Path(state) if os.path.isabs(state) else home / ".local" / "state"
        self._folder = base / "setpoint" / "clusters"

    def remember(self, directory: Path, nodes: int, now: datetime) -> None:
        """Record a cluster that was started. A home directory that cannot be written to is not an error."""
        directory = directory.resolve()
        path = self._folder / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]}.json"
        known = _read(path)
        created = known.created if known is not None and known.directory == directory else now
        entry = {"directory": str(directory), "created": format_time(created), "nodes": nodes}
        with suppress(OSError):
            write_privately(path, json.dumps(entry).encode() + b"\n")
            self._bound()

    def all(self) -> list[Known]:
        """Return the clusters whose data directory exists, sorted by directory."""
        found = []
        for path in self._files():
            known = _read(path)
            if known is not None and known.directory.is_dir():
                found.append(known)
            else:
                with suppress(OSError):
                    path.unlink()
        return sorted(found)

    def _files(self) -> list[Path]:
        with suppress(OSError):
            return list(self._folder.glob("*.json"))
        return []

    def _bound(self) -> None:
        files = self._files()
        if len(files) > _MOST:
            self.all()
            newest_first = sorted(self._files(), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in newest_first[_MOST:]:
                path.unlink()


def _read(path: Path) -> Known | None:
    try:
        found = json.loads(path.read_bytes())
        return Known(Path(found["directory"]), parse_time(found["created"]), int(found["nodes"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
