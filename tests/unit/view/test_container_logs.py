"""Which log says why a container has exited, and how its end is shown."""

from __future__ import annotations

import pytest

from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import ContainerLog
from setpoint.view.why.container_logs import log_of, shown_lines
from setpoint.view.why.facts import LogBounds

POD: ObjView = {"metadata": {"name": "p", "namespace": "default"}}
TERMINATED = {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("state", "last", "previous"),
    [
        ({"running": {}}, {}, None),
        ({"waiting": {"reason": "ContainerCreating"}}, {}, None),
        (TERMINATED, {}, False),
        (TERMINATED, TERMINATED, False),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, TERMINATED, True),
        ({"running": {}}, TERMINATED, True),
    ],
)
def test_the_log_of_the_instance_that_has_exited(state: ObjView, last: ObjView, previous: bool | None) -> None:
    found = log_of(POD, {"name": "c", "state": state, "lastState": last})
    assert found == (None if previous is None else ContainerLog("default", "p", "c", previous))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one", ["one"]),
        (b"one\r\ntwo\n", ["one", "two"]),
        (b"1\n2\n3\n4\n", ["2", "3", "4"]),
        (b"tab\there", ["tab\there"]),
        (b"\x1b[31mred\x1b]0;title\x07 \x00", [r"\x1b[31mred\x1b]0;title\x07 \x00"]),
        ("caf\u00e9 \u202egnirts \ufeff\x9b2J".encode(), ["caf\u00e9 \\u202egnirts \\ufeff\\x9b2J"]),
        (b"\xff\xfe", ["\ufffd\ufffd"]),
        (b"x" * 300, ["x" * 237 + "..."]),
        (b"a\n" * 500, ["a"] * 3),
        # Cut by the limit: the last line is not complete.
        (b"a\n" * 499 + b"bb", ["a", "a", "bb..."]),
    ],
)
def test_lines_are_bounded_and_harmless(data: bytes, lines: list[str]) -> None:
    assert shown_lines(data, LogBounds(3, 1000, 1.0)) == lines
