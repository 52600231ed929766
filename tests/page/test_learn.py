"""Lessons in the page: progress, hints, questions, predictions, own lessons."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from page_learner import FOLDER, LESSON_FLAGS, ROWS, Learner, lesson_of
from playwright.sync_api import expect

from setpoint.view.course.course import new_lesson

UP_FLAGS = LESSON_FLAGS


@pytest.fixture
def learner(page: GuardedPage) -> Learner:
    return Learner(page)


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
    page.press("`")
    learner.until_prompt()
    learner.open("loop")
    page.get_by_role("tab", name="Terminal 1 (lesson-loop)").wait_for()  # each cluster has terminals of its own
    page.locator('[data-run="0"]').get_by_role("button", name="Type").click()
    page.until(f"{ROWS}.at(-1)?.includes('create deployment demo')")
    page.page.wait_for_timeout(500)
    assert page.evaluate(f"{ROWS}.at(-1).includes('create deployment demo')")
    assert not learner.is_met("three")


def test_a_command_that_waits_for_another_one_is_mentioned(learner: Learner) -> None:
    """After `kubectl get --watch`, a message says to a learner who forgets Ctrl-C where the next command is."""
    page = learner.page
    page.press("`")
    learner.until_prompt()
    learner.open("loop")
    page.get_by_role("tab", name="Terminal 1 (lesson-loop)").wait_for()
    learner.until_prompt()
    page.keyboard.type("kubectl get nodes --watch")
    page.press("Enter")
    page.until(f"{ROWS}.at(-1)?.startsWith('node-')")
    page.locator('[data-run="0"]').get_by_role("button", name="Type").click()
    page.until_text("A command still runs in the terminal. End it with Ctrl-C, and “kubectl create deployment demo")
    page.press("Control+c")
    page.until(f"{ROWS}.at(-1)?.includes('create deployment demo')")


def test_on_a_phone_the_text_comes_first(new_context: Callable[..., GuardedContext]) -> None:
    """The terminal covers the whole width there. It opens with a command, and closes again."""
    page = (
        new_context(viewport={"width": 390, "height": 844}, has_touch=True).new_page().enter(then="#/learn?lesson=loop")
    )
    text = page.locator(".learn-text")
    text.get_by_role("heading", name="The loop, and drift").wait_for(timeout=30_000)
    covering = "document.elementFromPoint(195, 300).closest('.learn-text, .dock')?.className"
    page.until(f"{covering} === 'learn-text'")
    expect(page.get_by_role("button", name="Back to your cluster")).to_be_visible()
    page.locator('[data-run="0"]').get_by_role("button", name="Type").click()
    page.until(f"{ROWS}.join('').includes('create deployment demo')")
    page.get_by_role("button", name="Close Terminal").click()
    page.until(f"{covering} === 'learn-text'")


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
    learner.until_prompt()
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
