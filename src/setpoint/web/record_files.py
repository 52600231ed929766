"""JSON files in a directory of their own, which only the owner can read."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger("setpoint.web")

Record = TypeVar("Record")


class RecordFiles:
    """The records of one directory by name, which is that of the file. What cannot be read or written is reported in
    the log, where `what` names the record."""

    def __init__(self, directory: Path) -> None:
        """The directory is made with the first record."""
        self._directory = directory

    def load(self, name: str, what: str, parse: Callable[[Any], Record]) -> Record | None:
        """Return a record; None if there is none that can be read. A file is set aside if it is not JSON or `parse`
        raises ValueError."""
        path = self._path(name)
        try:
            return parse(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be read: %s", what, error)
        except (ValueError, RecursionError) as error:
            log.warning("%s is damaged, and kept as %s.damaged: %s", what, path.name, error)
            with suppress(OSError):
                path.replace(path.with_name(f"{path.name}.damaged"))
        return None

    def save(self, name: str, what: str, record: Any) -> None:
        """Write a record, which has a JSON form."""
        path = self._path(name)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(json.dumps(record, separators=(",", ":")).encode())
            temporary.replace(path)
        except OSError as error:
            log.warning("%s cannot be saved: %s", what, error)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            self._path(name).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """Yield the names of all records in their order."""
        with suppress(OSError):
            yield from (path.stem for path in sorted(self._directory.glob("*.json")))

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"
