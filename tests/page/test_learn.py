"""Lessons in the page: all of them solved by their own solutions, progress, hints, questions, predictions, own lessons."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster

from setpoint.view.course.course import new_lesson
from setpoint.view.course.lesson import Lesson
from setpoint.web.lessons.folder import built_in_course, read_folder

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
UP_FLAGS = ("--lessons", str(FOLDER), "--store", "sqlite")
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
        self._prompt()

    def _prompt(self) -> None:
        """Wait for an empty prompt; a shell that has lost its connection is started again."""
        self.page.until(f"/( \\$|another shell\\.)$/.test({ROWS}.at(-1) ?? '')", 60)
        if self.page.evaluate(f"{ROWS}.at(-1).endsWith('another shell.')"):
            self.page.locator(".terminal-screen").click()
            self.page.press("Enter")
            self._prompt()

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
        self._prompt()

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


@pytest.fixture
def learner(page: GuardedPage) -> Learner:
    return Learner(page)


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_every_lesson_is_solved_by_its_solution(learner: Learner, half: int) -> None:
    course = read_folder(FOLDER)
    assert course.problems == () and len(course.lessons) == len(built_in_course().lessons) == 16
    for lesson in course.lessons[half::2]:
        learner.open(f"own/{lesson.name}")
        learner.solve(lesson)
        learner.page.until_text(
            "Everything in this lesson is done." if lesson.name != "operators" else "the last lesson"
        )
        results = learner.page.locator(".learn-result.waiting").count()
        assert results == 0, f"{lesson.name}: a right answer is shown as wrong"


def test_progress_survives_a_restart(learner: Learner, cluster: PageCluster) -> None:
    page = learner.page
    learner.open("own/image-errors")
    learner.solve(lesson_of("image-errors"))
    page.get_by_role("button", name="All lessons").click()
    card = page.locator(".learn-card.done", has_text="An image that cannot be pulled")
    card.wait_for()
    assert "Done" in card.inner_text()
    page.guard.allowed += ["WebSocket", "ERR_CONNECTION_REFUSED"]
    cluster.stop()
    files = [*(cluster.data_directory / "progress").iterdir()]
    assert [each.name for each in files if "image-errors" in each.name] == ["own@image-errors.json"]
    assert all(each.stat().st_mode & 0o077 == 0 for each in files)
    cluster.start()
    page.until("document.querySelector('.learn-card.done') !== null", 30)
    learner.open("own/image-errors")
    page.until_text("Everything in this lesson is done.")
    assert learner.is_met("repaired") and not learner.page.get_by_text("Not quite.").count()


def test_hints_questions_and_predictions(learner: Learner) -> None:
    page = learner.page
    learner.open("spec-and-status")
    check = page.locator('[data-check="five"]')
    page.until("document.querySelector('[data-check=\"five\"]').textContent.includes('spec wants 3')")
    for button, hint in (("Hint", "Change the number of replicas"), ("Another hint", "kubectl scale deployment web")):
        check.get_by_role("button", name=button).click()
        check.get_by_text(hint).wait_for()
    assert check.get_by_role("button").count() == 0, "there is no further hint"

    quiz = page.locator(".learn-quiz", has_text="What can you conclude?")
    quiz.locator("input").nth(0).check()
    quiz.get_by_role("button", name="Answer", exact=True).click()
    quiz.get_by_text("Not quite.").wait_for()
    assert not quiz.get_by_text("The conditions follow the life").count()
    quiz.get_by_role("button", name="Reveal answer").click()
    quiz.get_by_text("The conditions follow the life").first.wait_for()
    quiz.get_by_role("button", name="Try again").click()
    quiz.locator("input").nth(1).check()
    quiz.get_by_role("button", name="Answer", exact=True).click()
    quiz.get_by_text("Right.").wait_for()

    predict = page.locator(".learn-predict")
    assert not predict.get_by_role("button", name="Type").count(), "first predict, then see"
    predict.locator("input").nth(0).check()
    predict.get_by_role("button", name="That is my prediction").click()
    predict.get_by_text("your prediction is compared").wait_for()
    learner.type(2)
    predict.get_by_text("It turned out differently.").wait_for()
    predict.get_by_text("The command changed").wait_for()
    learner.until_met("five")
    page.until(
        "[...document.querySelectorAll('[aria-live]')].some((each) => each.textContent.includes('Five Pods are ready'))"
    )

    page.get_by_role("button", name="Start over").click()
    began = time.monotonic()
    page.get_by_role("dialog").get_by_role("button", name="Start over").click()
    page.until("document.querySelector('[data-check=\"five\"]').dataset.met === 'false'")
    assert time.monotonic() - began < 5
    page.until("document.querySelector('[data-check=\"five\"]').textContent.includes('spec wants 3')")


def test_a_command_is_never_run_unasked(learner: Learner) -> None:
    page = learner.page
    learner.open("loop")
    page.locator('[data-run="0"]').get_by_role("button", name="Type").click()
    page.until(f"{ROWS}.at(-1)?.includes('create deployment demo')")
    page.page.wait_for_timeout(500)
    assert page.evaluate(f"{ROWS}.at(-1).includes('create deployment demo')")
    assert not learner.is_met("three")


def test_a_teachers_lesson(learner: Learner, tmp_path: Path) -> None:
    """Put into the folder it appears, with its mistakes; dropped onto the page it is opened."""
    page = learner.page
    page.go("#/learn")
    page.until_text("An image that cannot be pulled")
    try:
        (FOLDER / "mine.md").write_text(new_lesson("A lesson of mine"))
        (FOLDER / "course.yaml").write_text((FOLDER / "course.yaml").read_text() + "- mine\n")
        page.until_text("A lesson of mine")
        (FOLDER / "mine.md").write_text(new_lesson("x").replace(":::quiz", ":::quizz"))
        page.until_text("there is no block quizz; known are")
    finally:
        (FOLDER / "mine.md").unlink(missing_ok=True)
        (FOLDER / "course.yaml").write_text((FOLDER / "course.yaml").read_text().removesuffix("- mine\n"))
    dropped = tmp_path / "My Lesson.md"
    hostile = '<img src=x onerror="window.hacked = 1"> <script>window.hacked = 1</script>'
    dropped.write_text(new_lesson("Dropped").replace("Say what this lesson is about", hostile))
    page.page.locator('input[type="file"][accept=".md"]').set_input_files(dropped)
    page.until("document.querySelector('.learn-text')?.textContent.includes('<script>')", 30)
    assert page.evaluate(
        "window.hacked === undefined && document.querySelector('.learn-text img, .learn-text script') === null"
    )
    learner._prompt()
    learner.type(0)
    learner.until_met("two-ready")
    broken = tmp_path / "broken.md"
    broken.write_text("---\ntitle: x\n---\n:::magic\n:::\n")
    page.get_by_role("button", name="All lessons").click()
    page.page.locator('input[type="file"][accept=".md"]').set_input_files(broken)
    page.until_text("broken.md:4: there is no block magic")


def test_export_and_import(learner: Learner, tmp_path: Path) -> None:
    page = learner.page
    page.go("#/learn")
    page.until_text("An image that cannot be pulled")
    with page.page.expect_download() as download:
        page.get_by_role("button", name="Export progress").click()
    exported = tmp_path / "progress.json"
    download.value.save_as(exported)
    assert '"setpointProgress": 1' in exported.read_text()
    page.page.locator('input[type="file"][accept=".json"]').set_input_files(exported)
    page.until_text("was read.")
    exported.write_text("nothing")
    page.page.locator('input[type="file"][accept=".json"]').set_input_files(exported)
    page.until_text("This file is not an export of progress.")


@pytest.mark.parametrize("colour_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_accessibility_of_lessons(new_context: Callable[..., GuardedContext], colour_scheme: str, width: int) -> None:
    context = new_context(color_scheme=colour_scheme, viewport={"width": width, "height": 844})
    page = context.new_page().enter()
    page.go("#/learn")
    page.until_text("An image that cannot be pulled")
    assert findings(page) == []
    page.go("#/learn?lesson=own/pending")
    page.until("document.querySelector('.learn-text') !== null", 30)
    page.until_text("It has no node")
    page.until("document.querySelector('[data-check]').textContent.length > 10")
    assert findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut off"
