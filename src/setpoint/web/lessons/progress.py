"""The progress of a learner in all lessons, in files that only the owner can read. Nothing expires."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from setpoint.view.course.progress import MAX_PROGRESS_BYTES, Progress
from setpoint.web.record_files import RecordFiles

DIRECTORY: Final = "progress"
"""The directory in the data directory with the progress in lessons."""
_ID: Final = re.compile(r"(?:[a-z]{1,20}/)?[a-z0-9][a-z0-9-]{0,62}")
_MAX_LESSONS: Final = 500


class ProgressRecords:
    """The progress by the id of the lesson; in memory only if there is no directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._files = RecordFiles(directory) if directory is not None else None
        self._known: dict[str, Progress] = {}

    def load(self, lesson: str) -> Progress:
        """Return the progress in a lesson."""
        if not _ID.fullmatch(lesson):
            raise ValueError(f"{lesson!r} is not the id of a lesson")
        found = self._files.load(_name(lesson), _what(lesson), Progress.from_json) if self._files is not None else None
        return found or self._known.get(lesson, Progress(lesson))

    def save(self, progress: Progress) -> None:
        """Keep the progress in a lesson, in memory only if the file cannot be written."""
        self._known[progress.lesson] = progress
        if self._files is not None:
            self._files.save(_name(progress.lesson), _what(progress.lesson), progress.to_json())

    def remove(self, lesson: str) -> None:
        """Forget the progress in a lesson."""
        self._known.pop(lesson, None)
        if self._files is not None:
            self._files.remove(_name(lesson))

    def export(self) -> dict[str, Any]:
        """Return all progress as JSON."""
        found = dict(self._known)
        for name in islice(self._files.names(), _MAX_LESSONS) if self._files is not None else ():
            lesson = name.replace("@", "/")
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


def _name(lesson: str) -> str:
    return lesson.replace("/", "@")


def _what(lesson: str) -> str:
    return f"the progress in {lesson}"
