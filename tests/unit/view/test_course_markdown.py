"""The text of lessons: Markdown to a tree of plain values, without HTML and within bounds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.view.course.markdown import MAX_BLOCK_LENGTH, elements, numbered, plain_text, read_markdown
from setpoint.view.course.problems import ProblemList


def read(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    problems = ProblemList("a.md")
    return read_markdown(numbered(text), problems), [str(each) for each in problems.found]


def tree(text: str) -> list[dict[str, Any]]:
    found, problems = read(text)
    assert problems == []
    return found


def inline(text: str) -> list[Any]:
    (block,) = tree(text)
    found: list[Any] = block["inline"]
    return found


def test_blocks() -> None:
    found = tree(
        "## Nine *lines*\n\nA paragraph\nof two lines.\n\n"
        "- one\n- two\n  goes on\n\n  and on\n  1. inner\n\n3. third\n4. fourth\n\n"
        "> quoted\n> text\n\n---\n\n```yaml\nkind: Pod\n\n- ## not a heading\n```\n\n| a | b |\n|---|---|\n| 1 | `x|y` |\n"
    )
    assert [each["type"] for each in found] == [
        *("heading", "paragraph", "list", "list", "quote", "rule", "code", "table"),
    ]
    heading, paragraph, bullets, numbers, quote, _, code, table = found
    assert (heading["level"], plain_text(heading["inline"])) == (2, "Nine lines")
    assert paragraph["inline"] == ["A paragraph of two lines."]
    assert [len(item) for item in bullets["items"]] == [1, 3]
    assert bullets["items"][1][2]["ordered"]
    assert (numbers["ordered"], numbers["start"], len(numbers["items"])) == (True, 3, 2)
    assert quote["blocks"][0]["inline"] == ["quoted text"]
    assert (code["language"], code["text"]) == ("yaml", "kind: Pod\n\n- ## not a heading")
    assert table["rows"] == [[["1"], [{"type": "code", "text": "x|y"}]]]


def test_cells_of_a_table() -> None:
    """A bar within code or after a backslash is content, and so is an escaped backtick, which begins no code."""
    (table,) = tree("| a | b |\n|---|---|\n| \\` x | `y|z` |\n| 1\\|2 | \\`3\\` |\n")
    assert table["rows"] == [[["` x"], [{"type": "code", "text": "y|z"}]], [["1|2"], ["`3`"]]]


def test_inline_elements() -> None:
    assert inline("a `b*c*` **d *e*** \\*f\\*") == [
        "a ",
        {"type": "code", "text": "b*c*"},
        " ",
        {"type": "strong", "inline": ["d *e"]},
        "* *f*",
    ]
    assert inline("[the *third*](lesson:loop)")[0]["href"] == "lesson:loop"
    assert inline("![a loop](loop.png)") == [{"type": "image", "source": "loop.png", "alt": "a loop"}]
    assert inline("2 * 3 * 4 and ` alone and [no link] and !") == ["2 * 3 * 4 and ` alone and [no link] and !"]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '<img src=x onerror="alert(1)">',
        "<!-- a comment -->",
        "text <b>bold</b> &lt;",
        "<iframe src='https://example.com'></iframe>",
    ],
)
def test_html_is_text(text: str) -> None:
    """The tree has texts only, which are shown as they are."""
    assert inline(text) == [text]


@pytest.mark.parametrize(
    "href",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "data:text/html,<script>",
        "vbscript:x",
        "file:///etc/passwd",
        "//example.com",
        "/page/v1/session",
        "../secret.md",
        "lesson:../other",
        "lesson:UPPER",
        "https://a b",
        "mailto:a@example.com",
    ],
)
def test_links_lead_to_the_web_or_to_a_lesson(href: str) -> None:
    assert any("is not allowed" in each for each in read(f"see [this]({href})")[1])


@pytest.mark.parametrize(
    "source", ["../a.png", "/a.png", "https://example.com/a.png", "a.svg", "a.png?x", ".a.png", "b/a.png"]
)
def test_images_are_files_of_the_folder(source: str) -> None:
    assert any("must be a png, jpeg, gif or webp file" in each for each in read(f"![x]({source})")[1])


def test_an_image_has_a_text() -> None:
    assert any("needs a text" in each for each in read("![](a.png)")[1])


def test_problems_name_the_line() -> None:
    assert read("one\n\ntwo [x](ftp://a)\n\n```\nnever ends")[1] == [
        "a.md:3: the link to 'ftp://a' is not allowed: only http, https and lesson:NAME are",
        "a.md:5: the code that begins here has no end: ``` is missing",
    ]
    assert "a.md:4: this row has 1 cells, the head 2" in read("\n|a|b|\n|-|-|\n|x|\n")[1]


def test_nesting_and_length_are_bounded() -> None:
    deep = "\n".join(f"{'  ' * min(level, 4)}- x" for level in range(8)) + "\n" + ">" * 40 + " x"
    assert any("nested" in each for each in read(deep)[1])
    assert read("x" * (MAX_BLOCK_LENGTH + 1))[1]
    assert len(read("[x](y)\n\n" * 5000)[1]) == ProblemList.MOST


@pytest.mark.parametrize(
    "piece", ["[", "![", "*", "**", "`", "``", "[](", "\\", "> ", "- ", "| |", "```", "*a", "[a](b", "#"]
)
def test_reading_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    read(piece * (60_000 // len(piece)))
    read((piece * 40 + "\n") * 1_500)
    assert time.process_time() - began < 2


@given(st.text(alphabet=st.sampled_from("a *`[]()!\\\n#->|:1.x/ "), max_size=300))
def test_any_text_gives_a_tree_of_plain_values(text: str) -> None:
    found, _ = read(text)
    assert json.loads(json.dumps(found)) == found
    for each in elements(found):
        assert each["type"] in {
            *("heading", "paragraph", "list", "code", "table", "quote", "rule"),
            *("strong", "emphasis", "link", "image"),
        }
