"""The writer of descriptions: levels, nesting, alignment, escaping."""

from __future__ import annotations

from datetime import UTC
from zoneinfo import ZoneInfo

import pytest

from setpoint.cli.describe.context import Writer, plain_time, rfc1123
from setpoint.cli.describe.metadata import write_annotations, write_labels, write_taints, write_tolerations


def test_levels_are_two_spaces() -> None:
    w = Writer()
    w.field("Name", "web")
    w.write(1, "inner:\n")
    w.field("deep", 1, 2)
    assert w.text() == "Name:  web\n  inner:\n    deep:  1\n"


def test_text_after_a_flush_is_aligned_separately() -> None:
    w = Writer()
    w.field("A long title", "x")
    w.flush()
    w.field("B", "y")
    assert w.text() == "A long title:  x\nB:  y\n"


def test_every_line_of_nested_text_is_indented() -> None:
    w = Writer()
    write_labels(w.nested(2), "Labels", {"a": "1", "b": "2"})
    write_labels(w.nested(2), "None", {})
    assert w.text() == "    Labels:      a=1\n                 b=2\n    None:        <none>\n"


def test_control_characters_are_escaped() -> None:
    """CVE-2021-25743."""
    w = Writer()
    w.field("Message", "\x1b[2Jgone\rover")
    assert w.text() == "Message:  ^[[2Jgone\\rover\n"


def text_of(annotations: dict[str, str]) -> str:
    w = Writer()
    write_annotations(w, "Annotations", annotations)
    return w.text()


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({}, "Annotations:  <none>\n"),
        ({"kubectl.kubernetes.io/last-applied-configuration": "{}"}, "Annotations:  <none>\n"),
        ({"b": "2", "a": "1\n"}, "Annotations:  a: 1\n              b: 2\n"),
        ({"a": "1\n2"}, "Annotations:  a:\n                1\n                2\n"),
        ({"a": "x" * 137}, f"Annotations:  a: {'x' * 137}\n"),
        ({"a": "x" * 138}, f"Annotations:  a:\n                {'x' * 138}\n"),
        ({"a": "x" * 139}, f"Annotations:  a:\n                {'x' * 138}...\n"),
        ({"a": "ä" * 80}, f"Annotations:  a:\n                {'ä' * 69}...\n"),
    ],
)
def test_annotations(annotations: dict[str, str], text: str) -> None:
    assert text_of(annotations) == text


def test_tolerations_are_ordered_by_key() -> None:
    w = Writer()
    write_tolerations(
        w,
        "Tolerations",
        [
            {"key": "b", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
            {"operator": "Exists"},
        ],
    )
    assert w.text() == (
        "Tolerations:  op=Exists\n              a:NoExecute op=Exists for 0s\n              b=v:NoSchedule\n"
    )


def test_taints_are_ordered_by_effect_and_key() -> None:
    w = Writer()
    write_taints(
        w, [{"key": "z", "effect": "NoExecute"}, {"key": "a", "value": "v", "effect": "NoSchedule"}, {"key": "k"}]
    )
    assert w.text() == "Taints:  k\n         z:NoExecute\n         a=v:NoSchedule\n"


@pytest.mark.parametrize(
    ("zone", "long", "short"),
    [
        (UTC, "Fri, 01 Mar 2024 03:04:05 +0000", "2024-03-01 03:04:05 +0000 UTC"),
        (ZoneInfo("America/New_York"), "Thu, 29 Feb 2024 22:04:05 -0500", "2024-02-29 22:04:05 -0500 EST"),
        (ZoneInfo("Asia/Kolkata"), "Fri, 01 Mar 2024 08:34:05 +0530", "2024-03-01 08:34:05 +0530 IST"),
    ],
)
def test_times_are_shown_in_the_local_time_zone(zone: ZoneInfo, long: str, short: str) -> None:
    assert rfc1123("2024-03-01T03:04:05Z", zone) == long
    assert plain_time("2024-03-01T03:04:05Z", zone) == short


def test_an_unset_time() -> None:
    assert rfc1123(None, ZoneInfo("Asia/Kolkata")) == "Mon, 01 Jan 0001 00:00:00 +0000"
