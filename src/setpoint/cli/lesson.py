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


async def run(call: Invocation) -> None:
    from setpoint.cli.teaching.lessons import LESSONS

    if not call.args:
        call.print("Lessons:\n")
        for number, one in enumerate(LESSONS, 1):
            call.print(f"  {number}  {one.name:<10} {one.title}")
        call.print("\n`setpoint lesson 1` begins. They need a cluster: `setpoint up` in another terminal.")
        return
    if len(call.args) > 1:
        call.usage(f"one lesson at a time, not {len(call.args)}")
    lesson = _named(call.args[0], LESSONS)
    if call.flags.check:
        await _check(call, lesson)
    elif call.flags.quiz:
        await _quiz(call, lesson)
    else:
        _show(call, lesson)
        if call.io.in_is_terminal:
            await _together(call, lesson)


def _named(word: str, lessons: tuple[Lesson, ...]) -> Lesson:
    for number, one in enumerate(lessons, 1):
        if word in (str(number), one.name):
            return one
    raise Failed(f"unknown lesson {word!r}: the lessons are {', '.join(one.name for one in lessons)}")


def _show(call: Invocation, lesson: Lesson) -> None:
    call.print(f"\n{lesson.title}\n{'=' * len(lesson.title)}\n")
    for paragraph in lesson.text.strip("\n").split("\n\n"):
        shown = paragraph if paragraph.startswith("  ") else fill(" ".join(paragraph.split()), _WIDTH)
        call.print(shown + "\n")
    call.print("Your task\n---------\n")
    call.print(fill(lesson.task, _WIDTH) + "\n")
    call.print(f"`setpoint lesson {lesson.name} --check` checks whether it is done; `--quiz` asks two questions.")
    call.flush()


async def _together(call: Invocation, lesson: Lesson) -> None:
    """Run a lesson at a terminal: try in another terminal, press Enter, see what is missing."""
    while True:
        call.print("\nPress Enter to check (q to leave): ", end="")
        answer = await _line(call)
        if answer is None or answer == "q":
            return
        try:
            await _check(call, lesson)
        except Exit:
            continue
        await _quiz(call, lesson)
        return


async def _check(call: Invocation, lesson: Lesson) -> None:
    """Check a lesson; exit with 1 if something is missing."""
    from setpoint.cli.teaching.checks import ClusterView

    verdicts = await lesson.check(ClusterView(call.client, call.namespace))
    for verdict in verdicts:
        call.print(f"  {'done   ' if verdict.ok else 'missing'}  {verdict.text}")
    if not all(verdict.ok for verdict in verdicts):
        call.print("\nNot yet.")
        raise Exit(1)
    call.print("\nWell done.")


async def _quiz(call: Invocation, lesson: Lesson) -> None:
    right = 0
    for question in lesson.quiz:
        right += await _asked(call, question)
    call.print(f"{right} of {len(lesson.quiz)} right.")


async def _asked(call: Invocation, question: Question) -> bool:
    letters = "abcdefgh"[: len(question.answers)]
    call.print("\n" + fill(question.text, _WIDTH))
    for letter, answer in zip(letters, question.answers):
        call.print(indent(f"{letter}) {answer}", "  "))
    typed: str | None = ""
    while not typed or typed not in letters:
        call.print(f"Your answer ({', '.join(letters)}): ", end="")
        typed = await _line(call)
        if typed is None:
            raise Failed("the quiz was not finished")
    good = typed == letters[question.right]
    call.print(("Right. " if good else f"No: {letters[question.right]}. ") + question.because)
    return good


async def _line(call: Invocation) -> str | None:
    """Return the next line of input; None at the end."""
    import asyncio

    call.flush()
    line = await asyncio.to_thread(call.io.stdin.readline)
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
