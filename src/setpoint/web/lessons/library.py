"""The courses and the progress of the users of a page, as the composition root hands them to feeds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from setpoint.meta.errors import NotFound
from setpoint.view.course.progress import Progress
from setpoint.web.feed import PageContext
from setpoint.web.lessons.folder import Courses
from setpoint.web.lessons.progress import ProgressRecords

PART: Final = "lessons"
"""The name of the `LessonLibrary` in `PageContext.parts`."""
_MAX_USERS: Final = 4_096


class LessonLibrary:
    """Courses, and the progress of each user."""

    def __init__(self, courses: Courses, records: Callable[[str], ProgressRecords] | None = None) -> None:
        """`records` returns the progress of a user; None keeps it in memory."""
        self.courses = courses
        self._records = records or (lambda user: ProgressRecords())
        self._of_users: dict[str, ProgressRecords] = {}
        self._changed = asyncio.Event()

    def progress(self, user: str) -> ProgressRecords:
        found = self._of_users.get(user)
        if found is None:
            while len(self._of_users) >= _MAX_USERS:
                self._of_users.pop(next(iter(self._of_users)))
            found = self._of_users[user] = self._records(user)
        return found

    def save(self, user: str, progress: Progress) -> None:
        """Keep the progress of a user, and notify those that wait for changes."""
        self.progress(user).save(progress)
        self.notify()

    def notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_for_change(self) -> None:
        """Return when the progress of any user has changed."""
        await self._changed.wait()

    def listed(self, user: str) -> dict[str, Mapping[str, Any]]:
        """Return the items of the list of lessons by key: courses, lessons, and the problems of a folder."""
        records = self.progress(user)
        found: dict[str, Mapping[str, Any]] = {}
        for at, (name, course) in enumerate(self.courses.all().items()):
            head = {"type": "course", "order": at, "name": name, "title": course.title}
            found[name] = {**head, "problems": [str(each) for each in course.problems]}
            for number, lesson in enumerate(course.lessons, 1):
                found_lesson = self.courses.find(f"{name}/{lesson.name}")
                assert found_lesson is not None
                progress = records.load(found_lesson.id)
                met, total = progress.counts(lesson)
                found[f"{name}/{lesson.name}"] = {
                    **lesson.summary_json(),
                    "type": "lesson",
                    "course": name,
                    "id": found_lesson.id,
                    "number": number,
                    "met": met,
                    "total": total,
                    "began": bool(progress.began),
                    "done": progress.is_done(lesson),
                }
        return found


def library_of(context: PageContext) -> LessonLibrary:
    """Return the library of the page. Raises NotFound if it has none."""
    found = context.parts.get(PART)
    if not isinstance(found, LessonLibrary):
        raise NotFound("this page server has no lessons")
    return found
