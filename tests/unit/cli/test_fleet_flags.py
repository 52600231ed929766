"""`setpoint up --pace` and `--images`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flags
from setpoint.cli.fleet_file import simulation_of
from setpoint.cli.invocation import CommandIO, Invocation
from setpoint.cli.up import COMMAND
from setpoint.cli.up_detached import _flags
from setpoint.node.pace import FAST, INSTANT, REAL


class Terminal(BytesIO):
    def isatty(self) -> bool:
        return True


def a_call(line: str, *, terminal: bool = False) -> Invocation:
    out = Terminal() if terminal else BytesIO()
    io = CommandIO(stdin=BytesIO(), stdout=out, stderr=BytesIO(), home=Path("/"))
    return Invocation(io, Flags(COMMAND.flags).parse(line.split()), "setpoint up")


def test_the_pace_is_real_for_people_and_instant_for_programs() -> None:
    assert simulation_of(a_call("")).pace is INSTANT
    assert simulation_of(a_call("", terminal=True)).pace is REAL
    assert simulation_of(a_call("--pace fast")).pace is FAST
    assert simulation_of(a_call("--pace instant", terminal=True)).pace is INSTANT
    with pytest.raises(Failed, match="--pace slow: must be one of real, fast, instant"):
        simulation_of(a_call("--pace slow"))


def test_a_cluster_in_the_background_has_the_pace_of_the_terminal_it_was_started_from() -> None:
    assert "--pace=real" in _flags(a_call("--nodes 2", terminal=True))
    assert _flags(a_call("--nodes 2 --pace fast", terminal=True)) == ["--nodes=2", "--pace=fast"]


def test_misspelled_images_do_not_exist_unless_any_do() -> None:
    assert simulation_of(a_call("")).only_plausible_images
    assert not simulation_of(a_call("--images any")).only_plausible_images
    with pytest.raises(Failed, match="--images none: must be one of known, any"):
        simulation_of(a_call("--images none"))
