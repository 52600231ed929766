"""A learner who takes the built-in lessons in the page, and the course at a pace for tests."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from pathlib import Path

from browser import GuardedPage
from playwright.sync_api import Locator

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
_MOST_TABS, _TABS = 400, 8
_IGNORE_FURTHER_TABS = """(element) => {
  const isThere = () => document.activeElement === element;
  const isInTerminal = () => document.activeElement.closest('.terminal-screen') !== null;
  window.__ignoreTabs?.abort();
  window.__ignoreTabs = new AbortController();
  addEventListener('keydown', (event) => {
    if (event.key === 'Tab' && (isThere() || isInTerminal())) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }, { capture: true, signal: window.__ignoreTabs.signal });
  return isThere() ? 'element' : isInTerminal() ? 'terminal' : '';
}"""
ROWS = "[...document.querySelectorAll('.terminal-screen .xterm-rows > div')].map((row) => row.textContent.replaceAll('\\xa0', ' ').trimEnd()).filter(Boolean)"


class Learner:
    """Takes lessons in a page, by its buttons and its terminal."""

    def __init__(self, page: GuardedPage) -> None:
        self.page = page

    def open(self, lesson: str) -> None:
        back = self.page.get_by_role("button", name="All lessons")
        if back.count():
            self.click(back)
        else:
            self.to_lessons()
        name = lesson.rpartition("/")[2]
        self.click(self.page.locator(f'.learn-card a[href*="lesson={lesson.replace("/", "%2F")}"]'))
        self.page.until(f"location.hash.includes('{name}') && document.querySelector('.learn-text') !== null", 30)
        self.page.until(f"location.hash.includes('cluster=%2Fforks%2Flesson-') && location.hash.includes('{name}')")
        self.until_prompt()

    # -- with a pointer ------------------------------------------------------------------------------------------------

    def click(self, button: Locator) -> None:
        button.click()

    def choose(self, option: Locator) -> None:
        """Choose an option that is one of several."""
        option.check()

    def fill(self, field: Locator, text: str) -> None:
        field.fill(text)

    def to_lessons(self) -> None:
        self.page.go("#/learn")

    def to_terminal(self) -> None:
        """Put the focus into the terminal."""
        self.page.locator(".terminal-screen").click()

    def until_prompt(self) -> None:
        """Wait for an empty prompt; a shell that has lost its connection is started again."""
        self.page.until(f"/( \\$|another shell\\.)$/.test({ROWS}.at(-1) ?? '')", 60)
        if self.page.evaluate(f"{ROWS}.at(-1).endsWith('another shell.')"):
            self.to_terminal()
            self.page.press("Enter")
            self.until_prompt()

    def type(self, run: int, command: int = 0) -> None:
        """Press the button that puts a command on the line, and Enter."""
        row = self.page.locator(f'[data-run="{run}"]').nth(command)
        text = row.locator("pre").inner_text()
        self.click(row.get_by_role("button", name="Type"))
        self._run(text)

    def say(self, text: str) -> None:
        """Type a line into the terminal by hand."""
        self.to_terminal()
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
                self.fill(form.get_by_label("Your answer"), quiz.pattern.split("|")[0].rstrip("s?"))
            elif quiz.kind == "order":
                self._order(form, quiz.right)
            else:
                for each in quiz.right:
                    self.choose(form.locator("input").nth(each))
            self.click(button)
            form.locator(".learn-result, .learn-command, .learn-action").first.wait_for()

    def _order(self, form: Locator, right: list[int]) -> None:
        order = list(range(len(right)))
        for place, wanted in enumerate(right):
            while (at := order.index(wanted)) > place:
                self.click(form.get_by_role("button", name=re.compile("^Move up")).nth(at))
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
                self.click(self.page.locator(f'[data-fault="{pressed["fault"]}"] button'))
                pressed["fault"] += 1
            elif step.kind == "operator":
                self.click(self.page.get_by_role("button", name=f"{step.text.capitalize()} the operator"))
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


class KeyboardLearner(Learner):
    """Takes lessons without a pointer: all that it does is to press keys."""

    def reach(self, element: Locator) -> None:
        """Press Tab until an element has the focus. One leaves the terminal with Ctrl-Shift-Esc, for the view (g m).

        Several are pressed at a time, as each question costs the page more than the key. The page ignores those that
        come when the element has the focus, or the terminal, which would complete words."""
        element.wait_for()
        for _ in range(_MOST_TABS // _TABS):
            focus = element.evaluate(_IGNORE_FURTHER_TABS)
            if focus == "element":
                return
            if focus == "terminal":
                self.page.press("Control+Shift+Escape", "g", "m")
            self.page.press(*["Tab"] * _TABS)
        raise AssertionError(f"{element} cannot be reached with Tab")

    def click(self, button: Locator) -> None:
        self.reach(button)
        self.page.press("Enter")

    def choose(self, option: Locator) -> None:
        group = option.locator("xpath=ancestor::fieldset").locator("input[type=radio]")
        if not group.count():
            self.reach(option)
            self.page.press("Space")
            return
        self.reach(group.first)  # Tab goes to a group, and arrow keys within it
        self.page.press("Space")
        while not option.is_checked():
            self.page.press("ArrowDown")

    def fill(self, field: Locator, text: str) -> None:
        self.reach(field)
        self.page.keyboard.type(text)

    def to_lessons(self) -> None:
        self.page.press("g", "e")

    def to_terminal(self) -> None:
        if not self._is_in_terminal():
            self.reach(self.page.locator(".terminal-screen textarea"))

    def _is_in_terminal(self) -> bool:
        return bool(self.page.evaluate("document.activeElement.closest('.terminal-screen') !== null"))


def lesson_of(name: str) -> Lesson:
    found = read_folder(FOLDER).lesson(name)
    assert found is not None
    return found
