"""Which lines of a log the options select, and in which form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.node.kubelet_api.interface import KubeletApiError, LogOptions, NodeRequest
from setpoint.node.kubelet_api.logs import parse_log_options
from setpoint.node.kubelet_api.simulated_logs import last_lines, render_lines
from setpoint.node.runtime.interface import LogLine

LINES = [
    LogLine(1_700_000_000.0, "stdout", "one\n"),
    LogLine(1_700_000_001.5, "stderr", "two\n"),
    LogLine(1_700_000_002.25, "stdout", "thr"),
    LogLine(1_700_000_003.0, "stdout", "ee\n"),
]


def rendered(**options: object) -> str:
    return b"".join(render_lines(LINES, LogOptions(**options))).decode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"tail": 1}, "three\n"),
        ({"tail": 2}, "two\nthree\n"),
        ({"tail": 0}, ""),
        ({"tail": 99}, "one\ntwo\nthree\n"),
        ({"since": 1_700_000_001.5}, "two\nthree\n"),
        ({"limit_bytes": 5}, "one\nt"),
        ({"streams": ("stderr",)}, "two\n"),
        ({"tail": 1, "timestamps": True}, "2023-11-14T22:13:22.250000000Z three\n"),
        ({"limit_bytes": 4, "tail": 1}, "thre"),
    ],
)
def test_rendered_lines(options: dict[str, object], wanted: str) -> None:
    assert rendered(**options) == wanted


def parsed(**query: str) -> LogOptions:
    return parse_log_options(NodeRequest("n", "GET", "/", {name: [value] for name, value in query.items()}), 1000.0)


def test_options_are_parsed_as_the_kubelet_does() -> None:
    assert parsed() == LogOptions()
    assert parsed(follow="true", previous="false", timestamps="1").follow
    assert parsed(sinceSeconds="10").since == 990.0
    assert parsed(sinceTime="1970-01-01T00:00:05Z").since == 5.0
    assert parsed(tail="3").tail == 3
    assert parsed(tail="all", tailLines="3").tail is None
    assert parsed(stream="Stderr").streams == ("stderr",)


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"stream": "other"},
        {"sinceSeconds": "1", "sinceTime": "1970-01-01T00:00:05Z"},
        {"stream": "Stdout", "tailLines": "1"},
    ],
)
def test_invalid_options_are_rejected(query: dict[str, str]) -> None:
    with pytest.raises(KubeletApiError) as raised:
        parsed(**query)
    assert raised.value.status == 422


@pytest.mark.parametrize("query", [{"tailLines": "x"}, {"sinceTime": "yesterday"}])
def test_unparsable_options_are_rejected(query: dict[str, str]) -> None:
    with pytest.raises(KubeletApiError) as raised:
        parsed(**query)
    assert raised.value.status == 400


@given(st.lists(st.tuples(st.sampled_from(["a", "b\n", "\n", "cc\n"])), max_size=12), st.integers(0, 14))
def test_the_tail_consists_of_whole_lines(pieces: list[tuple[str]], count: int) -> None:
    lines = [LogLine(0.0, "stdout", piece) for (piece,) in pieces]
    whole = "".join(piece for (piece,) in pieces).splitlines(keepends=True)
    assert "".join(line.text for line in last_lines(lines, count)) == "".join(whole[-count:] if count else [])
