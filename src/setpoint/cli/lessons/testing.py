"""`setpoint lesson test`: reads the lessons of a folder, and solves each of them twice in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from setpoint.cli.lessons.solving import Unsolved, solve_in_virtual_time
from setpoint.cluster.fresh_start import FreshStart, FreshStarts
from setpoint.cluster.virtual.time import run_virtual
from setpoint.meta.clock import Ids
from setpoint.meta.errors import ApiError
from setpoint.view.course.course import Course
from setpoint.view.course.lesson import Lesson
from setpoint.view.course.problems import Problem

SEEDS: Final = (1, 2)


class LessonResult(NamedTuple):
    """The result of testing one lesson."""

    lesson: str
    problems: list[Problem]
    """The problems that were found; none means that it passed."""
    seconds: float
    """The seconds of virtual time that its solution takes."""


async def check_lesson(
    course: Course, lesson: Lesson, starts: FreshStarts, now: datetime, seeds: tuple[int, ...] = SEEDS
) -> LessonResult:
    """Solve a lesson once for each seed, in a thread, and return what is wrong."""
    file, seconds = f"{lesson.name}.md", 0.0
    if not lesson.checks:
        return LessonResult(lesson.name, [Problem(file, 0, "the lesson has no check")], 0)
    if not lesson.solution:
        return LessonResult(lesson.name, [Problem(file, 0, "the lesson has no solution")], 0)
    start = FreshStart(lesson.start.nodes, lesson.start.pace, tuple(course.start_objects(lesson)))
    try:
        copy = await starts.copy(start, now)
        for seed in seeds:
            seconds = await asyncio.to_thread(run_virtual, solve_in_virtual_time, lesson, start, copy, seed)
    except Unsolved as error:
        return LessonResult(lesson.name, [Problem(file, error.line, str(error))], seconds)
    except ApiError as error:
        return LessonResult(lesson.name, [Problem(file, 1, error.message)], seconds)
    return LessonResult(lesson.name, [], seconds)


async def check_course(
    course: Course,
    ids: Ids,
    now: datetime,
    report: Callable[[LessonResult], None],
    only: tuple[str, ...] = (),
) -> list[Problem]:
    """Test the lessons of a course, or those named, and report each; return all problems."""
    starts, problems = FreshStarts(ids), list(course.problems)
    for lesson in course.lessons:
        if only and lesson.name not in only:
            continue
        result = await check_lesson(course, lesson, starts, now)
        report(result)
        problems += result.problems
    return problems
