"""A lesson: front matter in YAML, then Markdown with blocks between `:::NAME` and `:::` (`blocks.py`).

---
title: The loop heals
minutes: 8
after: [manifest]
start: {nodes: 3, pace: learning, apply: [web.yaml]}
show: chain deployment/web
---
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.meta.objects import Obj
from setpoint.view.course import block_reading as reading
from setpoint.view.course.blocks import (
    NAMES,
    CheckBlock,
    Fault,
    FaultBlock,
    Hint,
    OperatorBlock,
    Part,
    Predict,
    RawBlock,
    Reveal,
    Run,
    Show,
    StarterFile,
    Step,
    Text,
)
from setpoint.view.course.checks import Check, Needs
from setpoint.view.course.markdown import FILE_NAME, Line, elements, numbered, read_markdown
from setpoint.view.course.problems import ProblemList
from setpoint.view.course.quiz import Quiz

MAX_LESSON_BYTES = 256 * 1024
MAX_PARTS = 400
MAX_NODES = 20
MAX_MINUTES = 60
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,40}[a-z0-9])?")
_MAX_TITLE = 120
_FENCE = re.compile(r" {0,3}```")
_FIELDS = ("title", "minutes", "after", "start", "show", "summary", "autoplay")
_START_FIELDS = ("nodes", "pace", "apply")
_BLOCK = re.compile(r":::([a-z]+)(?:[ \t]+(.*\S))?\s*")


@dataclass(frozen=True, slots=True)
class Start:
    """The cluster in which a lesson begins."""

    nodes: int = 3
    pace: str = "learning"
    """The pace of its simulated nodes (`node/pace.py`)."""
    apply: tuple[str, ...] = ()
    """The names of files with manifests in the folder of the course."""
    broken: tuple[Obj, ...] = ()
    """The objects of the lesson's `break` blocks, which are created when it begins."""


@dataclass(frozen=True, slots=True)
class Lesson:
    name: str
    """The name of its file without `.md`."""
    title: str
    summary: str
    """One sentence for the list of lessons."""
    minutes: int
    after: tuple[str, ...]
    """Names of lessons to take before this one."""
    start: Start
    show: Show | None
    """The view of the page at its start; None means that it stays as it is."""
    autoplay: bool
    """Whether it can be played from its beginning to its end without a learner."""
    parts: tuple[Part, ...]
    solution: tuple[Step, ...]
    digest: str
    """Identifies the text of the lesson: answers to another version of it are not comparable."""

    @property
    def checks(self) -> list[Check]:
        return [each.check for each in self.parts if isinstance(each, CheckBlock)]

    @property
    def quizzes(self) -> list[Quiz]:
        """The questions, those of predictions included."""
        return [each for part in self.parts if (each := _quiz_of(part)) is not None]

    @property
    def predictions(self) -> list[Predict]:
        return [each for each in self.parts if isinstance(each, Predict)]

    @property
    def files(self) -> list[StarterFile]:
        return [each for each in self.parts if isinstance(each, StarterFile)]

    @property
    def operators(self) -> list[str]:
        return [each.operator for each in self.parts if isinstance(each, OperatorBlock)]

    @property
    def runs(self) -> list[Run]:
        """The commands of each button that types some, in the order of the text."""
        found: list[Run] = []
        for part in self.parts:
            if isinstance(part, Run):
                found.append(part)
            elif isinstance(part, Predict) and part.run:
                found.append(Run(part.run, (part.run,)))
        return found

    @property
    def faults(self) -> list[tuple[Fault, ...]]:
        """The faults of each button that executes some, in the order of the text."""
        return [each.faults for each in self.parts if isinstance(each, FaultBlock | Predict) and each.faults]

    def needs(self) -> Needs:
        """Return what its checks and predictions read."""
        found = Needs()
        for part in self.parts:
            if isinstance(part, CheckBlock):
                found |= part.check.needs
            elif isinstance(part, Predict):
                found |= part.until.needs
        return found

    def links(self) -> list[str]:
        """Return the names of the lessons that its text links to."""
        found = [each["href"] for each in elements(self.blocks()) if each.get("type") == "link"]
        return [each.removeprefix("lesson:") for each in found if each.startswith("lesson:")]

    def images(self) -> list[str]:
        """Return the names of the images in its text."""
        return [each["source"] for each in elements(self.blocks()) if each.get("type") == "image"]

    def blocks(self) -> list[dict[str, Any]]:
        """Return all Markdown blocks of its parts."""
        found: list[dict[str, Any]] = []
        for part in self.parts:
            quiz = _quiz_of(part)
            if quiz is not None:
                found += [*quiz.question, *quiz.because]
                found += [{"inline": option.inline} for option in quiz.options]
            elif isinstance(part, CheckBlock):
                found += [block for hint in part.check.hints for block in hint]
            elif isinstance(part, Text | Reveal | Hint):
                found += part.blocks
        return found

    def summary_json(self) -> dict[str, Any]:
        """Return the entry of the list of lessons."""
        return {
            "name": self.name,
            "title": self.title,
            "summary": self.summary,
            "minutes": self.minutes,
            "after": list(self.after),
            "checks": [each.id for each in self.checks],
            "quizzes": [each.id for each in self.quizzes],
            "digest": self.digest,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the lesson as the page shows it."""
        return {
            **self.summary_json(),
            "show": self.show.to_json() if self.show is not None else None,
            "parts": [part.to_json() for part in self.parts],
            "solution": [{"kind": each.kind, "text": each.text} for each in self.solution],
        }


def _quiz_of(part: Part) -> Quiz | None:
    return part if isinstance(part, Quiz) else part.quiz if isinstance(part, Predict) else None


# -- reading -----------------------------------------------------------------------------------------------------------


def read_lesson(name: str, file: str, data: bytes, digest: str = "") -> Lesson:
    """Return the lesson of a file. Raises InvalidLesson."""
    problems = ProblemList(file)
    if not NAME.fullmatch(name):
        problems.add(0, "the name of a lesson has lower case letters, digits and -, at most 42")
    if len(data) > MAX_LESSON_BYTES:
        problems.add(0, f"a lesson has {MAX_LESSON_BYTES // 1024} KiB at most")
        problems.raise_any()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        problems.add(data.count(b"\n", 0, error.start) + 1, "this is not UTF-8")
        problems.raise_any()
    lines = numbered(text.replace("\r\n", "\n"))
    head, body = _front_matter(lines, problems)
    parts: list[Part] = []
    solution: list[Step] = []
    broken: list[Obj] = []
    counts: dict[str, int] = {}
    for each in _pieces(body, problems):
        if isinstance(each, RawBlock):
            counts[each.name] = counts.get(each.name, 0) + 1
            if each.name == "solution":
                solution += reading.read_solution(each, problems)
            elif each.name == "break":
                broken += reading.read_break(each, problems)
            elif (part := reading.read_block(each, counts[each.name], problems)) is not None:
                parts.append(part)
        elif blocks := read_markdown(each, problems):
            parts.append(Text(blocks))
        if len(parts) > MAX_PARTS:
            problems.add(0, f"a lesson has {MAX_PARTS} parts at most")
            break
    lesson = _lesson(name, head, tuple(parts), tuple(solution), tuple(broken), digest, problems)
    _check_names(lesson, problems)
    problems.raise_any()
    return lesson


def _front_matter(lines: Sequence[Line], problems: ProblemList) -> tuple[dict[str, Any], Sequence[Line]]:
    if not lines or lines[0].text.rstrip() != "---":
        problems.add(1, "a lesson begins with a line --- and fields such as title:")
        return {}, lines
    end = next((at for at in range(1, len(lines)) if lines[at].text.rstrip() == "---"), None)
    if end is None:
        problems.add(1, "the fields at the beginning have no end: a line --- is missing")
        return {}, []
    known = len(problems.found)
    fields = reading.read_yaml(lines[1:end], problems)
    if not isinstance(fields, dict):
        if len(problems.found) == known:
            problems.add(1, "the fields at the beginning must be a mapping")
        fields = {"title": ""}
    return fields, lines[end + 1 :]


def _pieces(lines: Sequence[Line], problems: ProblemList) -> Iterable[list[Line] | RawBlock]:
    """Yield the stretches of text and the blocks of a lesson in their order."""
    text: list[Line] = []
    at, fenced = 0, False
    while at < len(lines):
        line = lines[at]
        if _FENCE.match(line.text):
            fenced = not fenced
        begin = None if fenced or not line.text.startswith(":::") else _BLOCK.fullmatch(line.text)
        if begin is None:
            if not fenced and line.text.startswith(":::"):
                problems.add(line.number, "a block begins with :::NAME and ends with :::")
            else:
                text.append(line)
            at += 1
            continue
        if text:
            yield text
            text = []
        end, fenced = at + 1, False
        while end < len(lines) and (fenced or lines[end].text.rstrip() != ":::"):
            fenced ^= bool(_FENCE.match(lines[end].text))
            if not fenced and _BLOCK.fullmatch(lines[end].text):
                problems.add(
                    lines[end].number, f"the block {begin[1]} of line {line.number} has no end: ::: is missing"
                )
                break
            end += 1
        else:
            if end == len(lines):
                problems.add(line.number, f"the block {begin[1]} has no end: ::: is missing")
        if begin[1] not in NAMES:
            problems.add(line.number, f"there is no block {begin[1]}; known are {', '.join(NAMES)}")
        else:
            yield RawBlock(begin[1], begin[2] or "", line.number, list(lines[at + 1 : end]))
        fenced = False
        at = end + 1
    if text:
        yield text


def _lesson(
    name: str,
    head: dict[str, Any],
    parts: tuple[Part, ...],
    solution: tuple[Step, ...],
    broken: tuple[Obj, ...],
    digest: str,
    problems: ProblemList,
) -> Lesson:
    for field in head:
        if field not in _FIELDS:
            problems.add(1, f"unknown field {str(field)[:60]}; known are {', '.join(_FIELDS)}")
    title, summary, minutes = head.get("title"), head.get("summary", ""), head.get("minutes", 10)
    if not isinstance(title, str) or len(title) > _MAX_TITLE or not (title or problems.found):
        problems.add(1, f"title: is required, a text of at most {_MAX_TITLE} characters")
    if not isinstance(summary, str) or len(summary) > 2 * _MAX_TITLE:
        problems.add(1, f"summary: must be a text of at most {2 * _MAX_TITLE} characters")
    if type(minutes) is not int or not 1 <= minutes <= MAX_MINUTES:
        problems.add(1, f"minutes: must be a whole number from 1 to {MAX_MINUTES}")
        minutes = 10
    after = head.get("after", [])
    if not isinstance(after, list) or not all(isinstance(each, str) for each in after):
        problems.add(1, "after: must be a list of names of lessons")
        after = []
    autoplay = head.get("autoplay", False)
    if not isinstance(autoplay, bool):
        problems.add(1, "autoplay: must be true or false")
    show = head.get("show")
    shown = reading.read_show(show, 1, problems) if show is not None else None
    start = _start(head.get("start", {}), broken, problems)
    return Lesson(
        name, str(title), str(summary), minutes, tuple(after), start, shown, autoplay is True, parts, solution, digest
    )


def _start(found: Any, broken: tuple[Obj, ...], problems: ProblemList) -> Start:
    if not isinstance(found, dict):
        problems.add(1, "start: must be a mapping")
        return Start()
    for field in found:
        if field not in _START_FIELDS:
            problems.add(1, f"start.{str(field)[:60]} is unknown; known are {', '.join(_START_FIELDS)}")
    nodes, pace, apply = found.get("nodes", 3), found.get("pace", "learning"), found.get("apply", [])
    if type(nodes) is not int or not 1 <= nodes <= MAX_NODES:
        problems.add(1, f"start.nodes: must be a whole number from 1 to {MAX_NODES}")
        nodes = 3
    if pace not in ("learning", "real", "fast", "instant"):
        problems.add(1, "start.pace: must be learning, real, fast or instant")
    if not isinstance(apply, list) or not all(isinstance(each, str) and FILE_NAME.fullmatch(each) for each in apply):
        problems.add(1, "start.apply: must be a list of names of files in the folder of the course, without a path")
        apply = []
    return Start(nodes, str(pace), tuple(apply), broken)


def _check_names(lesson: Lesson, problems: ProblemList) -> None:
    seen: set[str] = set()
    for check in lesson.checks:
        if check.id in seen:
            problems.add(check.line, f"there are two checks {check.id}")
        seen.add(check.id)
    answers: set[str] = set()
    for quiz in lesson.quizzes:
        if quiz.id in answers:
            problems.add(quiz.line, f"there are two questions {quiz.id}")
        answers.add(quiz.id)
    files: set[str] = set()
    for file in lesson.files:
        if file.name in files:
            problems.add(0, f"there are two files {file.name}")
        files.add(file.name)
    counts = {"run": len(lesson.runs), "fault": len(lesson.faults)}
    for step in lesson.solution:
        if step.kind in counts and not step.text:
            counts[step.kind] -= 1
            if counts[step.kind] < 0:
                problems.add(step.line, f"@{step.kind}: there are not so many blocks with a {step.kind}")
        if step.kind == "operator" and not lesson.operators:
            problems.add(step.line, "@operator: the lesson has no operator")
        first = step.text.split()[0] if step.text.split() else ""
        if step.kind == "wait" and first not in seen:
            problems.add(step.line, f"@wait: there is no check {first}")
        if step.kind == "answer" and first not in answers:
            problems.add(step.line, f"@answer: there is no question {first}")
        if step.kind == "operator" and first not in ("start", "stop"):
            problems.add(step.line, "@operator: start or stop")
