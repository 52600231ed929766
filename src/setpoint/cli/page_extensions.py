"""The additions of the command line to the page: `web` may not import them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from setpoint.cli.page_terminal.conversation import PageTerminals
from setpoint.cli.page_terminal.shell import ShellLimits
from setpoint.system import RandomIds
from setpoint.web import workspace
from setpoint.web.lessons import library
from setpoint.web.lessons.folder import Courses
from setpoint.web.lessons.library import LessonLibrary
from setpoint.web.lessons.progress import DIRECTORY as PROGRESS
from setpoint.web.lessons.progress import ProgressRecords
from setpoint.web.server import PageExtensions
from setpoint.web.workspace import MAX_WORKSPACES, Workspaces

_WORKSPACES: Final = "workspaces"
"""The directory in the data directory with the files and typed lines of the terminals."""


def page_extensions(
    lessons: Path | None = None,
    directory: Path | None = None,
    *,
    limits: ShellLimits | None = None,
    workspaces: int = MAX_WORKSPACES,
) -> PageExtensions:
    """Return the additions. `lessons` is a folder with lessons of the user's own, and `directory` the data directory
    that keeps the progress in lessons, the files and the typed lines of the only user; without it, those of each user
    are in memory. `limits` are those of a line in a terminal, and `workspaces` is the number of users and logical
    clusters whose files are in memory at once."""
    records = ProgressRecords(directory / PROGRESS) if directory is not None else None
    files = directory / _WORKSPACES if directory is not None else None
    lesson_library = LessonLibrary(Courses(lessons), (lambda user: records) if records is not None else None)
    return PageExtensions(
        conversations={"terminal": PageTerminals(RandomIds().suffix, limits).run},
        parts={workspace.PART: Workspaces(workspaces, files), library.PART: lesson_library},
    )
