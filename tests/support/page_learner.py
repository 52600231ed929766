"""A learner who takes the built-in lessons in the page, and the course at a pace for tests."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from browser import GuardedPage

from setpoint.view.course.lesson import Lesson
from setpoint.web.lessons.folder import read_folder

LESSONS = Path(__file__).parents[2] / "src" / "setpoint" / "lessons"
SHORTER = (
    (re.compile(r"^start: \{nodes: (\d+)", re.MULTILINE), r"start: {pace: fast, nodes: \1"),
    (re.compile(r"terminationGracePeriodSeconds: 20"), "terminationGracePeriodSeconds: 2"),
    (re.compile(r"tolerationSeconds: \d+"), "tolerationSeconds: 2"),
    (re.compile(r"--timeout=[35]s"), "--timeout=1s"),
    (re.compile(r"(\w+DelaySeconds|periodSeconds): 2"), r"\1: 1"),
)


def fast_course() -> Path:
    """The built-in course in a folder of its own, at a pace for tests."""
    folder = Path(tempfile.mkdtemp(prefix="setpoint-lessons-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in LESSONS.iterdir():
        if path.suffix in (".md", ".yaml") and path.name != "demo.md":
            text = path.read_text()
            for pattern, replacement in SHORTER:
                text = pattern.sub(replacement, text)
            (folder / path.name).write_text(text)
    return folder


FOLDER = fast_course()
LESSON_FLAGS = ("--lessons", str(FOLDER), "--store", "sqlite")
"""Flags of `setpoint up` for this course."""
ROWS = "[...document.querySelectorAll('.terminal-screen .xterm-rows > div')].map((row) => row.textContent.replaceAll('\\xa0', ' ').trimEnd()).filter(Boolean)"


class Learner:
    """Takes lessons in a page, by its buttons and its terminal."""

    def __init__(self, page: GuardedPage) -> None:
        self.page = page

    def open(self, lesson: str) -> None:
        back = self.page.get_by_role("button", name="All lessons")
        if back.count():
            back.click()
        else:
            self.page.go("#/learn")
        name = lesson.rpartition("/")[2]
        self.page.locator(f'.learn-card a[href*="lesson={lesson.replace("/", "%2F")}"]').click()
        self.page.until(f"location.hash.includes('{name}') && document.querySelector('.learn-text') !== null", 30)
        self.page.until(f"location.hash.includes('cluster=%2Fforks%2Flesson-') && location.hash.includes('{name}')")
        self.until_prompt()

    def until_prompt(self) -> None:
        """Wait for an empty prompt; a shell that has lost its connection is started again."""
        self.page.until(f"/( \\$|another shell\\.)$/.test({ROWS}.at(-1) ?? '')", 60)
        if self.page.evaluate(f"{ROWS}.at(-1).endsWith('another shell.')"):
            self.page.locator(".terminal-screen").click()
            self.page.press("Enter")
            self.until_prompt()

    def type(self, run: int, command: int = 0) -> None:
        """Press the button that puts a command on the line, and Enter."""
        row = self.page.locator(f'[data-run="{run}"]').nth(command)
        text = row.locator("pre").inner_text()
        row.get_by_role("button", name="Type").click()
        self._run(text)

    def say(self, text: str) -> None:
        """Type a line into the terminal by hand."""
        self.page.locator(".terminal-screen").click()
        self.page.keyboard.type(text)
        self._run(text)

    def _run(self, text: str) -> None:
        self.page.until(f"!{ROWS}.at(-1)?.endsWith(' $')")
        self.page.press("Enter")
        if "--watch" in text:
            self.page.page.wait_for_timeout(800)
            self.page.press("Control+c")
        self.until_prompt()

    def is_met(self, check: str) -> bool:
        return bool(self.page.evaluate(f"document.querySelector('[data-check=\"{check}\"]').dataset.met === 'true'"))

    def until_met(self, check: str) -> None:
        self.page.until(f"document.querySelector('[data-check=\"{check}\"]').dataset.met === 'true'", 60)

    def answer(self, lesson: Lesson) -> None:
        """Answer all questions and predictions that are not answered yet, rightly."""
        forms = self.page.locator(".learn-quiz")
        for at, quiz in enumerate(lesson.quizzes):
            form = forms.nth(at)
            button = form.get_by_role("button", name=re.compile("^(Answer|That is my prediction)$"))
            if not button.count():
                continue
            if quiz.kind == "text":
                form.get_by_label("Your answer").fill(quiz.pattern.split("|")[0].rstrip("s?"))
            elif quiz.kind == "order":
                self._order(form, quiz.right)
            else:
                for each in quiz.right:
                    form.locator("input").nth(each).check()
            button.click()
            form.locator(".learn-result, .learn-command, .learn-action").first.wait_for()

    def _order(self, form: Any, right: list[int]) -> None:
        order = list(range(len(right)))
        for place, wanted in enumerate(right):
            while (at := order.index(wanted)) > place:
                form.get_by_role("button", name=re.compile("^Move up")).nth(at).click()
                order[at - 1], order[at] = order[at], order[at - 1]

    def solve(self, lesson: Lesson) -> None:
        """Take the steps of the solution."""
        self.answer(lesson)
        pressed = {"run": 0, "fault": 0}
        for step in lesson.solution:
            if step.kind == "run":
                for number in range(len(lesson.runs[pressed["run"]].commands)):
                    self.type(pressed["run"], number)
                pressed["run"] += 1
            elif step.kind == "type":
                self.say(step.text)
            elif step.kind == "fault":
                self.page.locator(f'[data-fault="{pressed["fault"]}"] button').click()
                pressed["fault"] += 1
            elif step.kind == "operator":
                self.page.get_by_role("button", name=f"{step.text.capitalize()} the operator").click()
            elif step.kind == "wait":
                self.until_met(step.text)
            elif step.kind == "sleep":
                self.page.page.wait_for_timeout(float(step.text) * 300)
        for check in lesson.checks:
            self.until_met(check.id)
        for at in range(len(lesson.predictions)):
            result = self.page.locator(".learn-predict").nth(at).locator(".learn-result")
            result.wait_for()
            assert "You predicted this rightly." in result.inner_text(), f"{lesson.name}: {result.inner_text()}"


def lesson_of(name: str) -> Lesson:
    found = read_folder(FOLDER).lesson(name)
    assert found is not None
    return found
