"""A subset of Markdown, read to a tree of plain values.

Blocks: headings, paragraphs, lists, fenced code, tables, quotes, rules. Inline: code, strong, emphasis, links, images.
There is no HTML: what looks like it is text. The tree is JSON, so the page and the terminal draw the same values:

    {"type": "heading", "level": 2, "inline": [...]}            {"type": "paragraph", "inline": [...]}
    {"type": "list", "ordered": false, "items": [[block, ...]]}   {"type": "code", "language": "yaml", "text": "..."}
    {"type": "table", "head": [[...]], "rows": [[[...]]]}         {"type": "quote", "blocks": [...]}   {"type": "rule"}

An inline element is a text or one of

    {"type": "code", "text": "..."}   {"type": "strong", "inline": [...]}   {"type": "emphasis", "inline": [...]}
    {"type": "link", "href": "...", "inline": [...]}   {"type": "image", "source": "...", "alt": "..."}

Reading takes linear time, and nesting is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from setpoint.view.course.problems import ProblemList

Block = dict[str, Any]
Inline = str | dict[str, Any]

MAX_BLOCK_LENGTH = 8_000
"""Characters of one paragraph, cell or heading."""
_MAX_DEPTH = 4
_MAX_COLUMNS = 12
_HEADING = re.compile(r"(#{1,4}) +(\S.*)")
_ITEM = re.compile(r"( {0,8})(?:([-*])|(\d{1,3})\.) +(\S.*)")
_FENCE = re.compile(r" {0,3}```([A-Za-z0-9_-]{0,20})\s*")
_RULE = re.compile(r"(?:-{3,}|\*{3,})\s*")
_DIVIDER = re.compile(r"\|?(?: *:?-{1,60}:? *\|)*(?: *:?-{1,60}:? *)\|?\s*")
_HREF = re.compile(r"https?://[^\s()<>\"'\\]{1,500}|lesson:[a-z0-9][a-z0-9-]{0,62}")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""The name of a file in a folder: without a path, and not hidden."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.(?:png|jpe?g|gif|webp)")
_SPECIAL = re.compile(r"[\\`*\[!]")
_ESCAPABLE = frozenset("\\`*[]!()_#|<>-.{}:")


class Line(NamedTuple):
    """A line of a file."""

    number: int
    text: str


def numbered(text: str, first: int = 1) -> list[Line]:
    """Return the lines of a text, the first of which has the number `first`."""
    return [Line(at, each) for at, each in enumerate(text.split("\n"), first)]


def read_markdown(lines: Sequence[Line], problems: ProblemList) -> list[Block]:
    """Return the blocks of a text."""
    return _Reader(problems).blocks(list(lines), 0)


class _Reader:
    def __init__(self, problems: ProblemList) -> None:
        self._problems = problems

    def blocks(self, lines: list[Line], depth: int) -> list[Block]:
        if depth > _MAX_DEPTH:
            self._problems.add(
                lines[0].number if lines else 0, f"lists and quotes are nested {_MAX_DEPTH} deep at most"
            )
            return []
        found: list[Block] = []
        at = 0
        while at < len(lines):
            at = self._block(lines, at, depth, found)
        return found

    def _block(self, lines: list[Line], at: int, depth: int, found: list[Block]) -> int:
        """Read the block that begins at this line, and return where the next one begins."""
        number, text = lines[at]
        if not text.strip():
            return at + 1
        if fence := _FENCE.fullmatch(text):
            return self._code(lines, at, fence[1], found)
        if heading := _HEADING.fullmatch(text.rstrip()):
            inline = self.inline(heading[2], number)
            found.append({"type": "heading", "level": len(heading[1]), "inline": inline})
            return at + 1
        if _RULE.fullmatch(text):
            found.append({"type": "rule"})
            return at + 1
        if text.startswith(">"):
            end = _end(lines, at, lambda line: line.startswith(">"))
            inner = [Line(each.number, each.text[1:].removeprefix(" ")) for each in lines[at:end]]
            found.append({"type": "quote", "blocks": self.blocks(inner, depth + 1)})
            return end
        if _ITEM.fullmatch(text):
            return self._list(lines, at, depth, found)
        if "|" in text and at + 1 < len(lines) and "|" in lines[at + 1].text and _DIVIDER.fullmatch(lines[at + 1].text):
            return self._table(lines, at, found)
        end = _end(lines, at, lambda line: bool(line.strip()) and not _begins_block(line))
        end = max(end, at + 1)
        words = " ".join(each.text.strip() for each in lines[at:end])
        found.append({"type": "paragraph", "inline": self.inline(words, number)})
        return end

    def _code(self, lines: list[Line], at: int, language: str, found: list[Block]) -> int:
        end = at + 1
        while end < len(lines) and not _FENCE.fullmatch(lines[end].text):
            end += 1
        if end == len(lines):
            self._problems.add(lines[at].number, "the code that begins here has no end: ``` is missing")
        text = "\n".join(each.text for each in lines[at + 1 : end])
        found.append({"type": "code", "language": language, "text": text})
        return end + 1

    def _list(self, lines: list[Line], at: int, depth: int, found: list[Block]) -> int:
        first = _ITEM.fullmatch(lines[at].text)
        assert first is not None
        indent, ordered = len(first[1]), first[3] is not None
        items: list[list[Block]] = []
        while at < len(lines):
            item = _ITEM.fullmatch(lines[at].text)
            if item is None or len(item[1]) != indent or (item[3] is not None) != ordered:
                break
            content = item.start(4)
            inner = [Line(lines[at].number, item[4])]
            at += 1
            while at < len(lines) and (
                not lines[at].text.strip() or len(lines[at].text) - len(lines[at].text.lstrip(" ")) > indent
            ):
                text = lines[at].text
                cut = min(content, len(text) - len(text.lstrip(" ")))
                inner.append(Line(lines[at].number, text[cut:]))
                at += 1
            while inner and not inner[-1].text.strip():
                inner.pop()
            items.append(self.blocks(inner, depth + 1))
        block: Block = {"type": "list", "ordered": ordered, "items": items}
        if ordered and first[3] != "1":
            block["start"] = int(first[3])
        found.append(block)
        return at

    def _table(self, lines: list[Line], at: int, found: list[Block]) -> int:
        end = _end(lines, at, lambda line: "|" in line)
        rows = [[self.inline(cell, each.number) for cell in _cells(each.text)] for each in lines[at:end]]
        head, body = rows[0], rows[2:]
        if len(head) > _MAX_COLUMNS:
            self._problems.add(lines[at].number, f"a table has {_MAX_COLUMNS} columns at most")
        for offset, row in enumerate(body, 2):
            if len(row) != len(head):
                self._problems.add(lines[at + offset].number, f"this row has {len(row)} cells, the head {len(head)}")
        found.append({"type": "table", "head": head, "rows": body})
        return end

    # -- inline --------------------------------------------------------------------------------------------------------

    def inline(self, text: str, number: int) -> list[Inline]:
        """Return the inline elements of a text of the line `number`."""
        if len(text) > MAX_BLOCK_LENGTH:
            self._problems.add(number, f"a paragraph has {MAX_BLOCK_LENGTH:,} characters at most")
            return []
        return self._inline(text, number, 0)

    def _inline(self, text: str, number: int, depth: int) -> list[Inline]:
        found: list[Inline] = []
        plain: list[str] = []

        def add(element: Inline) -> None:
            before = "".join(plain)
            plain.clear()
            found.extend((before, element) if before else (element,))

        at = 0
        missing: set[str] = set()
        """Delimiters that do not occur any more, so that they are searched once."""
        while (special := _SPECIAL.search(text, at)) is not None:
            plain.append(text[at : special.start()])
            at = special.start()
            mark = text[at]
            if mark == "\\" and text[at + 1 : at + 2] in _ESCAPABLE and at + 1 < len(text):
                plain.append(text[at + 1])
                at += 2
                continue
            element, end = None, at
            if depth <= _MAX_DEPTH:
                element, end = self._element(text, at, number, depth, missing)
            if element is None:
                plain.append(mark)
                at += 1
            else:
                add(element)
                at = end
        plain.append(text[at:])
        rest = "".join(plain)
        if rest:
            found.append(rest)
        return found

    def _element(
        self, text: str, at: int, number: int, depth: int, missing: set[str]
    ) -> tuple[dict[str, Any] | None, int]:
        mark = text[at]
        if mark == "`":
            ticks = len(text) - at - len(text[at:].lstrip("`")) if text.startswith("``", at) else 1
            ticks = min(ticks, 3)
            end = _find(text, "`" * ticks, at + ticks, missing)
            if end < 0:
                return None, at
            inner = text[at + ticks : end]
            return {"type": "code", "text": inner.strip() if ticks > 1 else inner}, end + ticks
        if mark == "*":
            width = 2 if text.startswith("**", at) else 1
            end = _find(text, "*" * width, at + width, missing)
            if end <= at + width or text[at + width].isspace() or text[end - 1].isspace():
                return None, at
            name = "strong" if width == 2 else "emphasis"
            inner_elements = self._inline(text[at + width : end], number, depth + 1)
            return {"type": name, "inline": inner_elements}, end + width
        is_image = text.startswith("![", at)
        if mark == "!" and not is_image:
            return None, at
        start = at + 2 if is_image else at + 1
        middle = _find(text, "](", start, missing)
        end = _find(text, ")", middle + 2, missing) if middle >= 0 else -1
        if end < 0:
            return None, at
        label, target = text[start:middle], text[middle + 2 : end].strip()
        if is_image:
            return self._image(label, target, number), end + 1
        if not _HREF.fullmatch(target):
            self._problems.add(
                number, f"the link to {target[:80]!r} is not allowed: only http, https and lesson:NAME are"
            )
        return {"type": "link", "href": target, "inline": self._inline(label, number, depth + 1)}, end + 1

    def _image(self, alt: str, source: str, number: int) -> dict[str, Any]:
        if not _IMAGE.fullmatch(source):
            self._problems.add(number, f"the image {source[:80]!r} must be a png, jpeg, gif or webp file in the folder")
        if not alt.strip():
            self._problems.add(number, f"the image {source[:80]!r} needs a text for people who do not see it")
        return {"type": "image", "source": source, "alt": alt}


def _begins_block(text: str) -> bool:
    return bool(text.startswith(">") or _FENCE.fullmatch(text) or _HEADING.fullmatch(text) or _ITEM.fullmatch(text))


def _end(lines: list[Line], at: int, belongs: Any) -> int:
    """Return the position of the first line from `at` on that does not belong to the block."""
    while at < len(lines) and belongs(lines[at].text):
        at += 1
    return at


def _find(text: str, mark: str, start: int, missing: set[str]) -> int:
    """Return where a delimiter is, from `start` on, or -1. What is missing once is not searched again."""
    if mark in missing:
        return -1
    found = text.find(mark, start)
    if found < 0:
        missing.add(mark)
    return found


def _cells(text: str) -> list[str]:
    """Return the cells of a row; a bar within code or after a backslash does not separate cells."""
    text = text.strip().removeprefix("|").removesuffix("|")
    cells, cell, in_code, at = [], [], False, 0
    while at < len(text):
        each = text[at]
        following = text[at + 1 : at + 2]
        if each == "\\" and (following == "|" or (following == "`" and not in_code)):
            cell.append("|" if following == "|" else "\\`")
            at += 2
            continue
        in_code ^= each == "`"
        if each == "|" and not in_code:
            cells.append("".join(cell).strip())
            cell = []
        else:
            cell.append(each)
        at += 1
    return [*cells, "".join(cell).strip()]


# -- reading a tree ----------------------------------------------------------------------------------------------------


def elements(blocks: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """Yield every block and inline element of a tree, except texts."""
    pending: list[Any] = list(blocks)
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending.extend(each)
        elif isinstance(each, dict):
            yield each
            pending.extend(value for value in each.values() if isinstance(value, (list, dict)))


def plain_text(inline: Sequence[Inline]) -> str:
    """Return the text of inline elements without their form."""
    return "".join(
        each
        if isinstance(each, str)
        else str(each.get("text", "") or plain_text(each.get("inline", ())) or each.get("alt", ""))
        for each in inline
    )
