"""Lessons as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill, indent
from typing import Any

from setpoint.cli.escaping import escaped
from setpoint.view.course.blocks import (
    CheckBlock,
    FaultBlock,
    Hint,
    OperatorBlock,
    Part,
    Predict,
    Reveal,
    Run,
    Show,
    StarterFile,
    Text,
)
from setpoint.view.course.markdown import Block, Inline
from setpoint.view.course.quiz import LETTERS, ORDER, TEXT, Quiz

WIDTH = 88
BOLD, DIM, GREEN, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


class Renderer:
    """Renders Markdown and the parts of lessons, with colours or without."""

    def __init__(self, colour: bool, width: int = WIDTH) -> None:
        self._colour = colour
        self._width = width

    def painted(self, text: str, colour: str) -> str:
        return f"{colour}{text}{PLAIN}" if self._colour else text

    def title(self, text: str) -> str:
        text = escaped(text)
        return f"{self.painted(text, BOLD)}\n{'=' * len(text)}"

    # -- Markdown ------------------------------------------------------------------------------------------------------

    def blocks(self, blocks: Iterable[Block]) -> str:
        """Return Markdown blocks as paragraphs, separated by empty lines."""
        return "\n\n".join(self._block(each, self._width) for each in blocks)

    def _block(self, block: Block, width: int) -> str:
        match block["type"]:
            case "heading":
                text = self.inline(block["inline"])
                return f"{self.painted(text, BOLD)}\n{'-' * len(text)}" if block["level"] <= 2 else text
            case "paragraph":
                return fill(
                    self.inline(block["inline"]), max(width, 20), break_on_hyphens=False, break_long_words=False
                )
            case "code":
                return indent(escaped(block["text"]), "  ")
            case "list":
                return "\n".join(self._items(block, width))
            case "table":
                return "\n".join(self._rows([block["head"], *block["rows"]]))
            case "quote":
                return indent("\n\n".join(self._block(each, width - 2) for each in block["blocks"]), "| ")
        return "-" * 20

    def _items(self, block: Block, width: int) -> Iterator[str]:
        for number, item in enumerate(block["items"], int(block.get("start", 1))):
            mark = f"{number}. " if block["ordered"] else "- "
            text = "\n\n".join(self._block(each, width - len(mark)) for each in item)
            yield mark + indent(text, " " * len(mark)).lstrip(" ")

    def _rows(self, rows: Sequence[Sequence[Sequence[Inline]]]) -> Iterator[str]:
        texts = [[self.inline(cell) for cell in row] for row in rows]
        widths = [max(len(row[at]) if at < len(row) else 0 for row in texts) for at in range(len(texts[0]))]
        for row in texts:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()

    def inline(self, elements: Sequence[Inline]) -> str:
        return "".join(escaped(each) if isinstance(each, str) else self._element(each) for each in elements)

    def _element(self, element: dict[str, Any]) -> str:
        match element["type"]:
            case "code":
                return f"`{escaped(element['text'])}`"
            case "image":
                return f"[picture: {escaped(element['alt'])}]"
            case "link":
                text, target = self.inline(element["inline"]), element["href"]
                name = f"`setpoint lesson {target.removeprefix('lesson:')}`"
                return f"{text} ({name if target.startswith('lesson:') else target})"
        return self.inline(element["inline"])

    # -- parts ---------------------------------------------------------------------------------------------------------

    def part(self, part: Part) -> str:
        """Return what is shown of a part before the learner has done anything; empty if nothing is."""
        match part:
            case Text(blocks):
                return self.blocks(blocks)
            case Run(text, _, fails):
                note = "\n" + self.painted("  (This will be refused.)", DIM) if fails else ""
                return self.commands(text) + note
            case StarterFile(name, text):
                return f"{escaped(name)}:\n{indent(escaped(text).rstrip(), '  ')}"
            case CheckBlock(check):
                return f"[ ] {escaped(check.title)}"
            case Quiz():
                return self.question(part)
            case Predict(quiz):
                return "Predict first. " + self.question(quiz)
            case Reveal(question):
                return f"{escaped(question)}"
            case Hint(blocks):
                return self.blocks(blocks)
            case FaultBlock(faults):
                return "What happens now: " + ", ".join(escaped(str(each)) for each in faults)
            case OperatorBlock(operator):
                return f"The operator {operator} can be started and stopped here."
            case Show():
                return ""

    def commands(self, text: str) -> str:
        lines = [
            f"  $ {line}" if not line.startswith("#") else f"  {line}" for line in text.split("\n") if line.strip()
        ]
        return self.painted("\n".join(escaped(each) for each in lines), GREEN)

    def question(self, quiz: Quiz) -> str:
        lines = [self.blocks(quiz.question)]
        if quiz.kind != TEXT:
            for letter, at in zip(LETTERS, quiz.shown):
                option = fill(
                    f"{letter}) {self.inline(quiz.options[at].inline)}", self._width - 2, subsequent_indent="   "
                )
                lines.append(indent(option, "  "))
        return "\n".join(lines)

    def right_answer(self, quiz: Quiz) -> str:
        """Return the right answer as it is typed; empty for a text."""
        if quiz.kind == TEXT:
            return ""
        return ("" if quiz.kind == ORDER else ", ").join(LETTERS[at] for at in quiz.right)
