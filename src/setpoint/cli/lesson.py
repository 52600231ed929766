"""`setpoint lesson`: interactive lessons about control planes, on a running cluster."""

from __future__ import annotations

from textwrap import fill, indent
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation

if TYPE_CHECKING:
    from setpoint.cli.teaching.lessons import Lesson, Question

_WIDTH = 88


async def run(invocation: Invocation) -> None:
    from setpoint.cli.teaching.lessons import LESSONS

    if not invocation.args:
        invocation.print("Lessons:\n")
        for number, one in enumerate(LESSONS, 1):
            invocation.print(f"  {number}  {one.name:<10} {one.title}")
        invocation.print("\n`setpoint lesson 1` begins. They need a cluster: `setpoint up` in another terminal.")
        return
    if len(invocation.args) > 1:
        invocation.usage(f"one lesson at a time, not {len(invocation.args)}")
    lesson = _named(invocation.args[0], LESSONS)
    if invocation.flags.check:
        await _check(invocation, lesson)
    elif invocation.flags.quiz:
        await _quiz(invocation, lesson)
    else:
        _show(invocation, lesson)
        if invocation.io.in_is_terminal:
            await _together(invocation, lesson)


def _named(word: str, lessons: tuple[Lesson, ...]) -> Lesson:
    for number, one in enumerate(lessons, 1):
        if word in (str(number), one.name):
            return one
    raise Failed(f"unknown lesson {word!r}: the lessons are {', '.join(one.name for one in lessons)}")


def _show(invocation: Invocation, lesson: Lesson) -> None:
    invocation.print(f"\n{lesson.title}\n{'=' * len(lesson.title)}\n")
    for paragraph in lesson.text.strip("\n").split("\n\n"):
        shown = paragraph if paragraph.startswith("  ") else fill(" ".join(paragraph.split()), _WIDTH)
        invocation.print(shown + "\n")
    invocation.print("Your task\n---------\n")
    invocation.print(fill(lesson.task, _WIDTH) + "\n")
    invocation.print(f"`setpoint lesson {lesson.name} --check` checks whether it is done; `--quiz` asks two questions.")
    invocation.flush()


async def _together(invocation: Invocation, lesson: Lesson) -> None:
    """Run a lesson at a terminal: try in another terminal, press Enter, see what is missing."""
    while True:
        invocation.print("\nPress Enter to check (q to leave): ", end="")
        answer = await _line(invocation)
        if answer is None or answer == "q":
            return
        try:
            await _check(invocation, lesson)
        except Exit:
            continue
        await _quiz(invocation, lesson)
        return


async def _check(invocation: Invocation, lesson: Lesson) -> None:
    """Check a lesson; exit with 1 if something is missing."""
    from setpoint.cli.teaching.lessons import ClusterView

    verdicts = await lesson.check(ClusterView(invocation.client, invocation.namespace))
    for verdict in verdicts:
        invocation.print(f"  {'done   ' if verdict.ok else 'missing'}  {verdict.text}")
    if not all(verdict.ok for verdict in verdicts):
        invocation.print("\nNot yet.")
        raise Exit(1)
    invocation.print("\nWell done.")


async def _quiz(invocation: Invocation, lesson: Lesson) -> None:
    right = 0
    for question in lesson.quiz:
        right += await _run_quiz(invocation, question)
    invocation.print(f"{right} of {len(lesson.quiz)} right.")


async def _run_quiz(invocation: Invocation, question: Question) -> bool:
    letters = "abcdefgh"[: len(question.answers)]
    invocation.print("\n" + fill(question.text, _WIDTH))
    for letter, answer in zip(letters, question.answers):
        invocation.print(indent(f"{letter}) {answer}", "  "))
    typed: str | None = ""
    while not typed or typed not in letters:
        invocation.print(f"Your answer ({', '.join(letters)}): ", end="")
        typed = await _line(invocation)
        if typed is None:
            raise Failed("the quiz was not finished")
    good = typed == letters[question.right]
    invocation.print(("Right. " if good else f"No: {letters[question.right]}. ") + question.because)
    return good


async def _line(invocation: Invocation) -> str | None:
    """Return the next line of input; None at the end."""
    import asyncio

    invocation.flush()
    line = await asyncio.to_thread(invocation.io.stdin.readline)
    return line.decode("utf-8", "replace").strip().lower() if line else None


COMMAND = Command(
    "Learn how a control plane works, by doing",
    run,
    (
        switch("check", help="Check in the cluster whether the lesson's task is done."),
        switch("quiz", help="Ask two questions."),
    ),
    usage="[LESSON] [flags]",
    local=True,
    examples="""
    # Which lessons there are, and the first
    setpoint lesson
    setpoint lesson 1

    # Is it done?
    setpoint lesson anatomy --check
    """,
)
