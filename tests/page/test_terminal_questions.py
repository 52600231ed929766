"""Questions of programs in the terminal: an answer is typed behind the question, which stays on the screen."""

from __future__ import annotations

import pytest
from browser import GuardedPage
from page_typist import Typist


@pytest.fixture
def typist(page: GuardedPage) -> Typist:
    return Typist(page).open()


def rows(typist: Typist) -> list[str]:
    return [row for row in typist.shown().split("\n") if row]


def test_an_answer_is_edited_behind_the_question(typist: Typist) -> None:
    page = typist.page
    page.keyboard.type("clear\nprintf 'Your name: '; read name; echo \"<$name>\"\n")
    typist.until("\nYour name:")
    page.keyboard.type("anx")
    typist.until("Your name: anx")
    page.press("Backspace")
    page.keyboard.type("n")
    page.press("Home")
    page.keyboard.type("Jo")
    typist.until("Your name: Joann")
    page.press("Control+u")
    typist.until("Your name: ann")
    page.press("Enter")
    typist.until("<ann>")
    typist.until_prompt()
    assert rows(typist)[-3:] == ["Your name: ann", "<ann>", "~ $"]


def test_what_is_typed_before_the_question_is_shown_behind_it(typist: Typist) -> None:
    page = typist.page
    page.keyboard.type("clear\nsleep 1; printf 'first line\\nReally? '; read answer; echo \"<$answer>\"\n")
    page.keyboard.type("ye")
    typist.until("\nye")
    typist.until("Really? ye")
    page.keyboard.type("s")
    page.press("Enter")
    typist.until("<yes>")
    typist.until_prompt()
    assert rows(typist)[-4:] == ["first line", "Really? yes", "<yes>", "~ $"]


def test_a_long_question_stays_when_the_answer_reaches_the_next_row(typist: Typist) -> None:
    page = typist.page
    page.keyboard.type("clear\nprintf '%0300d?' 0; read answer; echo \"<$answer>\"\n")
    page.until("document.querySelector('.terminal-screen .xterm-rows').textContent.includes('000?')")
    answer = "abcdefghij" * 20
    page.keyboard.type(answer)
    page.press("Home", "End", "Backspace", "Home")
    page.keyboard.type("-")
    page.press("Enter")
    typist.until_prompt()
    text = "".join(rows(typist)[:-1])
    assert text.endswith(f"{'0' * 300}?-{answer[:-1]}<-{answer[:-1]}>"), text


def test_a_dialogue_of_a_command(typist: Typist) -> None:
    page = typist.page
    page.keyboard.type("clear\nkubectl create configmap asked --from-literal=k=1\n")
    typist.until("configmap/asked created")
    typist.until_prompt()
    revision = "$(kubectl get configmap asked -o jsonpath={.metadata.resourceVersion})"
    page.keyboard.type(f"clear\nsetpoint undo {revision}\n")
    typist.until("Type yes to carry out this plan:")
    page.keyboard.type("yes")
    typist.until("Type yes to carry out this plan: yes")
    page.press("Enter")
    typist.until("deleted")
    typist.until_prompt()
    assert "Type yes to carry out this plan: yes" in rows(typist)
