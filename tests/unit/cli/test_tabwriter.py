"""Alignment by the rules of Go's tabwriter: columns are found block by block, from left to right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from setpoint.cli.tabwriter import align


def test_a_column_is_as_wide_as_its_widest_cell() -> None:
    assert align("Name:\tweb\nNamespace:\tdefault\n") == "Name:       web\nNamespace:  default\n"


def test_the_last_cell_of_a_line_widens_nothing() -> None:
    assert align("a\tb\na very long line without any tab at all\nc\td\n") == (
        "a  b\na very long line without any tab at all\nc  d\n"
    )


def test_a_line_without_tabs_begins_a_new_block() -> None:
    assert align("long title:\tx\nSpec:\n  a:\ty\n") == "long title:  x\nSpec:\n  a:  y\n"


def test_an_empty_cell_is_as_wide_as_the_padding() -> None:
    assert align("a\t\tb\n") == "a    b\n"


def test_minimum_width_and_padding() -> None:
    assert align("NAME\tAGE\nx\t1d", least=6, padding=3) == "NAME   AGE\nx      1d"


def test_a_form_feed_ends_every_column() -> None:
    assert align("long cell\tx\fa\ty\n") == "long cell  x\na  y\n"


def test_characters_count_not_bytes() -> None:
    assert align("ä\tx\naa\ty\n") == "ä   x\naa  y\n"


def blocks(lines: list[list[str]], widths: list[int]) -> list[str]:
    """The reference: widths are those of the columns to the left, lines all have a cell in each of these."""
    column, out, at = len(widths), [], 0
    while at < len(lines):
        if column >= len(lines[at]) - 1:
            out.append(
                "".join(cell.ljust(width) for cell, width in zip(lines[at], widths, strict=False)) + lines[at][-1]
            )
            at += 1
            continue
        end = at
        while end < len(lines) and column < len(lines[end]) - 1:
            end += 1
        width = max(len(line[column]) for line in lines[at:end]) + 2
        out += blocks(lines[at:end], [*widths, width])
        at = end
    return out


@given(st.text("ab\t\n\v", max_size=60))
def test_a_reference_implementation_gives_equal_results(text: str) -> None:
    lines = [line.replace("\v", "\t").split("\t") for line in text.split("\n")]
    assert align(text) == "\n".join(blocks(lines, []))
