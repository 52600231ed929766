"""All lessons in the page, solved by their own solutions."""

from __future__ import annotations

import pytest
from browser import GuardedPage
from page_learner import FOLDER, LESSON_FLAGS, KeyboardLearner, Learner

from setpoint.view.course.lesson import Lesson
from setpoint.web.lessons.folder import built_in_course, read_folder

UP_FLAGS = LESSON_FLAGS


BY_KEYBOARD = 3
"""The first lessons have commands, tasks, predictions, and questions of each kind."""


def solve(learner: Learner, lesson: Lesson) -> None:
    """Open a lesson and take the steps of its solution, which must be shown as right."""
    learner.open(f"own/{lesson.name}")
    learner.solve(lesson)
    page = learner.page
    page.until_text("Everything in this lesson is done." if lesson.name != "operators" else "the last lesson")
    assert page.locator(".learn-result.waiting").count() == 0, f"{lesson.name}: a right answer is shown as wrong"


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_every_lesson_is_solved_by_its_solution(page: GuardedPage, half: int) -> None:
    """The lessons after those that are solved by keyboard."""
    learner, course = Learner(page), read_folder(FOLDER)
    assert course.problems == () and len(course.lessons) == len(built_in_course().lessons) == 16
    for lesson in course.lessons[BY_KEYBOARD + half :: 2]:
        solve(learner, lesson)


@pytest.mark.slow
def test_the_first_lessons_are_solved_by_keyboard(page: GuardedPage) -> None:
    """Users who cannot use a pointer do every task: commands, tasks, predictions, and questions of each kind."""
    learner, course = KeyboardLearner(page), read_folder(FOLDER)
    page.evaluate("addEventListener('pointerdown', () => { window.__pointer = true; }, true)")
    for lesson in course.lessons[:BY_KEYBOARD]:
        solve(learner, lesson)
    assert page.evaluate("window.__pointer === undefined")
