"""The courses of a learner: the one of the package, and one in a folder of their own, read again when it changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from importlib.resources import files as package_files
from pathlib import Path
from typing import Final, NamedTuple

from setpoint.view.course.course import MAX_FILES, MAX_FOLDER_BYTES, Course, read_course
from setpoint.view.course.lesson import Lesson
from setpoint.view.course.markdown import FILE_NAME
from setpoint.view.course.problems import Problem

BUILT_IN, OWN = "setpoint", "own"
"""The names of the two courses."""
_SUFFIXES: Final = (".md", ".yaml", ".yml", ".json", ".png", ".jpg", ".jpeg", ".gif", ".webp")
_PACKAGE: Final = "setpoint.lessons"
DEMO: Final = "demo.md"
"""The file that `setpoint demo` plays; it is not a lesson of the course."""


class Found(NamedTuple):
    """A lesson and its course."""

    course_name: str
    course: Course
    lesson: Lesson

    @property
    def id(self) -> str:
        """The name by which commands and the page refer to it: that of a lesson of the learner's own folder has the
        course in front."""
        return self.lesson.name if self.course_name == BUILT_IN else f"{self.course_name}/{self.lesson.name}"

    @property
    def fork(self) -> str:
        """The name of the fork in which it takes place."""
        return f"lesson-{self.id.replace('/', '-')}"

    @property
    def prefix(self) -> str:
        """The path prefix of that logical cluster."""
        return f"/forks/{self.fork}"


def package_file(name: str) -> bytes:
    """Return a file of the package's course."""
    return package_files(_PACKAGE).joinpath(name).read_bytes()


def built_in_course() -> Course:
    """Return the course of the package."""
    found = {
        each.name: each.read_bytes()
        for each in package_files(_PACKAGE).iterdir()
        if each.name.endswith(_SUFFIXES) and each.name != DEMO
    }
    return read_course(found)


def read_folder(directory: Path) -> Course:
    """Return the course of a folder. What cannot be read is among its problems."""
    problems: list[Problem] = []
    found: dict[str, bytes] = {}
    size = 0
    try:
        for entry in _entries(directory):
            size += entry.stat(follow_symlinks=False).st_size
            if size > MAX_FOLDER_BYTES:
                problems.append(Problem(entry.name, 0, f"the folder has more than {MAX_FOLDER_BYTES >> 20} MiB"))
                break
            found[entry.name] = Path(entry.path).read_bytes()
    except OSError as error:
        problems.append(Problem(str(directory), 0, (error.strerror or str(error)).lower()))
    course = read_course(found)
    return Course(course.title, course.locale, course.lessons, course.files, (*problems, *course.problems))


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files of a folder that can belong to a course: no links, folders or devices."""
    with os.scandir(directory) as entries:
        known = sorted((each for each in entries if _is_file(each)), key=lambda each: each.name)
    yield from known[:MAX_FILES]


def _is_file(entry: os.DirEntry[str]) -> bool:
    is_named = FILE_NAME.fullmatch(entry.name) is not None and entry.name.endswith(_SUFFIXES)
    return is_named and stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)


class Courses:
    """The courses. The folder is read again when its files change; ask now and then."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is a learner's or teacher's own course; None means that there is none."""
        self._folder = folder
        self._built_in: Course | None = None
        self._own: Course | None = None
        self._signature: object = None

    def all(self) -> dict[str, Course]:
        """Return the courses by name, the own one first."""
        if self._built_in is None:
            self._built_in = built_in_course()
        if self._folder is None:
            return {BUILT_IN: self._built_in}
        signature = _signature(self._folder)
        if self._own is None or signature != self._signature:
            self._own, self._signature = read_folder(self._folder), signature
        return {OWN: self._own, BUILT_IN: self._built_in}

    def find(self, name: str) -> Found | None:
        """Return the lesson with an id; if there is none, by name or number the one of the first course that has it;
        None if there is none."""
        course_name, slash, rest = name.rpartition("/")
        found = [
            Found(each, course, lesson)
            for each, course in self.all().items()
            if (not slash or each == course_name) and (lesson := course.lesson(rest)) is not None
        ]
        return next((each for each in found if each.id == name), found[0] if found else None)


def _signature(folder: Path) -> object:
    """Return a value that changes with the files of a folder."""
    try:
        found = [(each.name, each.stat(follow_symlinks=False)) for each in _entries(folder)]
    except OSError as error:
        return str(error)
    return [(name, status.st_size, status.st_mtime_ns) for name, status in found]
