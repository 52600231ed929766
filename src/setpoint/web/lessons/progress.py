"""The progress of a learner in all lessons, in files that only the owner can read. Nothing expires."""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from setpoint.view.course.progress import MAX_PROGRESS_BYTES, Progress

log = logging.getLogger("setpoint.web")

_ID: Final = re.compile(r"(?:[a-z]{1,20}/)?[a-z0-9][a-z0-9-]{0,62}")
_MAX_LESSONS: Final = 500


class ProgressRecords:
    """The progress by the id of the lesson; in memory only if there is no directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._known: dict[str, Progress] = {}

    def load(self, lesson: str) -> Progress:
        """Return the progress in a lesson. A file that cannot be read is set aside, and reported in the log."""
        if not _ID.fullmatch(lesson):
            raise ValueError(f"{lesson!r} is not the id of a lesson")
        if self._directory is None:
            return self._known.get(lesson, Progress(lesson))
        path = self._path(lesson)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return self._known.get(lesson, Progress(lesson))
        except OSError as error:
            log.warning("the progress in %s cannot be read: %s", lesson, error)
            return self._known.get(lesson, Progress(lesson))
        try:
            return Progress.from_json(orjson.loads(data))
        except ValueError as error:
            log.warning("the progress in %s is damaged, and kept as %s.damaged: %s", lesson, path.name, error)
            with suppress(OSError):
                path.replace(path.with_name(f"{path.name}.damaged"))
            return Progress(lesson)

    def save(self, progress: Progress) -> None:
        """Keep the progress in a lesson. If the file cannot be written, it is kept in memory and reported in the
        log."""
        self._known[progress.lesson] = progress
        if self._directory is None:
            return
        path = self._path(progress.lesson)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(orjson.dumps(progress.to_json()))
            temporary.replace(path)
        except OSError as error:
            log.warning("the progress in %s cannot be saved: %s", progress.lesson, error)

    def remove(self, lesson: str) -> None:
        """Forget the progress in a lesson."""
        self._known.pop(lesson, None)
        if self._directory is not None:
            with suppress(OSError):
                self._path(lesson).unlink(missing_ok=True)

    def export(self) -> dict[str, Any]:
        """Return all progress as JSON."""
        found = dict(self._known)
        if self._directory is not None:
            with suppress(OSError):
                for path in sorted(self._directory.glob("*.json"))[:_MAX_LESSONS]:
                    lesson = path.stem.replace("@", "/")
                    if _ID.fullmatch(lesson):
                        found[lesson] = self.load(lesson)
        return {"setpointProgress": 1, "lessons": [each.to_json() for each in found.values()]}

    def load_export(self, found: Any) -> int:
        """Save the progress of an export and return the number of lessons. Raises ValueError."""
        if not isinstance(found, dict) or found.get("setpointProgress") != 1:
            raise ValueError("this is not an export of progress")
        lessons = found.get("lessons")
        if not isinstance(lessons, list) or len(lessons) > _MAX_LESSONS:
            raise ValueError(f"lessons must be a list of at most {_MAX_LESSONS}")
        read = [Progress.from_json(each) for each in lessons]
        for each in read:
            if not _ID.fullmatch(each.lesson) or len(orjson.dumps(each.to_json())) > MAX_PROGRESS_BYTES:
                raise ValueError(f"{each.lesson[:80]!r} is not the id of a lesson, or its progress is too large")
        for each in read:
            self.save(each)
        return len(read)

    def _path(self, lesson: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{lesson.replace('/', '@')}.json"
