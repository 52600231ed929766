"""Questions of a lesson: one right answer, several, an order, or a short text.

    Who created the new Pod?
    - ( ) kubectl
    - (x) the ReplicaSet controller
    because: Components use the API server only.

`( )` and `(x)` are a choice of one, `[ ]` and `[x]` of any number. `1.`, `2.`, ... are steps in their right order; they
are shown in another one. `answer: REGEX` is a short text that matches the whole expression (RE2, without case).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from setpoint.meta.cel.libraries.regular import BadPattern, compiled
from setpoint.view.course.markdown import Block, Inline, Line, read_markdown
from setpoint.view.course.problems import ProblemList

ONE, MANY, ORDER, TEXT = "one", "many", "order", "text"
MAX_ANSWER_LENGTH = 200
_OPTION = re.compile(r"- (\(|\[)( |x)(\)|\]) +(\S.*)")
_STEP = re.compile(r"\d{1,2}\. +(\S.*)")
_FIELD = re.compile(r"([a-z]+): +(\S.*)")
_MAX_OPTIONS = 8
LETTERS = "abcdefgh"


@dataclass(frozen=True, slots=True)
class Option:
    """An answer to choose, or a step to put in order."""

    inline: list[Inline]
    is_right: bool
    """Whether it is a right answer; True for steps."""


@dataclass(frozen=True, slots=True)
class Quiz:
    id: str
    line: int
    kind: str
    """`one`, `many`, `order` or `text`."""
    question: list[Block]
    options: tuple[Option, ...]
    """In the order of the file; that of steps is the right one."""
    pattern: str
    """The expression of a short text; empty for other kinds."""
    because: list[Block]
    """The explanation that is shown after the answer."""

    @property
    def shown(self) -> list[int]:
        """The positions of the options in the order in which they are shown: steps are in another than the right
        one."""
        found = list(range(len(self.options)))
        if self.kind == ORDER:
            found.sort(key=lambda at: sha256(f"{self.id}/{at}".encode()).digest())
            if found == sorted(found):
                found.reverse()
        return found

    @property
    def right(self) -> list[int]:
        """The positions of the right options among those shown; of steps, in their right order."""
        if self.kind == ORDER:
            return [self.shown.index(at) for at in range(len(self.options))]
        return [at for at, option in enumerate(self.options) if option.is_right]

    def is_right(self, answer: Any) -> bool:
        """Return whether an answer is right: positions among the options shown, or a text."""
        if self.kind == TEXT:
            if not isinstance(answer, str) or len(answer) > MAX_ANSWER_LENGTH:
                return False
            return _compiled(self.pattern).fullmatch(answer.strip()) is not None
        if not isinstance(answer, list) or not all(type(each) is int for each in answer):
            return False
        return answer == self.right if self.kind == ORDER else sorted(set(answer)) == self.right

    def answer_of(self, text: str) -> Any:
        """Return the answer that was typed as letters, `b` or `a,c`, or as a text. Raises ValueError."""
        if self.kind == TEXT:
            return text.strip()[:MAX_ANSWER_LENGTH]
        known = LETTERS[: len(self.options)]
        letters = [each for each in text.lower().replace(",", " ").split() if each]
        if len(letters) == 1 and self.kind != ONE:
            letters = list(letters[0])
        if not letters or not all(len(each) == 1 and each in known for each in letters):
            raise ValueError(f"answer with {', '.join(known)}")
        if self.kind == ONE and len(letters) > 1:
            raise ValueError("choose one")
        if self.kind == ORDER and sorted(letters) != list(known):
            raise ValueError(f"put all of {', '.join(known)} in order")
        return [known.index(each) for each in letters]

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "quiz",
            "id": self.id,
            "kind": self.kind,
            "question": self.question,
            "options": [self.options[at].inline for at in self.shown],
            "because": self.because,
            "right": self.right,
        }


def read_quiz(identity: str, lines: Sequence[Line], line: int, problems: ProblemList) -> tuple[Quiz, dict[str, Line]]:
    """Return a question and the fields after its options; known are `because` and `answer`."""
    body, options, steps, fields = _parted(lines, problems)
    kinds = {bracket for bracket, _, _ in options}
    pattern = fields.pop("answer").text if "answer" in fields else ""
    present = [bool(options), bool(steps), bool(pattern)]
    if sum(present) != 1 or len(kinds) > 1:
        problems.add(line, "a question has either options ( ) or [ ], or steps 1. 2., or an answer: REGEX")
    kind = TEXT if pattern else ORDER if steps else MANY if "[" in kinds else ONE
    rights = sum(right for _, right, _ in options)
    if (kind == ONE and rights != 1) or (kind == MANY and not rights):
        problems.add(line, f"{'one option' if kind == ONE else 'an option'} must be marked as right with x")
    found = [Option(_inline(each, problems), right) for _, right, each in options]
    found += [Option(_inline(each, problems), True) for each in steps]
    if kind != TEXT and not 2 <= len(found) <= _MAX_OPTIONS:
        problems.add(line, f"a question has 2 to {_MAX_OPTIONS} options, not {len(found)}")
    if pattern:
        try:
            _compiled(pattern)
        except BadPattern as error:
            problems.add(line, f"answer: {error}")
    question = read_markdown(body, problems)
    if not question:
        problems.add(line, "there is no question")
    because = fields.pop("because", None)
    if because is None:
        problems.add(line, "because: is missing: say why the answer is right")
    explained = read_markdown([because], problems) if because is not None else []
    return Quiz(identity, line, kind, question, tuple(found), pattern, explained), fields


_Options = list[tuple[str, bool, Line]]


def _parted(lines: Sequence[Line], problems: ProblemList) -> tuple[list[Line], _Options, list[Line], dict[str, Line]]:
    """Part the lines of a block into the question, its options or steps, and its fields."""
    body: list[Line] = []
    options: _Options = []
    steps: list[Line] = []
    fields: dict[str, Line] = {}
    current = ""
    for line in lines:
        text = line.text.rstrip()
        if option := _OPTION.fullmatch(text):
            options.append((option[1], option[2] == "x", Line(line.number, option[4])))
            current = "option"
        elif (step := _STEP.fullmatch(text)) and not options:
            steps.append(Line(line.number, step[1]))
            current = "step"
        elif (field := _FIELD.fullmatch(text)) and (options or steps or field[1] == "answer" or fields):
            current = field[1]
            fields[current] = Line(line.number, field[2])
        elif text.startswith(" ") and current in ("option", "step"):
            if current == "option":
                bracket, right, before = options[-1]
                options[-1] = (bracket, right, Line(before.number, f"{before.text} {text.strip()}"))
            else:
                steps[-1] = Line(steps[-1].number, f"{steps[-1].text} {text.strip()}")
        elif text.strip() and current in fields:
            before = fields[current]
            fields[current] = Line(before.number, f"{before.text} {text.strip()}")
        elif not options and not steps and not fields:
            body.append(line)
        elif text.strip():
            problems.add(line.number, "this line is neither an option nor a field such as because:")
    return body, options, steps, fields


def _inline(line: Line, problems: ProblemList) -> list[Inline]:
    blocks = read_markdown([line], problems)
    if len(blocks) != 1 or blocks[0]["type"] != "paragraph":
        problems.add(line.number, "an option is one line of text")
        return [line.text]
    found: list[Inline] = blocks[0]["inline"]
    return found


def _compiled(pattern: str) -> Any:
    return compiled(f"(?i)(?:{pattern})")
