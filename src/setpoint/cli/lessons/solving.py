"""Runs the solution of a lesson in virtual time, as a learner would: types its lines, presses its buttons, waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from setpoint.cli.lessons.typing import TypedTerminal, typed_terminal
from setpoint.client import Client
from setpoint.cluster.cluster_copy import ClusterCopy
from setpoint.cluster.embedded import embedded_cluster
from setpoint.cluster.fork_controls import ForkControls
from setpoint.cluster.fresh_start import FreshStart
from setpoint.cluster.virtual.time import VirtualClock
from setpoint.meta.clock import Clock
from setpoint.system import RandomIds
from setpoint.view.course.blocks import Step, read_fault
from setpoint.view.course.lesson import Lesson
from setpoint.web.lessons.actions import LessonActions
from setpoint.web.lessons.observer import LearnersDesk, Observer
from setpoint.web.workspace import HOME

_POLL: Final = 0.5
_WAIT: Final = 300.0
"""Seconds of virtual time that a check may take to be met."""
_AT_START: Final = 3.0
"""Seconds of virtual time after which the checks of the start are evaluated."""
_MAX_OUTPUT: Final = 600


class Unsolved(Exception):
    """The solution does not solve the lesson. `line` is the line of the file, 0 for the whole."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@dataclass(slots=True)
class Solver:
    """Solves a lesson in one cluster."""

    lesson: Lesson
    terminal: TypedTerminal
    observer: Observer
    actions: LessonActions
    clock: Clock
    right: dict[str, bool]
    """Whether the questions were answered rightly; the observer reads it."""
    met: set[str] = field(default_factory=set)
    """The checks that were met."""
    seen: set[str] = field(default_factory=set)
    """The predictions whose outcome was seen."""
    _pressed: dict[str, int] = field(default_factory=dict)
    """How many buttons of a kind were pressed."""

    async def look(self) -> None:
        """Evaluate all checks, as the page does, and note which are met."""
        await self.observer.read_writes()
        for name, verdict in (await self.observer.verdicts()).items():
            hold = next(each.hold for each in self.lesson.checks if each.id == name)
            if verdict.ok:
                self.met.add(name)
            elif hold:
                self.met.discard(name)
        self.seen |= self.observer.outcomes(await self.observer.facts())

    async def solve(self) -> None:
        """Take the steps of the solution, and wait until all checks are met. Raises Unsolved."""
        for step in self.lesson.solution:
            await self._take(step)
            await self.look()
        for quiz in self.lesson.quizzes:
            self.right.setdefault(quiz.id, quiz.is_right(quiz.right) or bool(quiz.pattern))
        for check in self.lesson.checks:
            await self._until_met(check.id, check.line)
        unseen = [each for each in self.lesson.predictions if each.quiz.id not in self.seen]
        if unseen:
            raise Unsolved(unseen[0].quiz.line, f"until: of {unseen[0].quiz.id} is never true with this solution")

    async def _take(self, step: Step) -> None:
        match step.kind:
            case "type":
                await self._type(step.text, step.line)
            case "run":
                run = self.lesson.runs[self._press("run")]
                for at, command in enumerate(run.commands, 1):
                    await self._type(command, step.line, fails=run.fails and at == len(run.commands))
            case "fault":
                faults = (read_fault(step.text),) if step.text else self.lesson.faults[self._press("fault")]
                for fault in faults:
                    await self.actions.fault(fault)
            case "operator":
                await self.actions.run_operator(self.lesson.operators[0], step.text == "start")
            case "answer":
                self._answer(step)
            case "sleep":
                await self.clock.sleep(float(step.text))
            case "wait":
                await self._until_met(step.text, step.line)

    def _press(self, kind: str) -> int:
        """Return the number of the next button of a kind."""
        at = self._pressed.get(kind, 0)
        self._pressed[kind] = at + 1
        return at

    async def _type(self, command: str, line: int, *, fails: bool = False) -> None:
        typed = await self.terminal.type(command)
        if fails and not typed.status:
            raise Unsolved(line, f"`{command}` was to fail and did not")
        if typed.status and not fails:
            output = typed.output.strip()[-_MAX_OUTPUT:]
            raise Unsolved(line, f"`{command}` ended with {typed.status}: {output}")

    def _answer(self, step: Step) -> None:
        name, _, text = step.text.partition(" ")
        quiz = next(each for each in self.lesson.quizzes if each.id == name)
        try:
            self.right[name] = text == "right" or quiz.is_right(quiz.answer_of(text))
        except ValueError as error:
            raise Unsolved(step.line, f"@answer {name}: {error}") from None
        if not self.right[name]:
            raise Unsolved(step.line, f"@answer {name}: {text} is not the right answer")

    async def _until_met(self, check: str, line: int) -> None:
        deadline = self.clock.monotonic() + _WAIT
        while check not in self.met:
            if self.clock.monotonic() > deadline:
                verdict = (await self.observer.verdicts())[check]
                more = "; ".join(filter(None, (verdict.note, verdict.error)))
                text = f"the solution does not meet the check {check}: {verdict.message}"
                raise Unsolved(line, f"{text} ({more})" if more else text)
            await self.clock.sleep(_POLL)
            await self.look()


async def solve_in_virtual_time(lesson: Lesson, start: FreshStart, copy: ClusterCopy, seed: int) -> float:
    """Solve a lesson from its start state; requires a virtual loop. Return the seconds of virtual time that it took.
    Raises Unsolved."""
    clock, ids = VirtualClock.going_on(copy.now), RandomIds(seed)
    problem: Unsolved | None = None
    began = clock.now()
    async with embedded_cluster(clock, ids, start.embedded_options(), copy.state()) as cluster:
        controls = ForkControls()
        async with controls.serving(cluster, clock, ids):
            actions = LessonActions(cluster.client, clock, lambda wanted: controls.change(cluster, dict(wanted)))
            try:
                await _solve(lesson, cluster.client, actions, clock, ids, began)
            except Unsolved as error:  # raised below, because task groups would wrap it
                problem = error
    if problem is not None:
        raise problem
    return (clock.now() - began).total_seconds()


async def _solve(
    lesson: Lesson, client: Client, actions: LessonActions, clock: VirtualClock, ids: RandomIds, began: datetime
) -> None:
    right: dict[str, bool] = {}
    async with typed_terminal(client, clock, ids.suffix) as terminal:
        for file in lesson.files:
            terminal.write_file(file.name, file.text)
        workspace = terminal.workspace
        desk = LearnersDesk(
            lambda: [each.text for each in workspace.typed],
            lambda name: workspace.files.read(f"{HOME}/{name}"),
            lambda: right,
        )
        await actions.begin(lesson)
        observer = Observer(client, clock, lesson, await Observer.newest(client), desk)
        solver = Solver(lesson, terminal, observer, actions, clock, right)
        await clock.sleep(_AT_START)
        await solver.look()
        for check in lesson.checks:
            if check.id in solver.met:
                raise Unsolved(check.line, f"the check {check.id} is met at the start already")
        await solver.solve()
    took = (clock.now() - began).total_seconds()
    if took > lesson.minutes * 60:
        raise Unsolved(1, f"the solution takes {took / 60:.0f} minutes, more than the {lesson.minutes} of the lesson")
