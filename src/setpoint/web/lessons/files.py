"""The files of a learner in lessons, which are a part of exported progress."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Final

import orjson

from setpoint.web.lessons.folder import Courses
from setpoint.web.workspace import HOME, LIMITS, Workspaces

MAX_BYTES: Final = 512 * 1024
"""Size of all files of an export as JSON: a page sends an import in one message of at most 1 MiB."""
_MAX_PATH: Final = 1_024


class LessonFiles:
    """The files of one user in the lessons of some courses."""

    def __init__(self, workspaces: Workspaces, courses: Courses, user: str) -> None:
        self._workspaces = workspaces
        self._courses = courses
        self._user = user

    def add_to(self, export: Mapping[str, Any]) -> int:
        """Add the files to the lessons of an export of progress. Return the number of those that are left out, because
        they are too large together, or no text."""
        size = left_out = 0
        for lesson in export["lessons"]:
            found = self._courses.find(lesson["lesson"])
            texts = self._workspaces.file_texts(self._user, found.prefix) if found is not None else {}
            files = lesson["files"] = {}
            for path, text in sorted(texts.items()):
                length = _json_length(path, text)
                if length and size + length <= MAX_BYTES:
                    files[path] = text
                    size += length
                else:
                    left_out += 1
        return left_out

    def save(self, files: Mapping[str, Mapping[str, str]]) -> int:
        """Write files by lesson and path, over those that are there. Return the number of those that are left out,
        because they do not fit, or there is no such lesson."""
        left_out = 0
        for lesson, texts in files.items():
            found = self._courses.find(lesson) if texts else None
            if found is None:
                left_out += len(texts)
                continue
            workspace = self._workspaces.of(self._user, found.prefix)
            for path, text in texts.items():
                absolute = normpath(path if path.startswith("/") else f"{HOME}/{path}")
                if workspace.files.is_directory(absolute) or not workspace.files.write(absolute, text):
                    left_out += 1
            workspace.save()
        return left_out


def files_in(export: Any) -> dict[str, dict[str, str]]:
    """Return the files of an export by lesson and path; the export itself may have any form. Raises ValueError."""
    lessons = export.get("lessons") if isinstance(export, dict) else None
    found: dict[str, dict[str, str]] = {}
    for lesson in lessons if isinstance(lessons, list) else ():
        match lesson:
            case {"lesson": str(name), "files": dict(files)} if len(files) <= LIMITS.files:
                if not all(isinstance(text, str) and 0 < len(path) <= _MAX_PATH for path, text in files.items()):
                    raise ValueError(f"the files of {name[:80]!r} must be texts by their paths")
                found[name] = files
            case {"files": _}:
                raise ValueError(f"the files of a lesson must be at most {LIMITS.files} texts by their paths")
    return found


def _json_length(path: str, text: str) -> int:
    """Return the number of bytes of a file as JSON; 0 if it is no text."""
    try:
        return len(orjson.dumps({path: text}))
    except TypeError:  # bytes that are not UTF-8
        return 0
