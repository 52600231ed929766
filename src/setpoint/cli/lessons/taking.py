"""Takes a lesson in a terminal, on the user's own cluster: shows its parts, asks, and waits until checks are met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from setpoint.cli.failures import Exit, Failed
from setpoint.cli.invocation import Invocation
from setpoint.cli.lessons.cluster_control import ClusterControl
from setpoint.cli.lessons.input import TypedLines, typed_lines
from setpoint.cli.lessons.rendering import BOLD, DIM, GREEN, YELLOW, Renderer
from setpoint.client import Unreachable
from setpoint.meta.errors import ApiError
from setpoint.meta.times import format_time
from setpoint.system import RandomIds
from setpoint.view.course.blocks import (
    CheckBlock,
    Fault,
    FaultBlock,
    Hint,
    OperatorBlock,
    Part,
    Predict,
    Reveal,
    Run,
    Show,
)
from setpoint.view.course.checks import Check, Verdict
from setpoint.view.course.quiz import TEXT, Quiz
from setpoint.web.lessons.actions import LessonActions, create_objects
from setpoint.web.lessons.folder import Found
from setpoint.web.lessons.observer import LearnersDesk, Observer, newest_revision
from setpoint.web.lessons.progress import ProgressRecords

_POLL: Final = 1.0
_MAX_FILE: Final = 1 << 20


class Left(Exception):
    """The learner has left the lesson."""


class TerminalLesson:
    """A lesson on the cluster of the command."""

    def __init__(self, invocation: Invocation, found: Found, records: ProgressRecords) -> None:
        self._invocation = invocation
        self._found = found
        self._lesson = found.lesson
        self._records = records
        self._progress = records.load(found.id)
        self._renderer = Renderer(invocation.io.colour)
        io = invocation.io
        self._control = ClusterControl(invocation.client, io.clock, RandomIds())
        self._actions = LessonActions(invocation.client, io.clock, self._control.change)
        self._observer = self._observing()

    def _observing(self) -> Observer:
        desk = LearnersDesk(file=self._file, answers=lambda: self._progress.right)
        return Observer(self._invocation.client, self._invocation.io.clock, self._lesson, self._progress.revision, desk)

    def _file(self, name: str) -> str | None:
        files = self._invocation.io.files
        status = files.status(name)
        if status is None or not status.is_file or status.size > _MAX_FILE:
            return None
        try:
            return files.read(name).decode("utf-8", "replace")
        except OSError:
            return None

    # -- beginning -----------------------------------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        return bool(self._progress.began)

    async def begin(self) -> None:
        """Create what the lesson begins with, unless it has begun before in this cluster. Raises ApiError."""
        clock, client = self._invocation.io.clock, self._invocation.client
        if self.has_begun and await newest_revision(client) >= self._progress.revision:
            return
        objects = [*self._found.course.start_objects(self._lesson), *self._lesson.start.broken]
        await create_objects(client, clock, objects)
        for obj in objects:
            self._show(f"{obj['kind']} {obj['metadata']['name']} is in the cluster for this lesson.")
        files = self._invocation.io.files
        for file in self._lesson.files:
            if files.status(file.name) is None:
                files.write(file.name, file.text.encode())
                self._show(f"The file {file.name} is in this directory now.")
        revision = await newest_revision(client)
        began = format_time(clock.now())
        self._progress = replace(self._progress, began=began, revision=revision, digest=self._lesson.digest)
        self._records.save(self._progress)
        self._observer = self._observing()
        if objects or self._lesson.files:
            self._show("")

    async def reset(self) -> None:
        """Delete what the lesson began with, and forget the progress. Raises ApiError."""
        client = self._invocation.client
        client.default_namespace = "default"
        for obj in reversed([*self._found.course.start_objects(self._lesson), *self._lesson.start.broken]):
            meta = obj["metadata"]
            try:
                await client.delete((obj["apiVersion"], obj["kind"]), meta["name"], meta.get("namespace") or "default")
            except ApiError as error:
                if error.code != 404:
                    raise
                continue
            self._show(f"{obj['kind']} {meta['name']} was deleted.")
        self._records.remove(self._found.id)
        self._show(f"`setpoint lesson {self._found.id}` begins again.")

    # -- checks --------------------------------------------------------------------------------------------------------

    async def look(self) -> dict[str, Verdict]:
        """Evaluate all checks and keep what is met. Raises ApiError."""
        await self._observer.read_writes()
        verdicts = await self._observer.verdicts()
        progress, now = self._progress, self._invocation.io.clock.now()
        for check in self._lesson.checks:
            if verdicts[check.id].ok:
                progress = progress.met(check.id, now)
            elif check.hold:
                progress = progress.unmet(check.id)
        if progress != self._progress:
            self._progress = progress
            self._records.save(progress)
        return verdicts

    async def report(self) -> None:
        """Print what is done and what is missing. Raises Exit with 1 if something is missing, and ApiError."""
        await self.begin()
        verdicts = await self.look()
        for check in self._lesson.checks:
            self._print_verdict(check, verdicts[check.id])
        if not self._observer.records_writes:
            self._show("\nThis server does not record who writes what, so checks of what you did cannot be met.")
        if not self._progress.is_done(self._lesson):
            self._show("\nNot yet.")
            raise Exit(1)
        self._show("\nWell done.")

    def _print_verdict(self, check: Check, verdict: Verdict) -> None:
        met = check.id in self._progress.checks
        colour = GREEN if met else YELLOW
        self._show(self._renderer.painted(f"  {'done   ' if met else 'missing'}  {verdict.message}", colour))
        if verdict.note and not met:
            self._show(f"           {verdict.note}")

    def show_hint(self, check: Check) -> bool:
        """Print the next hint of a check, and return whether there was one."""
        shown = self._progress.hints.get(check.id, 0)
        if shown >= len(check.hints):
            return False
        self._show(self._renderer.blocks(check.hints[shown]) + "\n")
        self._progress = self._progress.hinted(check.id, shown + 1)
        self._records.save(self._progress)
        return True

    def next_hint(self) -> None:
        """Print the next hint of the first check that is not met."""
        for check in self._lesson.checks:
            if check.id not in self._progress.checks:
                self._show(f"{check.title}\n")
                if not self.show_hint(check):
                    self._show("There is no further hint; `--solution` shows the solution.")
                return
        self._show("Everything is done.")

    # -- step by step --------------------------------------------------------------------------------------------------

    async def take(self) -> None:
        """Go through the lesson with a learner at a terminal. Raises ApiError."""
        io = self._invocation.io
        async with self._control.serving(), typed_lines(io.stdin, io.clock) as lines:
            try:
                await self.begin()
                for part in self._lesson.parts:
                    await self._take(part, lines)
            except Left:
                self._show("\nYour progress is kept.")
                return
        done, total = self._progress.counts(self._lesson)
        self._show(self._renderer.painted(f"\n{done} of {total} done.", BOLD))
        names = [each.name for each in self._found.course.lessons]
        following = names[names.index(self._lesson.name) + 1 :]
        if following:
            self._show(
                f"The next lesson: `setpoint lesson {self._found.id.removesuffix(self._lesson.name)}{following[0]}`"
            )

    async def _take(self, part: Part, lines: TypedLines) -> None:
        match part:
            case CheckBlock(check):
                await self._until_met(check, lines)
            case Quiz():
                self._show(self._renderer.question(part))
                await self.ask(part, lines)
            case Predict(quiz, run, faults):
                self._show("Predict first. " + self._renderer.question(quiz))
                await self.ask(quiz, lines, explain=False)
                if run:
                    self._show("Now see for yourself:\n" + self._renderer.commands(run))
                    await self._enter(lines, "Press Enter when you have done it")
                await self._inject(faults, lines)
                await self._until_visible(part, lines)
                self._explain(quiz)
            case FaultBlock(faults):
                await self._inject(faults, lines)
            case OperatorBlock(operator):
                await self._enter(lines, f"Press Enter to start the operator {operator}")
                await self._actions.run_operator(operator, True)
                self._show(f"The operator {operator} runs. Type o at a prompt to stop or start it.\n")
            case Reveal(question, blocks):
                self._show(question)
                await self._enter(lines, "Press Enter to see the answer")
                self._show(self._renderer.blocks(blocks) + "\n")
            case Hint(blocks):
                await self._enter(lines, "Press Enter to see a hint")
                self._show(self._renderer.blocks(blocks) + "\n")
            case Show():
                pass
            case _:
                self._show(self._renderer.part(part) + "\n")
                if isinstance(part, Run):
                    await self._enter(lines, "Type this in another terminal, then press Enter")

    async def _inject(self, faults: tuple[Fault, ...], lines: TypedLines) -> None:
        for fault in faults:
            await self._enter(lines, f"Press Enter to let this happen: {fault}")
            await self._actions.fault(fault)

    async def _enter(self, lines: TypedLines, text: str) -> None:
        self._prompt(text)
        await self._command(await self._line(lines))

    async def _line(self, lines: TypedLines) -> str:
        line = await lines.next()
        if line is None or line == "q":
            raise Left
        return line

    async def _command(self, line: str) -> None:
        """Do what a letter at a prompt asks for."""
        if line == "o" and self._lesson.operators:
            name = self._lesson.operators[0]
            running = name not in self._control.operators
            await self._actions.run_operator(name, running)
            self._show(f"The operator {name} {'runs' if running else 'is stopped'}.")

    async def _until_met(self, check: Check, lines: TypedLines) -> None:
        verdict = (await self.look())[check.id]
        self._print_verdict(check, verdict)
        if check.id in self._progress.checks:
            self._show("")
            return
        self._prompt("Waiting until it is done (h hint, s skip, q leave)")
        while True:
            line = await lines.next_within(_POLL)
            if line is not None:
                if line == "q" or lines.ended:
                    raise Left
                if line == "s":
                    self._show("")
                    return
                if line == "h" and not self.show_hint(check):
                    self._show("There is no further hint.")
                await self._command(line)
            before = verdict
            try:
                verdict = (await self.look())[check.id]
            except Unreachable as error:
                raise Failed(str(error)) from None
            if check.id in self._progress.checks or (verdict != before) or line is not None:
                self._print_verdict(check, verdict)
            if check.id in self._progress.checks:
                self._show("")
                return

    async def _until_visible(self, part: Predict, lines: TypedLines) -> None:
        while True:
            await self._observer.read_writes()
            facts = await self._observer.facts()
            if part.quiz.id in self._observer.outcomes(facts):
                return
            line = await lines.next_within(_POLL)
            if line is not None:
                if line == "q" or lines.ended:
                    raise Left
                if line == "s":
                    return
                self._prompt("The outcome cannot be seen yet (s skip, q leave)")

    # -- questions -----------------------------------------------------------------------------------------------------

    async def ask(self, quiz: Quiz, lines: TypedLines, *, explain: bool = True) -> bool:
        """Ask a question, keep the answer, and return whether it is right."""
        while True:
            self._prompt("Your answer")
            line = await self._line(lines)
            if not line:
                continue
            try:
                answer: Any = quiz.answer_of(line)
                break
            except ValueError as error:
                self._show(f"{error}.".capitalize())
        right = quiz.is_right(answer)
        self._progress = self._progress.answered(quiz.id, answer, right=right)
        self._records.save(self._progress)
        if explain:
            self._explain(quiz)
        return right

    def _explain(self, quiz: Quiz) -> None:
        right = self._progress.right.get(quiz.id, False)
        answer = self._renderer.right_answer(quiz)
        verdict = "Right." if right else f"No: {answer}." if quiz.kind != TEXT else "No."
        self._show(
            f"{self._renderer.painted(verdict, GREEN if right else YELLOW)} {self._renderer.blocks(quiz.because)}\n"
        )

    async def ask_all(self) -> None:
        """Ask all questions of the lesson, and print how many answers are right."""
        io = self._invocation.io
        right = 0
        async with typed_lines(io.stdin, io.clock) as lines:
            for quiz in self._lesson.quizzes:
                self._show(self._renderer.question(quiz))
                try:
                    right += await self.ask(quiz, lines)
                except Left:
                    raise Failed("the quiz was not finished") from None
        self._show(f"{right} of {len(self._lesson.quizzes)} right.")

    def _prompt(self, text: str) -> None:
        self._invocation.print(self._renderer.painted(f"{text}: ", DIM), end="")
        self._invocation.flush()

    def _show(self, text: str) -> None:
        self._invocation.print(text)
        self._invocation.flush()
