"""The clusters of this machine, as far as this user has started them: what `setpoint list` shows.

There is one small file for each, so that clusters which start at the same time do not disturb each other, in
`$XDG_STATE_HOME/setpoint/clusters`. A file only says where a cluster lives: everything else is read from its data
directory. A file whose data directory is gone is removed by whoever reads it."""

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
"""How many clusters are remembered; the ones that were started longest ago are forgotten first."""


class Known(NamedTuple):
    directory: Path
    created: datetime
    """When it was first started."""
    nodes: int
    """How many simulated nodes it had when it was last started."""


class KnownClusters:
    def __init__(self, environment: Mapping[str, str], home: Path) -> None:
        state = environment.get("XDG_STATE_HOME") or ""
        base = Path(state) if os.path.isabs(state) else home / ".local" / "state"
        self._folder = base / "setpoint" / "clusters"

    def remember(self, directory: Path, nodes: int, now: datetime) -> None:
        """Note a cluster that was started. A home that cannot be written to is no reason not to have a cluster."""
        directory = directory.resolve()
        path = self._folder / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]}.json"
        known = _read(path)
        created = known.created if known is not None and known.directory == directory else now
        entry = {"directory": str(directory), "created": format_time(created), "nodes": nodes}
        with suppress(OSError):
            write_privately(path, json.dumps(entry).encode() + b"\n")
            self._bound()

    def all(self) -> list[Known]:
        """Return those whose data directory is there, by directory."""
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
