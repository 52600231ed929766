"""What a terminal in the page shows of the output of programs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.view.terminal_text import TerminalFilter


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain\ttext\r\n", "plain\ttext\r\n"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
        ("\x1b[2J\x1b[H\x1b[3F\x1b[K\x1b7\x1b8", "\x1b[2J\x1b[H\x1b[3F\x1b[K\x1b7\x1b8"),
        ("a\x1b]52;c;c2VjcmV0\x07b", "ab"),
        ("a\x1b]0;title\x1b\\b", "ab"),
        ("\x1b]8;;http://evil.test\x07link\x1b]8;;\x07", "link"),
        ("\x1b[?1049h\x1b[?25l\x1b[>c\x1b[6n\x1b[20t\x1bc\x1b(0", ""),
        ("\x1bPq#0;2;0;0;0#0~~\x1b\\sixel", "sixel"),
        ("\x1b]0;never ended\nnext line\x1b[1", "\nnext line"),
        ("nul\x00 bell\x07 del\x7f c1\x9b1m", "nul␀ bell\x07 del␡ c1�1m"),
        ("user\u202etxt.exe\u2066", "user�txt.exe�"),
        ("\x1b[" + "1;" * 40 + "m", ""),
    ],
)
def test_only_colours_movements_and_erasing_stay(written: str, shown: str) -> None:
    assert TerminalFilter().filtered(written) == shown
    one_by_one = TerminalFilter()
    assert "".join(one_by_one.filtered(each) for each in written) == shown


def test_an_endless_string_for_the_terminal_needs_no_memory() -> None:
    shown = TerminalFilter()
    assert shown.filtered("a\x1b]52;c;" + "A" * 10_000) == "a"
    for _ in range(100):
        assert shown.filtered("A" * 10_000) == ""
    assert len(shown._open) < 10
    assert shown.filtered("A\x1b") == "" and shown.filtered("\\b") == "b"


_SAFE = re.compile(
    r"(\x1b\[[0-9;:]*[@A-HJ-MPX`dfmsu]|\x1b[78]|[^\x00-\x06\x0e-\x1f\x7f-\x9f\u202a-\u202e])*", re.DOTALL
)
_PIECES = st.sampled_from(
    ["\x1b", "[", "]", "0", ";", "52", "m", "J", "?", "h", "\x07", "\\", "P", "c", "x", "\x9b", "\x00", "\n", "\u202e"]
)


@given(st.lists(_PIECES, max_size=40), st.integers(0, 40))
def test_nothing_else_passes_however_it_is_split(pieces: list[str], at: int) -> None:
    text = "".join(pieces)
    parts = TerminalFilter()
    shown = parts.filtered(text[:at]) + parts.filtered(text[at:])
    assert _SAFE.fullmatch(shown), repr(shown)
    assert shown == TerminalFilter().filtered(text)
