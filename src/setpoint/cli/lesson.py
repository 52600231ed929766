"""`setpoint lesson`: lessons about control planes, taken on a running cluster; and the tools to write and test them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import switch, text, texts
from setpoint.cli.invocation import Invocation

if TYPE_CHECKING:
    from setpoint.view.course.lesson import Lesson
    from setpoint.web.lessons.folder import Courses, Found
    from setpoint.web.lessons.progress import ProgressRecords

_LESSONS = text("lessons", help="Directory with lessons of your own.")


async def run(invocation: Invocation) -> None:
    courses = _courses(invocation)
    if not invocation.args:
        _list(invocation, courses)
        return
    if len(invocation.args) > 1:
        invocation.usage(f"one lesson at a time, not {len(invocation.args)}")
    found = _named(invocation.args[0], courses)
    flags = invocation.flags
    if flags.solution:
        _show_solution(invocation, found.lesson)
        return
    if not (flags.check or flags.quiz or flags.reset or flags.hint or invocation.io.in_is_terminal):
        _show(invocation, found)
        return
    from setpoint.cli.lessons.taking import TerminalLesson

    taking = TerminalLesson(invocation, found, _records(invocation))
    if flags.reset:
        await taking.reset()
    elif flags.check:
        await taking.report()
    elif flags.hint:
        taking.next_hint()
    elif flags.quiz:
        await taking.ask_all()
    else:
        _title(invocation, found)
        await taking.take()


def _courses(invocation: Invocation) -> Courses:
    from setpoint.web.lessons.folder import Courses

    folder = Path(invocation.flags.lessons) if invocation.flags.lessons else None
    if folder is not None and not folder.is_dir():
        raise Failed(f"--lessons {invocation.flags.lessons} is not a directory")
    return Courses(folder)


def _records(invocation: Invocation) -> ProgressRecords:
    """Return the progress: in the data directory of the cluster, or else in the home directory."""
    from setpoint.web.lessons.progress import DIRECTORY, ProgressRecords

    if invocation.io.connect is not None:  # a connection of a test or of another program
        return ProgressRecords(invocation.io.home / DIRECTORY)
    directory = invocation.choice.directory
    home = invocation.io.home / ".local" / "share" / "setpoint"
    return ProgressRecords((directory or home) / DIRECTORY)


def _named(word: str, courses: Courses) -> Found:
    found = courses.find(word)
    if found is not None:
        return found
    names = ", ".join(lesson.name for course in courses.all().values() for lesson in course.lessons)
    raise Failed(f"unknown lesson {word!r}: the lessons are {names}")


def _list(invocation: Invocation, courses: Courses) -> None:
    from setpoint.client.kubeconfig import KubeconfigError
    from setpoint.web.lessons.progress import ProgressRecords

    try:
        records = _records(invocation)
    except KubeconfigError:  # there is no cluster yet
        records = ProgressRecords()
    for name, course in courses.all().items():
        invocation.print(f"{course.title}\n")
        for number, lesson in enumerate(course.lessons, 1):
            found = courses.find(f"{name}/{lesson.name}")
            assert found is not None
            progress = records.load(found.id)
            met, total = progress.counts(lesson)
            state = "done" if progress.is_done(lesson) else f"{met} of {total}" if met else ""
            invocation.print(
                f"  {number:>2}  {found.id:<16} {lesson.title:<34} {lesson.minutes:>2} min  {state}".rstrip()
            )
        for problem in course.problems:
            invocation.print_err(f"{problem}")
        invocation.print("")
    invocation.print(
        "`setpoint lesson 1` begins. Lessons need a cluster: `setpoint up --pace learning` in another terminal.\n"
        "The page of the cluster has the same lessons, each in a cluster of its own: `setpoint page` prints its link."
    )


def _title(invocation: Invocation, found: Found) -> None:
    from setpoint.cli.lessons.rendering import Renderer

    renderer = Renderer(invocation.io.colour)
    invocation.print(f"\n{renderer.title(found.lesson.title)}\n")
    invocation.print(f"About {found.lesson.minutes} minutes. `setpoint` understands all commands of kubectl.\n")


def _show(invocation: Invocation, found: Found) -> None:
    """Print a lesson as a text."""
    from setpoint.cli.lessons.rendering import Renderer

    renderer = Renderer(invocation.io.colour)
    _title(invocation, found)
    for part in found.lesson.parts:
        if shown := renderer.part(part):
            invocation.print(shown + "\n")
    invocation.print(f"`setpoint lesson {found.id} --check` checks whether it is done; `--quiz` asks the questions.")


def _show_solution(invocation: Invocation, lesson: Lesson) -> None:
    """Print the commands that solve a lesson."""
    runs, faults = iter(lesson.runs), iter(lesson.faults)
    for step in lesson.solution:
        match step.kind:
            case "type":
                invocation.print(step.text)
            case "run":
                invocation.print("\n".join(next(runs).commands))
            case "fault":
                invocation.print(f"# {step.text or ', '.join(map(str, next(faults)))}")
            case "operator":
                invocation.print(f"# {step.text} the operator")
            case "wait":
                check = next(each for each in lesson.checks if each.id == step.text)
                invocation.print(f"# wait until: {check.message}")


# -- subcommands -------------------------------------------------------------------------------------------------------


async def test(invocation: Invocation) -> None:
    """Test the lessons of a folder, or of the package."""
    from setpoint.cli.lessons.testing import LessonResult, check_course
    from setpoint.system import RandomIds
    from setpoint.web.lessons.folder import built_in_course, read_folder

    if len(invocation.args) > 1:
        invocation.usage("name one directory")
    folder = Path(invocation.args[0]) if invocation.args else None
    if folder is not None and not folder.is_dir():
        raise Failed(f"{invocation.args[0]} is not a directory")
    course = read_folder(folder) if folder is not None else built_in_course()
    for problem in course.problems:
        invocation.print(str(problem))

    def report(result: LessonResult) -> None:
        state = "failed" if result.problems else f"ok, {result.seconds:.0f} s"
        invocation.print(f"{result.lesson:<20} {state}")
        for problem in result.problems:
            invocation.print(f"  {problem}")
        invocation.flush()

    only = tuple(invocation.flags.only)
    if unknown := [name for name in only if course.lesson(name) is None]:
        raise Failed(f"there is no lesson {unknown[0]}, or it is invalid")
    problems = await check_course(course, RandomIds(), invocation.io.clock.now(), report, only)
    if not course.lessons and not problems:
        raise Failed("there are no lessons")
    if problems:
        raise Exit(1)


async def new(invocation: Invocation) -> None:
    """Write the file of a new lesson."""
    from setpoint.view.course.course import is_name, new_lesson

    if len(invocation.args) != 1 or not is_name(invocation.args[0]):
        invocation.usage("name the lesson: lower case letters, digits and -, at most 42")
    name = invocation.args[0]
    path = Path(invocation.flags.lessons or ".") / f"{name}.md"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(new_lesson(name.replace("-", " ").capitalize()))
    except FileExistsError:
        raise Failed(f"{path} exists already") from None
    except OSError as error:
        raise Failed(f"{path}: {(error.strerror or str(error)).lower()}") from None
    invocation.print(f"{path} is a lesson with one check and one question.")
    invocation.print(f"`setpoint lesson test {path.parent}` tests it; `setpoint up --lessons {path.parent}` shows it.")


async def export(invocation: Invocation) -> None:
    """Print the progress in all lessons as JSON."""
    import orjson

    invocation.no_arguments()
    invocation.write(orjson.dumps(_records(invocation).export(), option=orjson.OPT_INDENT_2) + b"\n")


async def load(invocation: Invocation) -> None:
    """Read the progress in all lessons from a file."""
    import orjson

    if len(invocation.args) != 1:
        invocation.usage("name the file, or - for the standard input")
    try:
        name = invocation.args[0]
        data = invocation.io.stdin.read() if name == "-" else invocation.io.files.read(name)
        found = orjson.loads(data)
        count = _records(invocation).load_export(found)
        with_files = any(each.get("files") for each in found["lessons"])
    except OSError as error:
        raise Failed(f"{invocation.args[0]}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise Failed(f"{invocation.args[0]}: {error}") from None
    invocation.print(f"The progress in {count} {'lesson' if count == 1 else 'lessons'} was read.")
    if with_files:
        invocation.print("The files of the lessons were not: they are read by *Import progress* in the page.")


COMMAND = Command(
    "Learn how a control plane works, by doing",
    run,
    (
        switch("check", help="Check in the cluster what of the lesson is done."),
        switch("quiz", help="Ask the questions of the lesson."),
        switch("hint", help="Print the next hint for what is not done yet."),
        switch("solution", help="Print the commands that solve the lesson."),
        switch("reset", help="Delete what the lesson began with, and forget the progress."),
        _LESSONS,
    ),
    usage="[LESSON] [flags]",
    local=True,
    about="""
    Lists the lessons with your progress, or takes one: in a terminal it goes through the lesson step by step, on the
    cluster of this directory, and notices by itself when a task is done. The page has the same lessons.
    """,
    examples="""
    # Which lessons there are, and the first
    setpoint lesson
    setpoint lesson 1

    # Is it done? And what is the next hint?
    setpoint lesson manifest --check
    setpoint lesson manifest --hint

    # Write a lesson of your own, test it, and take it
    setpoint lesson new my-lesson --lessons course
    setpoint lesson test course
    setpoint lesson my-lesson --lessons course
    """,
    children={
        "test": Command(
            "Test lessons: read them, and solve each twice in virtual time",
            test,
            (texts("only", help="Only these lessons."),),
            usage="[DIR] [flags]",
            connects=False,
            about="""
            Reports unknown blocks and fields, references to files and lessons that do not exist, checks that are met
            before the learner has done anything, and checks that the lesson's solution does not meet. Without a
            directory it tests the lessons of the package.
            """,
        ),
        "new": Command("Write the file of a new lesson", new, (_LESSONS,), usage="NAME [flags]", connects=False),
        "export": Command("Print your progress in all lessons as JSON, without files", export, local=True),
        "import": Command("Read your progress in all lessons from a file", load, usage="FILE", local=True),
    },
)
