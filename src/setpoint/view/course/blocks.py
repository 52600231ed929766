"""The blocks of a lesson: what is between `:::NAME` and `:::` in its text.

| block | content |
|---|---|
| `run [fails]` | lines to type into the terminal; a button types them, and only the learner runs them |
| `file NAME` | a starter file of the learner's folder |
| `check ID` | a condition to bring about, in YAML: `say`, `let`, `when`, `else`, `hint`, `hold` |
| `quiz [ID]` | a question (`quiz.py`) |
| `predict [ID]` | a question about what will happen, then `run:` or `fault:`, and `until:` in CEL |
| `reveal QUESTION` | an answer that is shown on request |
| `hint` | help that is shown on request |
| `fault` | lines such as `node stop node-2`, which a button executes |
| `operator NAME` | an operator that is shipped with the lessons, with buttons to start and stop it |
| `show` | what the page turns to: `chain deployment/web`, `loops`, `timeline`, `fleet`, `objects` |
| `break` | manifests of a broken state, which are created when the lesson begins and are not shown |
| `solution` | lines that solve the lesson, for `setpoint lesson test` and as the last hint |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from setpoint.view.course.checks import Check, Expression
from setpoint.view.course.markdown import Block, Line
from setpoint.view.course.quiz import Quiz

NAMES = (
    "run",
    "file",
    "check",
    "quiz",
    "predict",
    "reveal",
    "hint",
    "fault",
    "operator",
    "show",
    "break",
    "solution",
)
OPERATORS = ("postgres",)
"""The operators that are shipped with the lessons. A lesson names one and brings no code of its own."""
VIEWS = ("objects", "chain", "loops", "timeline", "fleet")
COMPONENTS = ("controllers", "scheduler")


class RawBlock(NamedTuple):
    """A block as it is written."""

    name: str
    argument: str
    line: int
    """The line of its `:::NAME`."""
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Text:
    blocks: list[Block]

    def to_json(self) -> dict[str, Any]:
        return {"type": "text", "blocks": self.blocks}


@dataclass(frozen=True, slots=True)
class Run:
    text: str
    """The text as it is shown, with comments."""
    commands: tuple[str, ...]
    """The commands, each of one line unless it goes on."""
    fails: bool = False
    """Whether the last command is expected to fail."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "run", "text": self.text, "commands": list(self.commands), "fails": self.fails}


@dataclass(frozen=True, slots=True)
class StarterFile:
    name: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"type": "file", "name": self.name, "text": self.text}


@dataclass(frozen=True, slots=True)
class CheckBlock:
    check: Check

    def to_json(self) -> dict[str, Any]:
        check = self.check
        return {"type": "check", "id": check.id, "title": check.title, "hints": len(check.hints)}


@dataclass(frozen=True, slots=True)
class Reveal:
    question: str
    blocks: list[Block]

    def to_json(self) -> dict[str, Any]:
        return {"type": "reveal", "question": self.question, "blocks": self.blocks}


@dataclass(frozen=True, slots=True)
class Hint:
    blocks: list[Block]

    def to_json(self) -> dict[str, Any]:
        return {"type": "hint", "blocks": self.blocks}


class Fault(NamedTuple):
    """One disturbance: `node stop node-2`, `controllers stop`."""

    target: str
    """`node`, `controllers` or `scheduler`."""
    action: str
    """`stop`, `start`, or for a node also `partition`."""
    name: str = ""
    """The name of the node."""

    def __str__(self) -> str:
        return " ".join(filter(None, self))


@dataclass(frozen=True, slots=True)
class FaultBlock:
    faults: tuple[Fault, ...]

    def to_json(self) -> dict[str, Any]:
        return {"type": "fault", "faults": [str(each) for each in self.faults]}


@dataclass(frozen=True, slots=True)
class OperatorBlock:
    operator: str

    def to_json(self) -> dict[str, Any]:
        return {"type": "operator", "operator": self.operator}


@dataclass(frozen=True, slots=True)
class Show:
    view: str
    object: str = ""
    """The object to select, as KIND/NAME; empty means none."""

    def to_json(self) -> dict[str, Any]:
        return {"type": "show", "view": self.view, "object": self.object}


@dataclass(frozen=True, slots=True)
class Predict:
    """A question whose answer can be seen: the learner predicts, it happens, and both are compared."""

    quiz: Quiz
    run: str
    """Lines to type; empty if it is a fault."""
    faults: tuple[Fault, ...]
    until: Expression
    """When the outcome can be seen."""

    def to_json(self) -> dict[str, Any]:
        found = {**self.quiz.to_json(), "type": "predict", "run": self.run}
        return {**found, "faults": [str(each) for each in self.faults]}


class Step(NamedTuple):
    """One line of a solution: a command, or a directive that begins with `@`.

    `@run` types the next `run` block, and `@fault` executes the next `fault` block or the fault that follows.
    `@operator start` and `@operator stop` are its buttons. `@answer ID b` answers a question; `right` is the right
    answer. `@wait ID` waits until a check is met, and `@sleep 30` lets seconds pass."""

    line: int
    kind: str
    """`type` for a command; else the directive: `run`, `fault`, `operator`, `answer`, `wait`, `sleep`."""
    text: str


Part = Text | Run | StarterFile | CheckBlock | Quiz | Predict | Reveal | Hint | FaultBlock | OperatorBlock | Show

_FAULT = re.compile(r"node (?P<action>stop|start|partition) (?P<name>[a-z0-9][a-z0-9.-]{0,62})")
_COMPONENT_FAULT = re.compile(r"(?P<target>controllers|scheduler) (?P<action>stop|start)")


def read_fault(text: str) -> Fault:
    """Return the fault of a line. Raises ValueError."""
    words = " ".join(text.split())
    if found := _FAULT.fullmatch(words):
        return Fault("node", found["action"], found["name"])
    if found := _COMPONENT_FAULT.fullmatch(words):
        return Fault(found["target"], found["action"])
    raise ValueError(
        f"{text[:80]!r} is no fault: use `node stop|partition|start NAME`, `controllers stop|start` or "
        "`scheduler stop|start`"
    )
